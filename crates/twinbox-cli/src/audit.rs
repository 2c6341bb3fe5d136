//! `twinbox audit`.
use crate::{exit::Exit, session::Session};
use clap::Subcommand;
use serde::Serialize;
use twinbox_sql::Dialect;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List changes, newest first.
    List {
        /// The number of entries.
        #[arg(long, default_value_t = 50, value_name = "NUMBER")]
        limit: u32,
    },
}

#[derive(Serialize)]
struct Entry {
    id: i64,
    at: String,
    operator: String,
    database_user: String,
    command: String,
    target: String,
    count: Option<u64>,
    reason: Option<String>,
}

pub(crate) async fn run<DB: Dialect>(command: AuditCommand, session: &Session<DB>) -> Result<(), Exit> {
    let AuditCommand::List { limit } = command;
    let entries = session.ops.audit(limit).await?.into_iter().map(|entry| Entry {
        id: entry.id,
        at: entry.at.to_string(),
        operator: entry.operator,
        database_user: entry.database_user,
        command: entry.command,
        target: entry.target,
        count: entry.count,
        reason: entry.reason,
    });
    let columns = [
        ("at", "at"),
        ("operator", "operator"),
        ("database user", "database_user"),
        ("command", "command"),
        ("target", "target"),
        ("count", "count"),
        ("reason", "reason"),
    ];
    session.output.list(&columns, &Vec::from_iter(entries), "No changes were made with this tool.");
    Ok(())
}
