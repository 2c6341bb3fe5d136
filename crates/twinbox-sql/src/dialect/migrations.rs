//! The list of migrations.
/// The migrations in the folder of one database, in the order of their numbers.
macro_rules! migrations {
    ($folder:literal) => {
        migrations!($folder:
            "log_and_inbox" "0001_log_and_inbox.sql",
            // A relay that does not know parked messages keeps none of their keys waiting: deploy relays first.
            "parked" "0002_parked.sql",
            // Nobody moves what waits before a relay of this version runs.
            "delayed" "0003_delayed.sql",
            // A relay that does not know it goes on although it is held.
            "held" "0004_held.sql",
            // What ends a process that does not know it is tried again for ever, as before.
            "starts" "0005_starts.sql",
            "ordered" "0006_ordered.sql",
            // A consumer that does not know purge marks runs what is in doubt: deploy all of one before they purge.
            "purge_marks" "0007_purge_marks.sql",
            "idempotency_keys" "0008_idempotency_keys.sql",
            "webhook_receipts" "0009_webhook_receipts.sql",
            // Nobody executes replays before a relay of this version runs; a consumer that does not know what it is marked
            // with takes a message that is to run again for a duplicate.
            "replays" "0010_replays.sql",
            // Nobody tries a dead letter again, or hears that it is paused, before a consumer of this version runs.
            "operations" "0011_operations.sql",
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
