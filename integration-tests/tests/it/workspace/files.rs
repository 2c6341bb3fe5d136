//! What is in the files of the tree.
use super::root;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Lines that a file may have.
const LINES_MAX: usize = 400;

/// Columns that a line of code or comment may have: those of rustfmt.
const COLUMNS_MAX: usize = 110;

/// Files that may be longer, and why.
const LONGER: &[(&str, &str)] =
    &[("Cargo.lock", "written by cargo"), ("bench/peers/Cargo.lock", "written by cargo")];

/// Files that say what is forbidden, and so hold it.
const SAYS_SO: &str = "integration-tests/tests/it/workspace/files.rs";

/// Every file that is or would be committed, by its path in the tree.
fn tree() -> Vec<String> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root());
    let output = git.output().expect("git runs");
    if !output.status.success() {
        return without_git();
    }
    let names = String::from_utf8(output.stdout).expect("names are text");
    let names = names.split_terminator('\0').filter(|name| root().join(name).is_file());
    names.map(str::to_owned).collect()
}

/// In a copy of the tree that is no repository.
fn without_git() -> Vec<String> {
    let root = root();
    let names = below(&root).map(|path| path.strip_prefix(&root).unwrap().display().to_string());
    names.filter(|name| !name.split('/').any(|part| part == "target" || part.starts_with(".git"))).collect()
}

/// Every file below a folder, links included.
pub(super) fn below(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("target") => {}
                true => folders.push(path),
                false => files.push(path),
            }
        }
    }
    files.into_iter()
}

/// Text files with their content.
pub(crate) fn texts() -> impl Iterator<Item = (String, String)> {
    tree().into_iter().filter_map(|name| {
        let text = std::fs::read_to_string(root().join(&name)).ok()?;
        Some((name, text))
    })
}

#[test]
fn no_file_is_longer_than_it_may_be() {
    let long: Vec<_> = texts()
        .filter(|(name, _)| !LONGER.iter().any(|(listed, _)| listed == name))
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .collect();
    assert!(long.is_empty(), "split them, or list them with a reason: {long:?}");
    for (listed, reason) in LONGER {
        let text = std::fs::read_to_string(root().join(listed)).unwrap_or_default();
        assert!(text.lines().count() > LINES_MAX, "{listed} need not be listed any more ({reason})");
    }
}

#[test]
fn no_line_of_code_or_comment_is_longer_than_it_may_be() {
    let is_code = |name: &str| [".rs", ".sql", ".py", ".sh"].iter().any(|end| name.ends_with(end));
    // Inputs of the compiler's error messages, some of which have names that are too long.
    let is_input = |name: &str| name.starts_with("integration-tests/compile-errors/");
    for (name, text) in texts().filter(|(name, _)| is_code(name) && !is_input(name)) {
        let at = text.lines().position(|line| line.chars().count() > COLUMNS_MAX).map(|n| n + 1);
        assert!(at.is_none(), "{name}:{} has more than {COLUMNS_MAX} columns", at.unwrap_or_default());
    }
}

/// Tests that never run, and what was left behind in a hurry.
#[test]
fn nothing_unfinished_is_left_in_the_code() {
    let forbidden = ["#[ignore", "todo!(", "unimplemented!(", "dbg!("];
    for (name, text) in texts().filter(|(name, _)| name.ends_with(".rs") && name != SAYS_SO) {
        for word in forbidden {
            let at = text.lines().position(|line| line.contains(word)).map(|n| n + 1);
            assert!(at.is_none(), "{name}:{} has {word}", at.unwrap_or_default());
        }
    }
}

/// The tree stands for itself.
#[test]
fn nothing_points_outside_of_the_tree() {
    let forbidden = ["issue #", "../shared", "/work/", "/root/"];
    for (name, text) in texts().filter(|(name, _)| name != SAYS_SO && !name.ends_with(".lock")) {
        for word in forbidden {
            let at = text.lines().position(|line| line.contains(word)).map(|n| n + 1);
            assert!(at.is_none(), "{name}:{} has {word:?}", at.unwrap_or_default());
        }
    }
}

/// A package has only the files of its folder. Others are missing where it is built from a registry.
#[test]
fn packages_include_only_their_own_files() {
    let (mut seen, root) = (0, root().canonicalize().unwrap());
    for (name, text) in texts().filter(|(name, _)| name.starts_with("crates/") && name.ends_with(".rs")) {
        let file = root.join(&name);
        let package = root.join(Path::new(&name).iter().take(2).collect::<PathBuf>());
        let includes = ["include_str!(\"", "include_bytes!(\""].map(|start| text.split(start).skip(1));
        let paths = includes.into_iter().flatten().filter_map(|rest| rest.split_once("\")"));
        for (path, _) in paths {
            let included = file.with_file_name(path).canonicalize();
            let included = included.unwrap_or_else(|error| panic!("{name} includes {path}: {error}"));
            assert!(included.starts_with(&package), "{name} includes {path}, which is of no package");
            seen += 1;
        }
    }
    assert!(seen > 0, "no file is included");
}
