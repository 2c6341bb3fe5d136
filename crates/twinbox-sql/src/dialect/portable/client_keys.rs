//! The keys of clients that call vendors.
use crate::texts::ClientKeys;

pub(in crate::dialect) const CLIENT_KEYS: ClientKeys = ClientKeys {
    begin: "
        INSERT INTO {client_keys} (operation, business_id, key)
        VALUES (?, ?, ?)
        {unless_there operation, business_id}
        {returning_flushed}",
    find: "
        SELECT key, state, provider_ref, -{until created_at} AS age
        FROM {client_keys}
        WHERE operation = ? AND business_id = ?",
    change: "
        UPDATE {client_keys}
        SET state = ?, key = ?
        WHERE operation = ? AND business_id = ? AND state = ? AND key = ?
        {returning_flushed}",
    finish: "
        UPDATE {client_keys}
        SET state = 'done', provider_ref = ?, ended_at = {now}
        WHERE operation = ? AND business_id = ? AND key = ? AND state <> 'done'",
    purge: "
        DELETE FROM {client_keys}
        WHERE (operation, business_id) IN (
            SELECT operation, business_id
            FROM {client_keys}
            WHERE ended_at <= (SELECT {after -?})
            ORDER BY ended_at
            LIMIT ?)",
};
