//! The SQL of single statements, for tests of query plans and for measurements. Not part of the API.
use twinbox_sql::{Dialect, Store};

/// Returns the SQL that reads the next messages of a window. Binds: after, p, w, floor, ceiling, limit, run.
pub fn page<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().log.page.as_str().to_owned()
}

/// Returns the SQL that finds the positions of the next messages of a window, where that is a statement of
/// its own. Binds: p, p, w, after, limit, after, floor, p, ceiling, w, limit, w, w, after, p, p, w, after.
pub fn positions<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().holes.positions.as_str().to_owned()
}

/// Returns the SQL with which a step of the purge begins. No binds.
pub fn lock_first_tick<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().holes.lock_first_tick.as_str().to_owned()
}

/// Returns the SQL that reads the newest tick, and makes one if a message lies beyond it, as for a reader
/// that has read everything. No binds.
pub fn newest<DB: Dialect>(store: &Store<DB>) -> String {
    let bind = if DB::NUMBERED_BINDS { "$1" } else { "?" };
    store.engine().sql().log.newest_tick.as_str().replace(bind, "9223372036854775807")
}

/// Returns the SQL that reads the positions between which the newcomers of a window lie. Binds: p, w, server
/// run.
pub fn bounds<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().log.window_bounds.as_str().to_owned()
}

/// Returns the SQL that reads the time of the next delayed message. No binds.
pub fn delayed_next<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().delayed.next.as_str().to_owned()
}

/// Returns the SQL that moves due messages to the log, or that finds them where another statement moves them.
/// Bind: limit; on Postgres also the bytes after which it takes no more.
pub fn move_due<DB: Dialect>(store: &Store<DB>) -> String {
    let sql = &store.engine().sql().delayed;
    let find = if sql.lock_due.is_absent() { &sql.move_due } else { &sql.lock_due };
    find.as_str().to_owned()
}

/// Returns the SQL that lists destinations that have not settled a message of an age. Bind: the age in
/// microseconds.
pub fn lagging<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().retention.lagging.as_str().to_owned()
}

/// Returns the SQL that counts the messages that a reader has not settled. Binds: the reader's name, limit.
pub fn backlog<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().log.backlog.as_str().to_owned()
}

/// Returns the SQL that reads the oldest parked message of each key of a destination. Binds: the destination,
/// three times.
pub fn parked_heads<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().destination_queue.heads.as_str().to_owned()
}

/// Returns the SQL that reads the oldest parked delivery of each key of a consumer. Binds: consumer and
/// partition, three times.
pub fn deliveries_heads<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().delivery_queue.heads.as_str().to_owned()
}

/// Returns the SQL that reads what waits for a consumer in its database. Binds: consumer, consumer,
/// consumer, limit, consumer, limit, consumer, limit, consumer.
pub fn consumer_backlog<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().consumers.backlog.as_str().to_owned()
}

/// Returns the SQL that reads the next replay of a destination. Bind: the destination.
pub fn replay_next<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().replays.next.as_str().to_owned()
}

/// Returns the SQL that reads up to when the oldest claims of a consumer were made. Binds: consumer,
/// consumer, less than this many microseconds from now, how many.
pub fn purgeable_claims<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().inbox.purgeable_claims.as_str().to_owned()
}

/// Returns the SQL that deletes claims. Binds: consumer, claimed up to when, of messages up to which time,
/// how many.
pub fn purge_claims<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().inbox.purge_claims.as_str().to_owned()
}

/// Returns the SQL that finds the end of a page of the log, backwards. Binds: position, limit.
pub fn page_end<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().log.page_end.as_str().to_owned()
}

/// Returns the SQL that reads the messages of a key in a page. Binds: key, position, position, limit.
pub fn messages_of_key_between<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().log.messages_of_key_between.as_str().to_owned()
}

/// Returns the SQL that finds the next group of a consumer's dead letters. Binds: consumer, fingerprint.
pub fn next_group<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().dead_letters.next_group.as_str().to_owned()
}

/// Returns the SQL that counts a group. Binds: time, consumer, fingerprint, consumer, fingerprint,
/// limit.
pub fn group_counts<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().dead_letters.group_counts.as_str().to_owned()
}

/// Returns the SQL that reads a group, the newest first. Binds: consumer, fingerprint, time, the same time,
/// id, limit.
pub fn group_before<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().dead_letters.group_before.as_str().to_owned()
}

/// Returns the SQL that reads the dead letters of a consumer, the newest first. Binds: consumer, time, the
/// same time, id, limit.
pub fn consumer_before<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().dead_letters.consumer_before.as_str().to_owned()
}

/// Returns the SQL that reads the dead letters of a consumer, the oldest first, up to a time. Binds:
/// consumer, time, the same time, id, last time, limit.
pub fn consumer_after<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().dead_letters.consumer_after.as_str().to_owned()
}

/// Returns the SQL that counts the dead letters of a consumer. Binds: consumer, time, limit.
pub fn count_of_consumer<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().dead_letters.count_of_consumer.as_str().to_owned()
}

/// Returns the SQL that counts the dead letters of a destination. Binds: destination, time, limit.
pub fn count_of_destination<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.count_of_destination.as_str().to_owned()
}

/// Returns the SQL that finds the next group of a destination. Binds: destination, fingerprint.
pub fn next_group_of_destination<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.next_group.as_str().to_owned()
}

/// Returns the SQL that counts a group of a destination. Binds: time, destination, fingerprint,
/// destination, fingerprint, limit.
pub fn group_counts_of_destination<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.group_counts.as_str().to_owned()
}

/// Returns the SQL that reads a group of a destination, the newest first. Binds: destination, fingerprint,
/// position, limit.
pub fn group_before_of_destination<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.group_before.as_str().to_owned()
}

/// Returns the SQL that reads the dead letters of a destination, the newest first. Binds: destination,
/// position, limit.
pub fn destination_before<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.destination_before.as_str().to_owned()
}

/// Returns the SQL that reads the dead letters of a destination, the oldest first. Binds: destination,
/// position, last time, limit.
pub fn destination_after<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.destination_after.as_str().to_owned()
}

/// Returns the SQL that finds the next destination with dead letters. Bind: name.
pub fn next_destination<DB: Dialect>(store: &Store<DB>) -> String {
    store.engine().sql().parked_messages.next_destination.as_str().to_owned()
}
