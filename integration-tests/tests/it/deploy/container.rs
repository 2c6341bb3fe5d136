//! The file of the image: what it builds is there, and what others run of it comes from it.
use crate::support::helper::cargo;
use std::{fs, path::Path, process::Command};
use twinbox_testkit::skipped;

pub(super) const CONTAINERFILE: &str =
    include_str!("../../../../crates/twinbox-relay/container/Containerfile");
const IGNORED: &str = include_str!("../../../../.dockerignore");
/// The user of the image, by number.
pub(super) const USER: u64 = 10001;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let ends = |name: &str| (0..=name.len()).any(|at| name.get(at..).is_some_and(|end| fits(end, rest)));
    name.strip_prefix(start).is_some_and(ends)
}

/// Whether an engine sends a file of the tree to a build. Its folder in the root is let in, and no later line
/// leaves it out.
fn is_sent(path: &Path) -> bool {
    let lines = Vec::from_iter(IGNORED.lines().filter(|line| !line.starts_with('#')));
    let let_in = Vec::from_iter(lines.iter().filter_map(|line| line.strip_prefix('!')));
    let left_out = Vec::from_iter(lines.iter().filter_map(|line| line.strip_prefix("**/")));
    let is_known = lines[0] == "*" && lines[1..=let_in.len()].iter().all(|line| line.starts_with('!'));
    assert!(is_known && lines.len() == 1 + let_in.len() + left_out.len(), "this test knows such lines");
    let names = Vec::from_iter(path.iter().map(|name| name.to_str().unwrap()));
    let is_left_out = |name: &&str| left_out.iter().any(|pattern| fits(name, pattern));
    let_in.contains(&names[0]) && !names.iter().any(is_left_out)
}

/// The files of the tree that an engine sends to a build.
fn context() -> tempfile::TempDir {
    let (root, folder) = (root(), tempfile::tempdir().unwrap());
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let (entry, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let name = entry.strip_prefix(root).unwrap();
            let to = folder.path().join(name);
            if !is_sent(name) {
                continue;
            } else if kind.is_dir() {
                fs::create_dir(to).unwrap();
                open.push(entry);
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(entry).unwrap(), to).unwrap();
            } else {
                fs::copy(entry, to).unwrap();
            }
        }
    }
    folder
}

/// Without an engine: the workspace of the context is whole, and has the programs that the image copies.
#[test]
fn the_image_copies_programs_that_its_context_builds() {
    let context = context();
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version=1", "--locked", "--offline", "--no-deps"]);
    let output = metadata.current_dir(&context).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let build = CONTAINERFILE.lines().find_map(|line| line.strip_prefix("RUN cargo build ")).unwrap();
    let built = build.split("--package ").skip(1).map(str::trim);
    let built = Vec::from_iter(built.map(|name| packages.iter().find(|p| p["name"] == name).expect(name)));
    let copies = CONTAINERFILE.lines().filter_map(|line| line.strip_prefix("COPY --from=build "));
    let copied =
        copies.flat_map(|line| line.split(' ').filter_map(|path| path.strip_prefix("/src/target/release/")));
    let mut programs = 0;
    for program in copied {
        let is_it = |target: &serde_json::Value| target["name"] == program && target["kind"][0] == "bin";
        let has_it = |package: &&serde_json::Value| package["targets"].as_array().unwrap().iter().any(is_it);
        assert!(built.iter().any(has_it), "{program}");
        programs += 1;
    }
    assert_eq!(programs, 2);
}

#[test]
fn every_file_of_a_package_is_sent_to_a_build() {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "bench", "crates", "examples", "integration-tests", "xtask"]);
    let output = git.args(["Cargo.lock", "Cargo.toml"]).current_dir(root()).output().unwrap();
    if !output.status.success() {
        return skipped("the files of a build: the tree is no repository");
    }
    let names = String::from_utf8(output.stdout).unwrap();
    let left_out = names.split_terminator('\0').filter(|name| !is_sent(Path::new(name)));
    assert_eq!(Vec::from_iter(left_out), [""; 0]);
    assert!(names.contains("Cargo.lock\0") && names.contains("crates/twinbox-relay/src/main.rs\0"));
}

/// Secrets, databases, the history, and what earlier builds left.
#[test]
fn what_lies_around_is_not_sent_to_a_build() {
    for name in [
        ".env",
        ".git/config",
        "database-url",
        "relay.toml",
        "shop.sqlite",
        "target/release/twinbox",
        "bench/peers/node_modules/a/index.js",
        "crates/twinbox/.env.local",
        "crates/twinbox/shop.db",
        "crates/twinbox/shop.sqlite-wal",
        "crates/twinbox/target/debug/a",
    ] {
        assert!(!is_sent(Path::new(name)), "{name}");
    }
}

#[test]
fn the_image_runs_the_relay_as_a_user_without_rights() {
    let has = |line: &str| CONTAINERFILE.lines().any(|other| other == line);
    assert!(has(&format!("USER {USER}:{USER}")) && CONTAINERFILE.contains(&format!("--uid {USER}")));
    assert!(has(r#"ENTRYPOINT ["/usr/local/bin/twinbox-relay"]"#));
}
