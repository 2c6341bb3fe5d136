//! The file of the image: what it builds is there, and what others run of it comes from it.
use std::{fs, path::Path, process::Command};

pub(super) const CONTAINERFILE: &str =
    include_str!("../../../../crates/twinbox-relay/container/Containerfile");
const IGNORED: &str = include_str!("../../../../.dockerignore");
/// The user of the image, by number.
pub(super) const USER: u64 = 10001;

/// The files of the tree that an engine sends to a build.
fn context() -> tempfile::TempDir {
    let (root, folder) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap(), tempfile::tempdir().unwrap());
    let mut ignored: Vec<_> = IGNORED.lines().filter_map(|line| line.strip_prefix("**/")).collect();
    assert_eq!(ignored, [".git", "target"], "this test knows these patterns");
    ignored.push(".");
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let (entry, kind) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let to = folder.path().join(entry.strip_prefix(root).unwrap());
            if ignored.iter().any(|name| entry.ends_with(name)) {
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
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
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
fn the_image_runs_the_relay_as_a_user_without_rights() {
    let has = |line: &str| CONTAINERFILE.lines().any(|other| other == line);
    assert!(has(&format!("USER {USER}:{USER}")) && CONTAINERFILE.contains(&format!("--uid {USER}")));
    assert!(has(r#"ENTRYPOINT ["/usr/local/bin/twinbox-relay"]"#));
}
