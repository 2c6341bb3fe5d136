//! The list of migrations.

/// The migrations in the folder of one database, in the order of their numbers.
macro_rules! migrations {
    ($folder:literal) => {
        migrations!($folder:
            "log" "0001_log.sql",
            "inbox" "0002_inbox.sql",
            "operations" "0003_operations.sql",
            "effects" "0004_effects.sql",
            "jobs" "0005_jobs.sql",
            "client_keys" "0006_client_keys.sql",
            "drift" "0007_drift.sql",
            "bulk_actions" "0008_bulk_actions.sql",
        )
    };
    ($folder:literal: $($name:literal $file:literal,)+) => {
        &[$(Migration {
            name: $name,
            compatible_from: 1,
            sql: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $file)),
        },)+]
    };
}

pub(super) use migrations;

/// One version of the schema, with the SQL that creates it.
#[derive(Debug)]
pub struct Migration {
    pub(crate) name: &'static str,
    /// The oldest version of the program that may use the tables after this step.
    pub(crate) compatible_from: i64,
    pub(crate) sql: &'static str,
}
