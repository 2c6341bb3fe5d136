//! Cursors.
use super::super::portable;
use crate::texts::Cursors;

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
