//! Parked messages and deliveries.
use super::super::portable;
use crate::texts::{Deliveries, ParkedMessages, ParkedQueue};

pub(super) const PARKED_MESSAGES: ParkedMessages = ParkedMessages {
    // The assignments run in order, so the state, which the others ask for, comes last.
    write: "
        INSERT INTO {parked_messages} (destination, position, key, type, state, blocks_key, attempts,
            next_attempt_at, first_error, last_error, fingerprint)
        SELECT ?, r.position, r.key, r.type, r.state, r.blocks_key, r.attempts, {after r.delay},
            r.error, r.error, r.fingerprint
        FROM {parked_rows}
        WHERE NOT r.again OR EXISTS (
            SELECT 1
            FROM {parked_messages} k
            WHERE k.destination = ? AND k.position = r.position)
        ON DUPLICATE KEY UPDATE
            blocks_key = IF({parked_messages}.state = 'waiting', VALUES(blocks_key),
                {parked_messages}.blocks_key),
            attempts = IF({parked_messages}.state = 'waiting', VALUES(attempts), {parked_messages}.attempts),
            next_attempt_at = IF({parked_messages}.state = 'waiting', VALUES(next_attempt_at),
                {parked_messages}.next_attempt_at),
            last_error = IF({parked_messages}.state = 'waiting', VALUES(last_error),
                {parked_messages}.last_error),
            fingerprint = IF({parked_messages}.state = 'waiting', VALUES(fingerprint),
                {parked_messages}.fingerprint),
            parked_at = IF({parked_messages}.state = 'waiting' AND VALUES(state) <> 'waiting', {now},
                {parked_messages}.parked_at),
            state = IF({parked_messages}.state = 'waiting', VALUES(state), {parked_messages}.state)",
    ..portable::PARKED_MESSAGES
};

pub(super) const DELIVERIES: Deliveries = Deliveries {
    insert: "
        INSERT INTO {parked_deliveries} (consumer, partition, next_attempt_at, {stored_message})
        VALUES (?, ?, {after}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON DUPLICATE KEY UPDATE id = id",
    ..portable::DELIVERIES
};

// A DELETE of one table would look at each of its rows. One that names the table first is planned as a join.
pub(super) const DESTINATION_QUEUE: ParkedQueue = ParkedQueue {
    delete: "
        DELETE p
        FROM {parked_messages} p
        WHERE p.destination = ? AND p.position {among}",
    ..portable::DESTINATION_QUEUE
};

pub(super) const DELIVERY_QUEUE: ParkedQueue = ParkedQueue {
    delete: "
        DELETE p
        FROM {parked_deliveries} p
        WHERE p.consumer = ? AND p.partition = ? AND p.id {among}",
    ..portable::DELIVERY_QUEUE
};
