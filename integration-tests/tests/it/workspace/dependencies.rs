//! The packages that an application with Twinbox compiles.
use super::{list, packages, root, text};
use crate::support::helper::cargo;
use std::collections::BTreeSet;

/// The features of an application on Postgres and NATS.
pub(super) const APPLICATION: &str = "consumer,http,nats,postgres";

/// The names of all packages that the facade needs with these features.
fn needed(features: &str) -> BTreeSet<String> {
    needed_versions(features).into_iter().map(|(name, _)| name).collect()
}

/// The names of all packages that the facade needs with these features, and their versions.
pub(super) fn needed_versions(features: &str) -> BTreeSet<(String, String)> {
    let mut tree = cargo();
    tree.args(["tree", "--offline", "--package", "twinbox", "--no-default-features", "--features", features]);
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]).current_dir(root());
    let output = tree.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).expect("cargo writes text");
    let package = |line: &str| {
        let (name, rest) = line.split_once(" v")?;
        Some((name.to_owned(), rest.split(' ').next()?.to_owned()))
    };
    tree.lines().filter_map(package).collect()
}

fn refuse(features: &str, unwanted: &[&str]) {
    let needed = needed(features);
    println!("{features}: {} packages", needed.len());
    assert!(needed.contains("twinbox-sql") && needed.contains("sqlx"), "{needed:?}");
    let found: Vec<_> = needed.iter().filter(|name| unwanted.contains(&name.as_str())).collect();
    assert!(found.is_empty(), "with the features {features} an application compiles {found:?}");
}

/// No second SQLite, no unmaintained back-off, no parts of a program.
#[test]
fn an_application_on_postgres_and_nats_compiles_no_sqlite_and_no_program() {
    let unwanted = ["backoff", "clap", "libsqlite3-sys", "mimalloc", "sqlx-sqlite", "tracing-subscriber"];
    refuse(APPLICATION, &unwanted);
}

#[test]
fn an_application_on_sqlite_compiles_no_postgres() {
    refuse("consumer,sqlite", &["backoff", "clap", "sqlx-postgres"]);
}

#[test]
fn a_producer_compiles_no_relay_no_consumer_and_no_client_of_a_broker() {
    let unwanted = [
        "async-nats",
        "aws-sdk-eventbridge",
        "axum",
        "backoff",
        "clap",
        "libsqlite3-sys",
        "twinbox-consumer",
        "twinbox-log",
        "twinbox-ops",
        "twinbox-relay",
    ];
    refuse("postgres", &unwanted);
}

/// An exact version would keep an application from updating a package that it shares with Twinbox. The
/// packages of Twinbox have one version: parts of their interfaces are for each other alone.
#[test]
fn only_packages_of_twinbox_ask_for_exact_versions_of_each_other() {
    for (name, package) in packages() {
        let kept = list(&package["dependencies"]).iter().filter(|d| d["kind"] != "dev");
        let exact: Vec<_> =
            kept.filter(|d| text(&d["req"]).starts_with('=')).map(|d| text(&d["name"])).collect();
        assert!(exact.iter().all(|name| name.starts_with("twinbox")), "{name}: {exact:?}");
    }
}
