//! What was done by hand.
use crate::{exit::Exit, output::Output};
use clap::Args;
use serde::Serialize;
use twinbox_sql::{Dialect, Store};

#[derive(Debug, Args)]
pub(crate) struct AuditArguments {
    /// How many entries.
    #[arg(long, default_value_t = 50, value_name = "NUMBER")]
    limit: u32,
}

#[derive(Serialize)]
struct Entry {
    id: i64,
    at: String,
    who: String,
    what: String,
    target: String,
    count: Option<u64>,
    reason: Option<String>,
}

pub(crate) async fn run<DB: Dialect>(
    arguments: &AuditArguments,
    store: &Store<DB>,
    output: &Output,
) -> Result<(), Exit> {
    let entries = store.audited(arguments.limit).await?.into_iter().map(|entry| Entry {
        id: entry.id,
        at: entry.at.to_string(),
        who: entry.who,
        what: entry.what,
        target: entry.target,
        count: entry.count,
        reason: entry.reason,
    });
    let columns = [
        ("at", "at"),
        ("who", "who"),
        ("what", "what"),
        ("to", "target"),
        ("count", "count"),
        ("reason", "reason"),
    ];
    output.list(&columns, &Vec::from_iter(entries), "Nothing was done by hand.");
    Ok(())
}
