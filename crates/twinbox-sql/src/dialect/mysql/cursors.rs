//! Cursors, replays, and what operators do.
use super::super::portable;
use crate::texts::{Audit, Cursors, Replays};

pub(super) const CURSORS: Cursors = Cursors {
    create: "
        INSERT INTO {cursors} (destination, p, w, partitions, started_at)
        VALUES (?, ?, ?, ?, {now})
        ON DUPLICATE KEY UPDATE destination = VALUES(destination)",
    advance: "
        UPDATE {cursors}
        SET p = ?, w = ?, position = ?, ahead_p = ?, ahead_w = ?, lease_until = {after}
        WHERE destination = ? AND epoch = ? AND owner = ?
            AND p = ? AND w = ? AND position = ? AND {is_server_run}",
    ..portable::CURSORS
};

pub(super) const REPLAYS: Replays = Replays {
    create: "
        INSERT INTO {replays} (token, destination, consumer, selection, p, w, position, first_position,
            last_position, selected, rate, made_by, reason)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    delete_parked: "
        DELETE p
        FROM {replays} r
        JOIN {parked_messages} p ON p.destination = {replay_cursor r.id}
        WHERE r.state <> 'running' AND r.ended_at < {after}",
    ..portable::REPLAYS
};

pub(super) const AUDIT: Audit = Audit {
    begin: "
        INSERT INTO {audit} (operator, command, target, reason)
        VALUES (?, ?, ?, ?)",
    ..portable::AUDIT
};
