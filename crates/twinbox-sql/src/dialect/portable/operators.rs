//! Statements that only operators need.
use crate::texts::{Audit, Backlog, Redaction};

/// The last number of a page.
#[rustfmt::skip]
macro_rules! page {
    ($table:literal, $number:literal) => {
        concat!("
        SELECT max(", $number, ")
        FROM (
            SELECT ", $number, "
            FROM ", $table, "
            WHERE ", $number, " > ?
            ORDER BY ", $number, "
            LIMIT ?
        ) page")
    };
}

pub(in crate::dialect) const REDACTION: Redaction = Redaction {
    delayed_page: page!("{delayed_messages}", "insert_order"),
    delayed: "
        UPDATE {delayed_messages}
        SET payload = ?, headers = ?
        WHERE key = ? AND insert_order > ? AND insert_order <= ?",
    log_page: page!("{outbox}", "position"),
    log: "
        UPDATE {outbox}
        SET payload = ?, headers = ?
        WHERE {takes_turns} AND key = ? AND position > ? AND position <= ?",
    deliveries_page: page!("{parked_deliveries}", "id"),
    deliveries: "
        UPDATE {parked_deliveries}
        SET payload = ?, headers = ?
        WHERE key = ? AND id > ? AND id <= ?",
    dead_letters_page: page!("{dead_letters}", "id"),
    dead_letters: "
        UPDATE {dead_letters}
        SET payload = ?, headers = ?, error = 'redacted'
        WHERE key = ? AND id > ? AND id <= ?",
};

/// Counts the messages of rows `o` by what decides whether a program can read them. Blanked messages are left
/// out: nobody reads them.
#[rustfmt::skip]
macro_rules! count_messages {
    (is_dead: $is_dead:literal, reader: $reader:literal, event_id: $id:literal, rows: $rows:literal) => {
        concat!("
        SELECT ", $is_dead, " AS is_dead, ", $reader, " AS reader, o.type, o.version,
            {header twinbox-codec} AS codec, count(*) AS messages, min(", $id, ") AS example
        ", $rows, "
            AND NOT (length(o.payload) = 0 AND COALESCE({header twinbox-redacted}, '') = 'true')
        GROUP BY 1, 2, 3, 4, 5")
    };
}

pub(in crate::dialect) const BACKLOG: Backlog = Backlog {
    delayed: count_messages! {
        is_dead: "false", reader: "''", event_id: "o.id", rows: "FROM {delayed_messages} o
        WHERE true"
    },
    pending: concat!(
        "{with_cursor}",
        count_messages! {
            is_dead: "false", reader: "''", event_id: "o.id", rows: "FROM {outbox} o, s
        WHERE {is_unsettled}
            AND NOT EXISTS (
                SELECT 1
                FROM {parked_messages} k
                WHERE k.destination = ? AND k.position = o.position)"
        }
    ),
    published_since: count_messages! {
        is_dead: "false", reader: "''", event_id: "o.id", rows: "FROM {outbox} o
        WHERE o.time >= ? AND o.type <> ''"
    },
    parked_and_dead: concat!(
        count_messages! {
            is_dead: "p.state <> 'waiting'", reader: "p.destination", event_id: "o.id",
            rows: "FROM {parked_messages} p
        JOIN {outbox} o ON o.position = p.position
        WHERE {not_replay p.destination}"
        },
        "
        UNION ALL",
        count_messages! {
            is_dead: "false", reader: "{log_reader o.consumer}", event_id: "o.event_id",
            rows: "FROM {parked_deliveries} o
        WHERE true"
        },
        "
        UNION ALL",
        // A message of an unknown type cannot be read by any build: it is dead for good.
        count_messages! {
            is_dead: "true", reader: "{log_reader o.consumer}", event_id: "o.event_id",
            rows: "FROM {dead_letters} o
        WHERE o.type <> 'unknown'"
        },
    ),
};

pub(in crate::dialect) const AUDIT: Audit = Audit {
    begin: "
        INSERT INTO {audit} (operator, command, target, reason)
        VALUES (?, ?, ?, ?)
        {returning id}",
    end: "
        UPDATE {audit}
        SET count = ?
        WHERE id = ?",
    list: "
        SELECT id, at, operator, database_user, command, target, reason, count
        FROM {audit}
        ORDER BY id DESC
        LIMIT ?",
};
