//! The store itself, publishing, and messages that wait for their time.
use crate::texts::{Delayed, Outbox, Setup};

pub(in crate::dialect) const SETUP: Setup = Setup {
    now: "SELECT {now}",
    server_run: "SELECT {current_server_run}",
    is_server_run: "SELECT {is_server_run}",
    record_server_run: "",
    service: "
        SELECT service
        FROM {meta}",
    set_service: "
        INSERT INTO {meta} (singleton, service)
        VALUES (true, ?)
        ON CONFLICT DO NOTHING",
    create_lock_secret: "",
    lock_secret: "",
    schema_version: "
        SELECT version, compatible_from
        FROM {migrations}
        ORDER BY version DESC
        LIMIT 1",
    record_migration: "
        INSERT INTO {migrations} (version, name, compatible_from)
        VALUES (?, ?, ?)",
    settings: "",
    has_right: "",
    role: "",
    rights_held: "",
    more_rights_held: "",
    guards: "",
    table_locks: "",
};

pub(in crate::dialect) const OUTBOX: Outbox = Outbox {
    publish: "
        INSERT INTO {outbox} ({published})
        VALUES (?, ?, ?, ?, ?, COALESCE(?, {now}), ?, ?, ?, ?, ?, ?)",
    publish_all: "
        INSERT INTO {outbox} ({published})
        VALUES ",
    lock_key: "",
    published: "
        SELECT position, {message}
        FROM {outbox}
        WHERE type = ?
        ORDER BY position
        LIMIT ?",
    recent_types: "
        SELECT DISTINCT type
        FROM (
            SELECT type
            FROM {outbox}
            ORDER BY position DESC
            LIMIT ?
        ) recent
        ORDER BY type",
};

/// Moves messages into the log, in the order of their times.
macro_rules! move_due {
    ($time:literal) => {
        concat!(
            "
        INSERT INTO {outbox} ({published})
        SELECT id, type, version, key, subject, {readable time}, correlation_id, causation_id, traceparent,
            content_type, headers, payload
        FROM {delayed_messages}
        WHERE insert_order {among}
        ORDER BY ",
            $time,
            ", insert_order"
        )
    };
}
#[cfg(feature = "mysql")]
pub(in crate::dialect) use move_due;

pub(in crate::dialect) const DELAYED: Delayed = Delayed {
    insert: "
        INSERT INTO {delayed_messages} ({published}, message_id, not_before)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    cancel: "
        DELETE FROM {delayed_messages}
        WHERE message_id = ?",
    next: "
        SELECT not_before, {now} AS now
        FROM {delayed_messages}
        ORDER BY not_before, insert_order
        LIMIT 1",
    lock_due: "
        SELECT insert_order, length(payload) AS bytes
        FROM {delayed_messages}
        WHERE not_before <= (SELECT {now})
        ORDER BY not_before, insert_order
        LIMIT ?
        {lock_row}",
    move_due: move_due!("not_before"),
    delete_moved: "
        DELETE FROM {delayed_messages}
        WHERE insert_order {among}",
};
