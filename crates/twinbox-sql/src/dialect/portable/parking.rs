//! Parked messages and deliveries.
use crate::texts::{Deliveries, ParkedMessages, ParkedQueue};

/// What is read of a dead letter of a destination: all but its message.
macro_rules! head {
    () => {
        "
        SELECT p.position, p.destination, o.id AS event_id, o.source, o.type, o.key, p.state AS reason,
            p.last_error AS error, p.fingerprint, p.attempts, o.time, p.parked_at AS given_up_at,
            false AS is_redriven, CAST(NULL AS {uuid}) AS message_id"
    };
}

/// Reads dead letters of destinations.
#[rustfmt::skip]
macro_rules! dead {
    ($rest:literal) => {
        concat!(head!(), "
        FROM {parked_messages} p
        JOIN {outbox} o ON o.position = p.position
        WHERE p.state <> 'waiting'", $rest)
    };
}

/// Finds a page of dead letters in an index, then reads these and their messages alone: MySQL would keep a
/// table that has their texts in a file. The second limit is for Postgres, which plans without the first: it
/// would read the whole log for a tenth of all dead letters.
#[rustfmt::skip]
macro_rules! dead_page {
    ($table:literal, $rest:literal, $order:literal) => {
        concat!(head!(), "
        FROM (
            SELECT *
            FROM (
                SELECT destination, position
                FROM ", $table, "
                WHERE state <> 'waiting'", $rest, "
                ORDER BY ", $order, "
                LIMIT ?
            ) page
            LIMIT 1000
        ) page
        JOIN {parked_messages} p ON p.destination = page.destination AND p.position = page.position
        JOIN {outbox} o ON o.position = p.position
        ORDER BY p.", $order)
    };
}

/// Counts dead letters before a time.
#[rustfmt::skip]
macro_rules! count {
    ($which:literal) => {
        concat!("
        SELECT count(*) AS dead_letters, CAST(0 AS {big_integer}) AS redriven
        FROM (
            SELECT 1
            FROM {parked_messages} {by_index parked_messages_group_time}
            WHERE state <> 'waiting' AND ", $which, " AND parked_at < ?
            ORDER BY fingerprint, parked_at
            LIMIT ?
        ) counted")
    };
}

pub(in crate::dialect) const PARKED_MESSAGES: ParkedMessages = ParkedMessages {
    write: "
        INSERT INTO {parked_messages} AS p (destination, position, key, type, state, blocks_key, attempts,
            next_attempt_at, first_error, last_error, fingerprint)
        SELECT ?, r.position, r.key, r.type, r.state, r.blocks_key, r.attempts, {after r.delay},
            r.error, r.error, r.fingerprint
        FROM {parked_rows}
        WHERE NOT r.again OR EXISTS (
            SELECT 1
            FROM {parked_messages} k
            WHERE k.destination = ? AND k.position = r.position)
        ON CONFLICT (destination, position) DO UPDATE
        SET state = excluded.state, blocks_key = excluded.blocks_key, attempts = excluded.attempts,
            next_attempt_at = excluded.next_attempt_at, last_error = excluded.last_error,
            fingerprint = excluded.fingerprint,
            parked_at = CASE WHEN excluded.state = 'waiting' THEN p.parked_at ELSE {now} END
        WHERE p.state = 'waiting'",
    positions_between: "
        SELECT position
        FROM {parked_messages}
        WHERE destination = ? AND position BETWEEN ? AND ?",
    list: "
        SELECT p.position, p.state, p.attempts, p.first_error, p.last_error, o.*
        FROM {parked_messages} p
        JOIN (SELECT position AS log_position, {message} FROM {outbox}) o ON o.log_position = p.position
        WHERE p.destination = ?
        ORDER BY p.position
        LIMIT ?",
    counts: "
        SELECT
            (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM {parked_messages}
                    WHERE destination = ? AND state = 'waiting'
                    LIMIT ?
                ) waiting_rows
            ) AS waiting,
            (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM {parked_messages}
                    WHERE destination = ? AND state <> 'waiting'
                    LIMIT ?
                ) given_up_rows
            ) AS given_up,
            (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM {parked_messages}
                    WHERE destination = ? AND state = 'blocking'
                    LIMIT ?
                ) blocking_rows
            ) AS blocking",
    find: "
        SELECT state, attempts, last_error
        FROM {parked_messages}
        WHERE destination = ? AND position = ?",
    skip: "
        UPDATE {parked_messages} AS p
        SET parked_at = CASE WHEN state = 'waiting' THEN {now} ELSE parked_at END, state = 'dead',
            blocks_key = false
        WHERE destination = ? AND blocks_key = true
            AND (SELECT id FROM {outbox} o WHERE o.position = p.position) = ?",
    release_key: "
        UPDATE {parked_messages}
        SET state = 'dead', blocks_key = false
        WHERE destination = ? AND key = ? AND blocks_key = true AND state <> 'waiting'",
    dead_message: "
        SELECT position, {message}
        FROM {outbox}
        WHERE position = ? AND position IN (
            SELECT position
            FROM {parked_messages}
            WHERE destination = ? AND state <> 'waiting')",
    redrive: "
        UPDATE {parked_messages}
        SET state = 'waiting', blocks_key = true, attempts = 0, next_attempt_at = {after}
        WHERE destination = ? AND position = ? AND state <> 'waiting'",
    discard: "
        DELETE FROM {parked_messages}
        WHERE destination = ? AND position = ? AND state <> 'waiting'",
    of_key: "
        SELECT position, state
        FROM {parked_messages}
        WHERE destination = ? AND key = ? AND blocks_key = true
        ORDER BY position
        LIMIT ?",
    find_dead: dead!(
        "
            AND p.destination = ? AND p.position = ?"
    ),
    dead_of_event: dead!(
        "
            AND {not_replay p.destination} AND o.id = ?
        ORDER BY p.position
        LIMIT ?"
    ),
    next_owner: "
        SELECT min(destination) AS name
        FROM {parked_messages}
        WHERE destination > ?",
    // MySQL would read all rows for a minimum with another condition.
    next_destination: "
        SELECT (
            SELECT destination
            FROM {parked_messages}
            WHERE state <> 'waiting' AND destination > ?
            ORDER BY destination
            LIMIT 1
        ) AS name",
    next_group: "
        SELECT (
            SELECT fingerprint
            FROM {parked_messages} {by_index parked_messages_group}
            WHERE state <> 'waiting' AND destination = ? AND fingerprint > ?
            ORDER BY fingerprint
            LIMIT 1
        ) AS name",
    group_counts: "
        SELECT
            count(*) AS dead_letters,
            CAST(COALESCE(sum(CASE WHEN parked_at > ? THEN 1 END), 0) AS {big_integer}) AS lately,
            CAST(0 AS {big_integer}) AS redriven,
            max(parked_at) AS last_given_up_at,
            (
                SELECT parked_at
                FROM {parked_messages} {by_index parked_messages_group_time}
                WHERE state <> 'waiting' AND destination = ? AND fingerprint = ?
                ORDER BY parked_at
                LIMIT 1
            ) AS first_given_up_at
        FROM (
            SELECT parked_at
            FROM {parked_messages} {by_index parked_messages_group_time}
            WHERE state <> 'waiting' AND destination = ? AND fingerprint = ?
            ORDER BY parked_at DESC
            LIMIT ?
        ) newest",
    count_of_destination: count!("destination = ?"),
    count_of_group: count!("destination = ? AND fingerprint = ?"),
    group_before: dead_page!(
        "{parked_messages} {by_index parked_messages_group}",
        "
                    AND destination = ? AND fingerprint = ? AND position < ?",
        "position DESC"
    ),
    group_after: dead_page!(
        "{parked_messages} {by_index parked_messages_group}",
        "
                    AND destination = ? AND fingerprint = ? AND position > ? AND parked_at <= ?",
        "position"
    ),
    destination_before: dead_page!(
        "{parked_messages}",
        "
                    AND destination = ? AND position < ?",
        "position DESC"
    ),
    destination_after: dead_page!(
        "{parked_messages}",
        "
                    AND destination = ? AND position > ? AND parked_at <= ?",
        "position"
    ),
};

/// Parked deliveries with their failures. `which`: a condition. The last bind is a limit.
#[rustfmt::skip]
macro_rules! deliveries {
    ($which:literal) => {
        concat!("
        SELECT d.id, d.event_id, d.message_id, d.type, d.key, d.parked_at, d.next_attempt_at, a.failures,
            a.last_error
        FROM {parked_deliveries} d
        LEFT JOIN {attempts} a ON a.consumer = d.consumer AND a.message_id = d.message_id
        WHERE ", $which, "
        ORDER BY d.id
        LIMIT ?")
    };
}

pub(in crate::dialect) const DELIVERIES: Deliveries = Deliveries {
    insert: "
        INSERT INTO {parked_deliveries} (consumer, partition, next_attempt_at, {stored_message})
        VALUES (?, ?, {after}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT DO NOTHING",
    postpone: "
        UPDATE {parked_deliveries}
        SET next_attempt_at = {after}
        WHERE consumer = ? AND partition = ? AND id = ?",
    bytes: "
        SELECT CAST(COALESCE(sum(length(payload)), 0) AS {big_integer})
        FROM {parked_deliveries}
        WHERE consumer = ? AND partition = ?",
    count: "
        SELECT count(*)
        FROM {parked_deliveries}
        WHERE consumer = ?",
    list: deliveries!("d.consumer = ?"),
    of_key: deliveries!("d.consumer = ? AND d.key = ?"),
    retry_now: "
        UPDATE {parked_deliveries}
        SET next_attempt_at = {now}
        WHERE consumer = ? AND key = COALESCE(?, key) AND next_attempt_at > {now}",
};

/// The queue texts of one table. `row`: the column that numbers its rows, in order within a key. `owner`:
/// whose rows, with binds. `holds`: rows that later messages of their key wait behind. `waits`: rows that
/// wait for another attempt. `blocks`: rows that block the owner.
#[rustfmt::skip]
macro_rules! queue {
    (
        table: $table:literal, row: $row:literal, owner: $owner:literal, holds: $holds:literal,
        waits: $waits:literal, blocks: $blocks:literal, attempts: $attempts:literal,
        sizes: $sizes:literal, messages: $messages:literal $(,)?
    ) => {
        ParkedQueue {
            heads: concat!("
        SELECT head.key, head.number,
            (
                SELECT CASE WHEN ", $waits, " THEN {until p.next_attempt_at} END
                FROM ", $table, " p
                WHERE ", $owner, " AND p.", $row, " = head.number
            ) AS due_in,
            (
                SELECT ", $attempts, "
                FROM ", $table, " p
                WHERE ", $owner, " AND p.", $row, " = head.number
            ) AS attempts
        FROM (
            SELECT p.key, min(p.", $row, ") AS number
            FROM ", $table, " p
            WHERE ", $owner, " AND ", $holds, " AND p.key IS NOT NULL
            GROUP BY p.key
        ) head"),
            due_without_key: concat!("
        SELECT p.", $row, " AS number, ", $attempts, " AS attempts
        FROM ", $table, " p
        WHERE ", $owner, " AND ", $waits, "
            AND p.key IS NULL AND p.next_attempt_at <= (SELECT {now})
        ORDER BY p.next_attempt_at
        LIMIT ?"),
            next_without_key: concat!("
        SELECT {until p.next_attempt_at} AS due_in
        FROM ", $table, " p
        WHERE ", $owner, " AND ", $waits, " AND p.key IS NULL
        ORDER BY p.next_attempt_at
        LIMIT 1"),
            run_of_key: concat!("
        SELECT p.", $row, " AS number, ", $waits, " AND p.next_attempt_at <= (SELECT {now}) AS is_due,
            ", $attempts, " AS attempts
        FROM ", $table, " p
        WHERE ", $owner, " AND ", $holds, " AND p.key = ? AND p.", $row, " >= ?
        ORDER BY p.", $row, "
        LIMIT ?"),
            sizes: $sizes,
            messages: $messages,
            delete: concat!("
        DELETE FROM ", $table, " AS p
        WHERE ", $owner, " AND p.", $row, " {among}"),
            counts: concat!("
        SELECT
            (
                SELECT count(*)
                FROM (
                    SELECT 1
                    FROM ", $table, " p
                    WHERE ", $owner, " AND ", $waits, "
                    LIMIT ?
                ) w
            ) AS waiting,
            EXISTS (
                SELECT 1
                FROM ", $table, " p
                WHERE ", $owner, " AND ", $holds, " AND p.key IS NOT NULL
            ) AS any_holds,
            EXISTS (
                SELECT 1
                FROM ", $table, " p
                WHERE ", $owner, " AND ", $blocks, "
            ) AS any_blocks,
            {is_server_run} AS is_server_run"),
        }
    };
}

/// The messages are in the log.
pub(in crate::dialect) const DESTINATION_QUEUE: ParkedQueue = queue! {
    table: "{parked_messages}",
    row: "position",
    owner: "p.destination = ?",
    holds: "p.blocks_key = true",
    waits: "p.state = 'waiting'",
    blocks: "p.state = 'blocking'",
    attempts: "p.attempts",
    sizes: "
        SELECT p.position AS number,
            CAST(length(o.payload) + COALESCE(length(o.headers), 0) AS {big_integer}) AS bytes
        FROM {parked_messages} p
        JOIN {outbox} o ON o.position = p.position
        WHERE p.destination = ? AND p.position {among}",
    messages: "
        SELECT position AS number, {message}
        FROM {outbox}
        WHERE position {among}",
};

/// The messages are in the rows. Their attempts are counted where all attempts are.
pub(in crate::dialect) const DELIVERY_QUEUE: ParkedQueue = queue! {
    table: "{parked_deliveries}",
    row: "id",
    owner: "p.consumer = ? AND p.partition = ?",
    holds: "true",
    waits: "true",
    blocks: "false",
    attempts: "CAST(0 AS {big_integer})",
    sizes: "
        SELECT p.id AS number,
            CAST(length(p.payload) + COALESCE(length(p.headers), 0) AS {big_integer}) AS bytes
        FROM {parked_deliveries} p
        WHERE p.consumer = ? AND p.partition = ? AND p.id {among}",
    messages: "
        SELECT id AS number, sequence, event_id, source, type, version, key, subject, time,
            correlation_id, causation_id, traceparent, content_type, headers, payload
        FROM {parked_deliveries}
        WHERE consumer = ? AND partition = ? AND id {among}",
};
