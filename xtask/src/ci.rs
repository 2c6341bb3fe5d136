//! The checks that a merge needs.

use std::process::Command;

use crate::cargo::{NO_DENY, cargo, has_deny};
use crate::error::Result;
use crate::table::Table;
use crate::test::{self, Options};
use crate::versions::{Server, Versions};

/// Each statement, and what differs most between versions, on the newest servers. `cargo xtask matrix` runs
/// everything on all versions.
const ON_THE_NEWEST: Options<'static> = Options {
    area: Some("statements"),
    focus: None,
    versions: Versions { postgres: Some("18"), mysql: Some(Server::MySql("9.7")) },
    extra: &["publish::", "log::holes::", "log::plans::"],
    one_by_one: false,
    long: false,
    repeat: 1,
    busy: false,
};

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
    let mut results = test::run(Options::default(), &mut table)?;
    match test::run(ON_THE_NEWEST, &mut table) {
        Ok(more) => results.add(more),
        // A machine may have servers of its own, or no registry.
        Err(reason) => {
            println!("SKIPPED: the tests on the newest servers: {reason}");
            results.outcome.skipped += 1;
        }
    }
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
