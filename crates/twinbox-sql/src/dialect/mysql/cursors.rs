//! Cursors and replays.
use super::super::portable;
use crate::texts::{Cursors, Replays};

pub(super) const CURSORS: Cursors = Cursors {
    create: "
        INSERT INTO {cursors} (destination, p, w, partitions, started_at)
        VALUES (?, ?, ?, ?, {now})
        ON DUPLICATE KEY UPDATE destination = VALUES(destination)",
    create_secret: "
        INSERT IGNORE INTO {destination_secrets} (destination, secret)
        VALUES (?, ?)",
    ..portable::CURSORS
};

pub(super) const REPLAYS: Replays = Replays {
    delete_parked: "
        DELETE p
        FROM {replays} r
        JOIN {parked_messages} p ON p.destination = {replay_cursor r.id}
        WHERE r.state <> 'running' AND r.ended_at < {after}",
    ..portable::REPLAYS
};
