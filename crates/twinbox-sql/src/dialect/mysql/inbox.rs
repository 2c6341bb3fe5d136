//! Claims, attempts, dead letters and partitions of consumers.
use super::{super::portable, fragments::numbers};
use crate::texts::{Consumers, DeadLetters, Inbox, Partitions};

pub(super) const INBOX: Inbox = Inbox {
    claim: "
        INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, time, claimed_at)
        VALUES (?, ?, ?, ?, ?, 'open', ?, GREATEST({now}, ?))",
    known_claims: "
        SELECT message_id
        FROM {inbox}
        WHERE consumer = ? AND message_id IN",
    // One that a redrive left open is of a handler that has committed by itself.
    delete_final_claim: "
        DELETE FROM {inbox}
        WHERE consumer = ? AND message_id = ? AND state NOT IN ('open', 'processed')",
    bury_open_claim: "
        UPDATE {inbox}
        SET state = 'dead'
        WHERE consumer = ? AND message_id = ? AND state = 'open'",
    delete_open_claim: "
        DELETE FROM {inbox}
        WHERE consumer = ? AND message_id = ? AND state = 'open'",
    end_claims: "
        UPDATE {inbox}
        SET state = 'processed'
        WHERE state = 'open' AND consumer = ? AND message_id IN",
    commit_at_once: "
        RELEASE SAVEPOINT twinbox;
        GUARD;
        COMMIT",
    purge_mark: "
        SELECT time
        FROM {purge_marks}
        WHERE consumer = ?",
    record_failure: "
        INSERT INTO {attempts} (consumer, message_id, failures, last_error)
        VALUES (?, ?, 1, ?)
        ON DUPLICATE KEY UPDATE failures = failures + 1, starts = 0, last_error = VALUES(last_error),
            last_failed_at = {now}",
    record_start: "
        INSERT INTO {attempts} (consumer, message_id, failures, last_error, starts)
        SELECT b.consumer, b.message_id, 0, '', 1
        FROM (
            SELECT ? AS consumer, CAST(? AS BINARY(16)) AS message_id, ? AS claimer,
                CAST(? AS BINARY(16)) AS claimed
        ) b
        WHERE {bounded_wait}
            AND NOT EXISTS (SELECT 1 FROM {inbox} WHERE consumer = b.claimer AND message_id = b.claimed)
            AND NOT EXISTS (
                SELECT 1
                FROM {attempts} a
                WHERE a.consumer = b.consumer AND a.message_id = b.message_id AND a.starts > 0)
        ON DUPLICATE KEY UPDATE starts = 1",
    advance_purge_mark: "
        INSERT INTO {purge_marks} (consumer, time)
        VALUES (?, ?)
        ON DUPLICATE KEY UPDATE time = GREATEST(time, VALUES(time))",
    purge_claims: "
        DELETE d
        FROM {inbox} d
        JOIN (
            SELECT i.consumer, i.message_id
            FROM (SELECT ? AS consumer, ? AS newest_claim, ? AS newest_message) b
            JOIN {purge_marks} m ON m.consumer = b.consumer AND m.time >= b.newest_message
            JOIN {inbox} i ON i.consumer = b.consumer AND i.claimed_at <= b.newest_claim
                AND COALESCE(i.time, i.claimed_at) <= b.newest_message
            ORDER BY i.claimed_at
            LIMIT ?
        ) old ON old.consumer = d.consumer AND old.message_id = d.message_id
        WHERE {bounded_wait}",
    purgeable_attempts: "
        SELECT a.message_id
        FROM {attempts} a
        WHERE a.consumer = ?
            AND (EXISTS (
                    SELECT 1
                    FROM {inbox} i
                    WHERE i.consumer = a.consumer AND i.message_id = a.message_id)
                OR a.last_failed_at < {after} AND a.starts = 0)
        LIMIT ?",
    purge_attempts: "
        DELETE d
        FROM {attempts} d
        WHERE d.consumer = ?
            AND (EXISTS (
                    SELECT 1
                    FROM {inbox} i
                    WHERE i.consumer = d.consumer AND i.message_id = d.message_id)
                OR d.last_failed_at < {after} AND d.starts = 0)
            AND d.message_id IN",
    purge_superseded: "
        DELETE FROM {superseded_claims}
        WHERE {bounded_wait} AND consumer = ? AND superseded_at < {after}
        LIMIT ?",
    supersede: "
        INSERT IGNORE INTO {superseded_claims} (consumer, message_id, replay, state, payload_hash, claimed_at)
        SELECT a.consumer, a.message_id, a.replay, i.state, i.payload_hash, i.claimed_at
        FROM (
            SELECT ? AS consumer, CAST(? AS BINARY(16)) AS message_id, CAST(? AS BINARY(16)) AS replay
        ) a
        LEFT JOIN {inbox} i ON i.consumer = a.consumer AND i.message_id = a.message_id",
    ..portable::INBOX
};

pub(super) const CONSUMERS: Consumers = Consumers {
    heartbeat: "
        INSERT INTO {consumers} (consumer, address)
        VALUES (?, ?)
        ON DUPLICATE KEY UPDATE seen_at = {now}, address = VALUES(address)",
    ..portable::CONSUMERS
};

pub(super) const DEAD_LETTERS: DeadLetters = DeadLetters {
    due_redrives: "
        SELECT {dead_letter}, redrive_attempts_left - 1 AS redrive_attempts_left
        FROM {dead_letters} d
        WHERE consumer = ? AND redrive_attempts_left > 0 AND redrive_at <= {now}
            AND NOT (? AND EXISTS (
                SELECT 1
                FROM {dead_letters} b
                WHERE b.consumer = d.consumer AND b.key = d.key AND b.id < d.id
                    AND b.redrive_attempts_left > 0 AND b.redrive_at > {now}))
        ORDER BY redrive_at
        LIMIT ?
        FOR UPDATE SKIP LOCKED",
    hold: "
        UPDATE {dead_letters}
        SET redrive_at = redrive_at
        WHERE id = ? AND redrive_attempts_left = ? AND message_id = ?",
    take_redriven: concat!(
        "
        UPDATE (SELECT {after} AS lease_end) b
        JOIN ",
        numbers!(),
        " u
        JOIN {dead_letters} d ON d.id = u.n
        SET d.redrive_at = b.lease_end, d.redrive_attempts_left = d.redrive_attempts_left - 1"
    ),
    ..portable::DEAD_LETTERS
};

pub(super) const PARTITIONS: Partitions = Partitions {
    renew_member: "
        INSERT INTO {partition_members} (consumer, member, lease_until, lease)
        VALUES (?, ?, {after}, ?)
        ON DUPLICATE KEY UPDATE lease_until = VALUES(lease_until), lease = VALUES(lease)",
    create: "
        INSERT INTO {partition_leases} (consumer, partition, types, lease_until)
        VALUES (?, ?, ?, {now})
        ON DUPLICATE KEY UPDATE consumer = VALUES(consumer)",
    read: "
        SELECT epoch, log, sequence, last_message
        FROM {partition_leases}
        WHERE consumer = ? AND partition = ?",
    owned: "
        SELECT partition, epoch
        FROM {partition_leases}
        WHERE consumer = ? AND owner = ?",
    share_fence: "
        SELECT 1
        FROM {partition_fences}
        WHERE consumer = ? AND partition = ?
        LOCK IN SHARE MODE",
    // The owner's transactions share the row, and a takeover locks it alone.
    wait_for_transactions: "
        INSERT INTO {partition_fences} (consumer, partition)
        VALUES (?, ?)
        ON DUPLICATE KEY UPDATE consumer = VALUES(consumer)",
    ..portable::PARTITIONS
};
