//! A release is refused before anything is packaged.
use super::root;
use crate::support::helper::cargo;

#[test]
fn a_release_without_advisories_makes_no_packages() {
    let mut release = cargo();
    release.args(["xtask", "release"]).current_dir(root()).env_remove("TWINBOX_ADVISORIES");
    let output = release.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{printed}");
    assert!(printed.contains("refused: TWINBOX_ADVISORIES names no checkout of"), "{printed}");
    assert!(printed.lines().all(|line| line.starts_with("refused: ")), "{printed}");
}
