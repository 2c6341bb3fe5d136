//! The statements that read the log, what waits for it, and claims, for tests that look at their plans and
//! for measurements.
use crate::{Dialect, Store};

/// The next messages of a window. Binds: after, p, w, floor, ceiling, limit, run.
pub fn page<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().log_page.as_str().to_owned()
}

/// The newest tick, made if there is something beyond the last, as for a reader that has read all. No binds.
pub fn newest<DB: Dialect>(store: &Store<DB>) -> String {
    let bind = if DB::NUMBERED_BINDS { "$1" } else { "?" };
    store.statements().log_newest.as_str().replace(bind, "9223372036854775807")
}

/// Between which positions the newcomers of a window lie. Binds: p, w.
pub fn bounds<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().log_bounds.as_str().to_owned()
}

/// When the next message is due that waits. No binds.
pub fn delayed_next<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().delayed_next.as_str().to_owned()
}

/// What moves due messages to the log. Bind: how many.
pub fn move_due<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().move_due.as_str().to_owned()
}

/// Which cursors have yet to settle a message that is old. Bind: its age in microseconds.
pub fn lagging<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().lagging.as_str().to_owned()
}

/// How many messages a reader has not settled. Binds: its name, how many are counted at most.
pub fn backlog<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().backlog.as_str().to_owned()
}

/// The first parked message of each key, of a destination. Binds: the destination, three times.
pub fn parked_heads<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().parked_heads.as_str().to_owned()
}

/// The same of a consumer. Binds: consumer and partition, three times.
pub fn deliveries_heads<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().deliveries_heads.as_str().to_owned()
}

/// The replay that is to be executed. Bind: the destination.
pub fn replay_next<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().replay_next.as_str().to_owned()
}

/// Up to when the oldest claims of a consumer were made. Binds: consumer, consumer, less than this many microseconds from
/// now, how many.
pub fn purgeable_claims<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().purgeable_claims.as_str().to_owned()
}

/// What claims one message. Binds: consumer, message id, source, event id, hash of the payload, time.
pub fn claim_one<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().claim_one.as_str().to_owned()
}

/// What deletes claims. Binds: consumer, claimed up to when, of messages up to which time, how many.
pub fn purge_claims<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().purge_claims.as_str().to_owned()
}

/// What is asked before a claim commits. Bind: the answer of the claim.
#[cfg(feature = "postgres")]
pub const ALLOW_COMMIT: &str = crate::dialect::postgres::ALLOW_COMMIT;
