//! Claims, attempts, dead letters and partitions of consumers.
use crate::texts::{Consumers, Inbox, Partitions};

pub(in crate::dialect) const INBOX: Inbox = Inbox {
    claim: "",
    claim_one: "",
    known_claims: "",
    purge_mark: "",
    begin_and_claim: "",
    bury_open_claim: "",
    delete_open_claim: "",
    end_claims: "",
    allow_commit: "",
    guard: "",
    commit_at_once: "",
    find_claim: "
        SELECT payload_hash, state
        FROM {inbox}
        WHERE consumer = ? AND message_id = ?",
    set_state: "
        UPDATE {inbox}
        SET state = ?
        WHERE consumer = ? AND message_id = ?",
    delete_final_claim: "
        DELETE FROM {inbox}
        WHERE consumer = ? AND message_id = ? AND state <> 'processed'",
    failures: "
        SELECT failures
        FROM {attempts}
        WHERE consumer = ? AND message_id = ?",
    set_role: "",
    record_failure: "
        INSERT INTO {attempts} AS a (consumer, message_id, failures, last_error)
        VALUES (?, ?, 1, ?)
        ON CONFLICT (consumer, message_id) DO UPDATE
        SET failures = a.failures + 1, starts = 0, last_error = excluded.last_error,
            last_failed_at = excluded.last_failed_at",
    delete_attempts: "
        DELETE FROM {attempts}
        WHERE consumer = ? AND message_id = ?",
    record_start: "
        INSERT INTO {attempts} AS a (consumer, message_id, failures, last_error, starts)
        SELECT ?, ?, 0, '', 1
        WHERE {bounded_wait} AND {unflushed}
            AND NOT EXISTS (SELECT 1 FROM {inbox} WHERE consumer = ? AND message_id = ?)
        ON CONFLICT (consumer, message_id) DO UPDATE
        SET starts = 1
        WHERE a.starts = 0",
    record_lone_start: "
        UPDATE {attempts}
        SET starts = starts + 1
        WHERE {bounded_wait} AND consumer = ? AND message_id = ?",
    starts: "
        SELECT starts
        FROM {attempts}
        WHERE consumer = ? AND message_id = ?",
    delete_start: "
        DELETE FROM {attempts}
        WHERE {bounded_wait} AND consumer = ? AND message_id = ? AND failures = 0",
    end_starts: "
        UPDATE {attempts}
        SET starts = 0
        WHERE {bounded_wait} AND consumer = ? AND message_id = ?",
    advance_purge_mark: "
        INSERT INTO {purge_marks} AS m (consumer, time)
        VALUES (?, ?)
        ON CONFLICT (consumer) DO UPDATE
        SET time = excluded.time
        WHERE excluded.time > m.time",
    purge_marks_since: "
        SELECT consumer, time
        FROM {purge_marks}
        WHERE time >= ?
        ORDER BY consumer",
    purgeable_claims: "
        SELECT max(claimed_at) AS newest_claim, max(COALESCE(time, claimed_at)) AS newest_message
        FROM (
            SELECT claimed_at, time
            FROM {inbox}
            WHERE consumer = ? AND claimed_at < (SELECT {after})
            ORDER BY claimed_at
            LIMIT ?
        ) oldest",
    purge_claims: "
        DELETE FROM {inbox}
        WHERE consumer = ?1
            AND message_id IN (
                SELECT message_id
                FROM {inbox}
                WHERE consumer = ?1 AND claimed_at <= ?2 AND COALESCE(time, claimed_at) <= ?3
                ORDER BY claimed_at
                LIMIT ?4)
            AND EXISTS (SELECT 1 FROM {purge_marks} WHERE consumer = ?1 AND time >= ?3)",
    purgeable_attempts: "",
    purge_attempts: "
        DELETE FROM {attempts} AS d
        WHERE (consumer, message_id) IN (
            SELECT a.consumer, a.message_id
            FROM {attempts} a
            WHERE a.consumer = ?
                AND (EXISTS (
                        SELECT 1
                        FROM {inbox} i
                        WHERE i.consumer = a.consumer AND i.message_id = a.message_id)
                    OR a.last_failed_at < (SELECT {after}) AND a.starts = 0)
            LIMIT ?)
            AND (EXISTS (
                    SELECT 1
                    FROM {inbox} i
                    WHERE i.consumer = d.consumer AND i.message_id = d.message_id)
                OR d.last_failed_at < (SELECT {after}) AND d.starts = 0)",
    oldest_parked: "
        SELECT min(time)
        FROM (
            SELECT time
            FROM {parked_deliveries}
            WHERE consumer = ?
            UNION ALL
            SELECT o.time
            FROM {parked_messages} p
            JOIN {outbox} o ON o.position = p.position
            WHERE p.destination = ? AND p.state <> 'dead'
        ) waiting",
    supersede: "
        INSERT INTO {superseded_claims} (consumer, message_id, replay, state, payload_hash, claimed_at)
        SELECT a.consumer, a.message_id, a.replay, i.state, i.payload_hash, i.claimed_at
        FROM (SELECT ? AS consumer, ? AS message_id, ? AS replay) a
        LEFT JOIN {inbox} i ON i.consumer = a.consumer AND i.message_id = a.message_id
        WHERE {bounded_wait}
        ON CONFLICT DO NOTHING",
    delete_superseded: "
        DELETE FROM {inbox}
        WHERE consumer = ? AND message_id = ? AND claimed_at < ?",
    purge_superseded: "
        DELETE FROM {superseded_claims}
        WHERE (consumer, message_id, replay) IN (
            SELECT consumer, message_id, replay
            FROM {superseded_claims}
            WHERE consumer = ? AND superseded_at < (SELECT {after})
            LIMIT ?)",
    claims_of_message: "
        SELECT c.consumer, i.state, i.claimed_at, a.failures, a.last_error,
            (
                SELECT count(*)
                FROM {superseded_claims} s
                WHERE s.consumer = c.consumer AND s.message_id = ?
            ) AS superseded
        FROM {consumers} c
        LEFT JOIN {inbox} i ON i.consumer = c.consumer AND i.message_id = ?
        LEFT JOIN {attempts} a ON a.consumer = c.consumer AND a.message_id = ?
        ORDER BY c.consumer",
    event_of_message: "
        SELECT i.event_id
        FROM {consumers} c
        JOIN {inbox} i ON i.consumer = c.consumer AND i.message_id = ?
        LIMIT 1",
};

pub(in crate::dialect) const CONSUMERS: Consumers = Consumers {
    heartbeat: "
        INSERT INTO {consumers} (consumer, address)
        VALUES (?, ?)
        ON CONFLICT (consumer) DO UPDATE
        SET seen_at = {now}, address = excluded.address
        RETURNING pause_reason",
    forget: "
        DELETE FROM {consumers}
        WHERE consumer = ?",
    pause_reason: "
        SELECT pause_reason
        FROM {consumers}
        WHERE consumer = ?",
    set_pause: "
        UPDATE {consumers}
        SET pause_reason = ?
        WHERE consumer = ?",
    list: "
        SELECT c.consumer, c.seen_at, {now} AS now, c.pause_reason,
            COALESCE(l.unowned, 0) AS unowned_partitions, l.since AS unowned_since
        FROM {consumers} c
        LEFT JOIN (
            SELECT consumer, count(*) AS unowned, min(lease_until) AS since
            FROM {partition_leases}
            WHERE lease_until <= {now}
            GROUP BY consumer
        ) l ON l.consumer = c.consumer
        ORDER BY c.consumer",
    names: "
        SELECT consumer
        FROM {consumers}
        ORDER BY consumer",
    // The counts read an index alone. With `parked_at` they would read the table, and perhaps all of it.
    backlog: "
        SELECT {now} AS now, c.seen_at, c.pause_reason, c.address, d.count AS parked_deliveries,
            m.count AS parked_messages, l.count AS dead_letters, l.oldest AS oldest_dead_letter,
            (SELECT parked_at FROM {parked_deliveries} WHERE id = d.first) AS oldest_delivery,
            (
                SELECT parked_at
                FROM {parked_messages}
                WHERE destination = {log_reader} AND position = m.first
            ) AS oldest_message,
            (
                SELECT claimed_at
                FROM {inbox}
                WHERE consumer = ?
                ORDER BY claimed_at DESC
                LIMIT 1
            ) AS newest_claim
        FROM (
                SELECT count(*) AS count, min(id) AS first
                FROM (SELECT id FROM {parked_deliveries} WHERE consumer = ? LIMIT ?) counted
            ) d
        CROSS JOIN (
                SELECT count(*) AS count, min(position) AS first
                FROM (
                    SELECT position
                    FROM {parked_messages}
                    WHERE destination = {log_reader} AND state = 'waiting'
                    ORDER BY position
                    LIMIT ?
                ) counted
            ) m
        CROSS JOIN (
                SELECT count(*) AS count, min(given_up_at) AS oldest
                FROM (
                    SELECT given_up_at
                    FROM {dead_letters}
                    WHERE consumer = ?
                    ORDER BY given_up_at
                    LIMIT ?
                ) counted
            ) l
        LEFT JOIN {consumers} c ON c.consumer = ?",
};

pub(in crate::dialect) const PARTITIONS: Partitions = Partitions {
    renew_member: "
        INSERT INTO {partition_members} (consumer, member, lease_until, lease)
        VALUES (?, ?, {after}, ?)
        ON CONFLICT (consumer, member) DO UPDATE
        SET lease_until = excluded.lease_until, lease = excluded.lease",
    delete_expired_members: "
        DELETE FROM {partition_members}
        WHERE consumer = ? AND {expired}",
    delete_member: "
        DELETE FROM {partition_members}
        WHERE consumer = ? AND member = ?",
    members: "
        SELECT member
        FROM {partition_members}
        WHERE consumer = ?
        ORDER BY member",
    create: "
        INSERT INTO {partition_leases} (consumer, partition, types, lease_until)
        VALUES (?, ?, ?, {now})
        ON CONFLICT DO NOTHING",
    other_types: "
        SELECT types
        FROM {partition_leases}
        WHERE consumer = ? AND types <> ?
        LIMIT 1",
    renew: "
        UPDATE {partition_leases}
        SET lease_until = {after}
        WHERE consumer = ? AND owner = ?
        {returning partition, epoch}",
    free: "
        SELECT partition
        FROM {partition_leases}
        WHERE consumer = ? AND {expired}
        ORDER BY partition",
    list: "
        SELECT partition, types, log, sequence, last_message, owner, {expired} AS is_expired
        FROM {partition_leases}
        WHERE consumer = ?
        ORDER BY partition",
    take: "
        UPDATE {partition_leases}
        SET owner = ?, epoch = epoch + 1, lease_until = {after}, lease = ?
        WHERE consumer = ? AND partition = ? AND {expired}
        {returning epoch, log, sequence, last_message}",
    read: "",
    owned: "",
    settle: "
        UPDATE {partition_leases}
        SET log = ?, sequence = ?, last_message = ?
        WHERE consumer = ? AND partition = ? AND epoch = ? AND {is_server_run}",
    release: "
        UPDATE {partition_leases}
        SET owner = NULL, lease_until = {now}
        WHERE consumer = ? AND partition = ? AND epoch = ? AND {is_server_run}",
    share_fence: "",
    // The one writer is the only one inside a transaction.
    fence: "
        SELECT EXISTS (SELECT 1 FROM {partition_leases} WHERE consumer = ? AND partition = ? AND epoch = ?)
            AND {is_server_run} AND ? > 0",
    wait_for_transactions: "",
};
