//! Idempotency keys and webhooks.
use super::area;

area! {
    /// Idempotency keys, by primary key where nothing else is named.
    Operations {
        /// Takes a key. A key is free when it has expired; for the request that it belongs to also when the
        /// lease has ended. An unfinished operation does not expire: a vendor may have been charged.
        claim,
        /// Locks a key, where one statement cannot take it. Bind: slot.
        lock,
        /// Takes a key that has a row, likewise. Binds: those of `claim`, slot.
        take_again,
        /// The state of a key that was taken, likewise. Bind: slot.
        claimed,
        /// One key. Bind: slot.
        find,
        /// Stores the response and ends the operation. An insert that always conflicts, so that it goes by
        /// the primary key even with a plan from when the table was empty.
        complete,
        /// Begins the last transaction of a leased operation. Its commit is flushed, because the response is
        /// sent after it. Binds: slot, owner.
        enter,
        /// Saves a recovery point. Flushed. Binds: recovery point, lease, slot, owner.
        save,
        /// The time, if the lease is still the owner's. Binds: slot, owner.
        token_time,
        /// Saves which vendor tokens were given out. Flushed. Binds: tokens, slot, owner.
        save_tokens,
        /// Renews the lease. Binds: lease, slot, owner.
        renew,
        /// Ends the lease. The new owner is nobody, so that a late renewal finds nothing. Binds: new owner,
        /// uncounted attempts, slot, owner.
        release,
        /// Deletes a key that did nothing. Binds: slot, owner.
        forget,
        /// Unfinished operations that nobody works on, by `idempotency_keys_unfinished`. Bind: limit.
        unfinished,
        /// How many there are, up to a limit, by the same. Bind: limit.
        count_unfinished,
        /// Deletes one of them. Bind: slot.
        delete_unfinished,
        /// How many keys of a principal are live, up to a limit, by `idempotency_keys_principal`. Binds:
        /// tenant, principal, limit.
        count_live,
        /// The last slot of a page. Binds: slot to begin after, limit.
        erase_page,
        /// Blanks a page. Binds: slot to begin after, last slot, tenant, principal or NULL.
        erase,
        /// Deletes expired keys, by `idempotency_keys_expires_at`. Bind: limit.
        purge,
    }
}

area! {
    /// Webhooks that were received, by primary key.
    Webhooks {
        /// Writes a receipt, after waiting up to 2 s for another copy. Binds: provider, endpoint, id, basis
        /// of the id, payload hash, secret, retention.
        receive,
        /// Deletes an expired receipt, where `receive` does not replace it. Binds: provider, endpoint, id.
        forget_expired,
        /// The payload hash of an earlier copy, and whether its transaction was committed before its end.
        /// Binds: provider, endpoint, id.
        payload_hash,
        /// Ends a receipt, where a handler can commit it before. Binds: provider, endpoint, id.
        end,
        /// Deletes expired receipts, by `webhook_receipts_expires_at`. Bind: limit.
        purge,
    }
}
