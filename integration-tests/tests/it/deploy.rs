//! The files with which the relay is deployed, and the program under the managers that they are for.
mod container;
mod kubernetes;
mod systemd;

use crate::support::helper;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/src/deploy.md");

#[test]
fn the_program_takes_the_configuration_of_the_page() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), rest.split_once("```").unwrap().0).unwrap();
    let mut print = Command::new(helper::program("twinbox-relay"));
    let printed = print.args(["config", "print", "--config"]).arg(file.path()).output().unwrap();
    let text = String::from_utf8_lossy(&printed.stdout);
    assert!(printed.status.success() && text.contains("database.idle_poll = \"10m\"  # file"), "{printed:?}");
}
