//! The checks that a merge needs.

use std::process::Command;

use crate::cargo::{NO_DENY, cargo, has_deny};
use crate::error::Result;
use crate::table::Table;
use crate::test::{self, Options};

/// Runs the steps in order and stops at the first failure.
pub(crate) fn run() -> Result<bool> {
    let mut table = Table::default();
    let fmt = with(cargo(), "fmt --all -- --check");
    let clippy = with(cargo(), "clippy --workspace --all-targets --all-features -- -D warnings");
    // The whole workspace builds each package with the features of all others.
    let alone = with(cargo(), "clippy --package quickstart -- -D warnings");
    let mut docs = with(cargo(), "doc --workspace --no-deps --all-features");
    docs.env("RUSTDOCFLAGS", "-Dwarnings");
    for (name, mut command) in [("fmt", fmt), ("clippy", clippy), ("SQLite alone", alone), ("docs", docs)] {
        if !table.step(name, || command.status())?.success() {
            return failed(name);
        }
    }
    if !table.step("deny", deny)? {
        return failed("deny");
    }
    let results = test::run(Options::default(), &mut table)?;
    println!("{}", table.text(&results.durations));
    Ok(results.print())
}

/// Checks licences, sources and duplicates of the dependencies.
///
/// It does not check advisories, because some machines cannot fetch their database. A release does.
fn deny() -> Result<bool> {
    if !has_deny(cargo()) {
        println!("skipped: {NO_DENY}");
        return Ok(true);
    }
    Ok(with(cargo(), "deny check --hide-inclusion-graph bans licenses sources").status()?.success())
}

fn failed(name: &str) -> Result<bool> {
    println!("{name} failed");
    Ok(false)
}

fn with(mut command: Command, args: &str) -> Command {
    command.args(args.split(' '));
    command
}
