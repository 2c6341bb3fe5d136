//! Statements that only operators need.
use super::area;

area! {
    /// Blanking the payloads of a key, a page of a table at a time, by primary key. The pages read no
    /// payload. Binds of a page: number to begin after, limit; of an update: payload, headers, key, number to
    /// begin after, last number.
    Redaction {
        /// The last number of a page of delayed messages.
        delayed_page,
        /// Blanks delayed messages.
        delayed,
        /// The last number of a page of the log.
        log_page,
        /// Blanks messages of the log. It takes turns with the purge, because both lock many rows in
        /// different orders.
        log,
        /// The last number of a page of parked deliveries.
        deliveries_page,
        /// Blanks parked deliveries.
        deliveries,
        /// The last number of a page of dead letters.
        dead_letters_page,
        /// Blanks dead letters.
        dead_letters,
    }
}

area! {
    /// Messages that a program has still to read, counted by type, version and codec.
    Backlog {
        /// Delayed messages.
        delayed,
        /// Messages that a destination has not settled. Binds: p, w, position, destination.
        pending,
        /// Messages at or after a time. Bind: time.
        published_since,
        /// Parked messages, parked deliveries and dead letters.
        parked_and_dead,
    }
}

area! {
    /// Acts of operators.
    Audit {
        /// Records an act before it is done. Binds: actor, action, target, reason.
        begin,
        /// Records that it was done. Binds: count, id.
        end,
        /// The newest. Bind: limit.
        list,
    }
}
