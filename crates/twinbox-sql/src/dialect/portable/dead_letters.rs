//! Dead letters of consumers.
use crate::texts::DeadLetters;

/// Reads dead letters without their messages.
#[rustfmt::skip]
macro_rules! heads {
    ($rest:expr) => {
        concat!("
        SELECT id, consumer, event_id, source, type, key, reason, error, fingerprint, attempts, time,
            given_up_at, redrive_attempts_left > 0 AS is_redriven, message_id
        FROM {dead_letters}", $rest)
    };
}

/// Reads dead letters of a group, by its index.
#[rustfmt::skip]
macro_rules! heads_of_group {
    ($rest:literal) => { heads!(concat!(" {by_index dead_letters_group}", $rest)) };
}

/// Reads dead letters of a consumer, by their index: MySQL would begin each page at the newest of all.
#[rustfmt::skip]
macro_rules! heads_of_consumer {
    ($rest:literal) => { heads!(concat!(" {by_index dead_letters_consumer}", $rest)) };
}

/// Counts dead letters before a time.
#[rustfmt::skip]
macro_rules! count {
    ($which:literal) => {
        concat!("
        SELECT
            count(*) AS dead_letters,
            CAST(COALESCE(sum(CASE WHEN redrive_attempts_left > 0 THEN 1 END), 0) AS {big_integer})
                AS redriven
        FROM (
            SELECT redrive_attempts_left
            FROM {dead_letters} {by_index dead_letters_group}
            WHERE ", $which, " AND given_up_at < ?
            ORDER BY fingerprint, given_up_at
            LIMIT ?
        ) counted")
    };
}

pub(in crate::dialect) const DEAD_LETTERS: DeadLetters = DeadLetters {
    insert: "
        INSERT INTO {dead_letters} (consumer, reason, error, fingerprint, attempts, {stored_message})
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    newest: "
        SELECT {dead_letter}
        FROM {dead_letters}
        WHERE consumer = ?
        ORDER BY id DESC
        LIMIT ?",
    bytes: "
        SELECT CAST(COALESCE(sum(length(payload) + COALESCE(length(headers), 0)), 0) AS {big_integer})
        FROM {dead_letters}
        WHERE consumer = ?",
    message: "
        SELECT {dead_letter}
        FROM {dead_letters}
        WHERE id = ?",
    take_redriven: "
        UPDATE {dead_letters}
        SET redrive_at = {after}, redrive_attempts_left = redrive_attempts_left - 1
        WHERE id IN (
            SELECT id
            FROM {dead_letters} d
            WHERE consumer = ? AND redrive_attempts_left > 0 AND redrive_at <= (SELECT {now})
                AND NOT (? AND EXISTS (
                    SELECT 1
                    FROM {dead_letters} b
                    WHERE b.consumer = d.consumer AND b.key = d.key AND b.id < d.id
                        AND b.redrive_attempts_left > 0 AND b.redrive_at > (SELECT {now})))
            ORDER BY redrive_at
            LIMIT ?
            {skip_locked})
        RETURNING {dead_letter}, redrive_attempts_left",
    due_redrives: "",
    has_redriven: "
        SELECT 1
        FROM {dead_letters}
        WHERE consumer = ? AND redrive_attempts_left > 0 AND redrive_at <= (SELECT {now})
        ORDER BY redrive_at
        LIMIT 1",
    redrive: "
        UPDATE {dead_letters}
        SET redrive_at = {after}, redrive_attempts_left = ?
        WHERE id = ? AND redrive_attempts_left = 0",
    record_failure: "
        UPDATE {dead_letters}
        SET error = ?, fingerprint = ?, attempts = attempts + 1, given_up_at = {now}, redrive_at = {after},
            redrive_attempts_left = redrive_attempts_left * ?
        WHERE id = ? AND message_id = ?",
    hold: "",
    claim: "
        DELETE FROM {dead_letters}
        WHERE id = ? AND redrive_attempts_left = ? AND message_id = ?",
    give_back: "
        UPDATE {dead_letters}
        SET redrive_attempts_left = redrive_attempts_left + 1, redrive_at = {after}
        WHERE id = ? AND redrive_attempts_left = ? AND message_id = ?",
    delete: "
        DELETE FROM {dead_letters}
        WHERE id = ?",
    import: "
        INSERT INTO {dead_letters} (consumer, reason, error, fingerprint, attempts, redrive_at,
            redrive_attempts_left, {stored_message})
        SELECT ?, 'imported', 'imported, not tried yet', ?, 0, {now},
            ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
        FROM (SELECT 1) one
        WHERE NOT EXISTS (
                SELECT 1
                FROM {dead_letters}
                WHERE event_id = ? AND consumer = ? AND message_id = ?)
            AND NOT EXISTS (
                SELECT 1
                FROM {inbox}
                WHERE consumer = ? AND message_id = ?)",
    find: heads!(
        "
        WHERE id = ?"
    ),
    of_event: heads!(
        "
        WHERE event_id = ?
        ORDER BY id
        LIMIT ?"
    ),
    next_consumer: "
        SELECT min(consumer) AS name
        FROM {dead_letters}
        WHERE consumer > ?",
    next_group: "
        SELECT min(fingerprint) AS name
        FROM {dead_letters}
        WHERE consumer = ? AND fingerprint > ?",
    group_counts: "
        SELECT
            count(*) AS dead_letters,
            CAST(COALESCE(sum(CASE WHEN given_up_at > ? THEN 1 END), 0) AS {big_integer}) AS lately,
            CAST(COALESCE(sum(CASE WHEN redrive_attempts_left > 0 THEN 1 END), 0) AS {big_integer})
                AS redriven,
            max(given_up_at) AS last_given_up_at,
            (
                SELECT min(given_up_at)
                FROM {dead_letters} {by_index dead_letters_group}
                WHERE consumer = ? AND fingerprint = ?
            ) AS first_given_up_at
        FROM (
            SELECT given_up_at, redrive_attempts_left
            FROM {dead_letters} {by_index dead_letters_group}
            WHERE consumer = ? AND fingerprint = ?
            ORDER BY given_up_at DESC
            LIMIT ?
        ) newest",
    count_of_consumer: count!("consumer = ?"),
    count_of_group: count!("consumer = ? AND fingerprint = ?"),
    group_before: heads_of_group!(
        "
        WHERE consumer = ? AND fingerprint = ? AND given_up_at <= ? AND (given_up_at < ? OR id < ?)
        ORDER BY given_up_at DESC, id DESC
        LIMIT ?"
    ),
    group_after: heads_of_group!(
        "
        WHERE consumer = ? AND fingerprint = ? AND given_up_at >= ? AND (given_up_at > ? OR id > ?)
            AND given_up_at <= ?
        ORDER BY given_up_at, id
        LIMIT ?"
    ),
    consumer_before: heads_of_consumer!(
        "
        WHERE consumer = ? AND given_up_at <= ? AND (given_up_at < ? OR id < ?)
        ORDER BY given_up_at DESC, id DESC
        LIMIT ?"
    ),
    consumer_after: heads_of_consumer!(
        "
        WHERE consumer = ? AND given_up_at >= ? AND (given_up_at > ? OR id > ?) AND given_up_at <= ?
        ORDER BY given_up_at, id
        LIMIT ?"
    ),
};
