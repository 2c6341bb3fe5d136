//! The keys of clients that call vendors.
use super::area;

area! {
    /// Keys of clients, by primary key where nothing else is named.
    ClientKeys {
        /// Makes a key, unless the business action has one, in a transaction whose commit is flushed. Binds:
        /// operation, business id, key.
        begin,
        /// One key, with the microseconds since it was made. Binds: operation, business id.
        find,
        /// Moves a key from one state to another, in a transaction whose commit is flushed. A caller that was
        /// late has another key, and changes nothing. Binds: new state, new key, operation, business id, old
        /// state, old key.
        change,
        /// Ends a key. Binds: the vendor's reference, operation, business id, key.
        finish,
        /// Deletes keys that ended, by `client_keys_ended_at`. Binds: microseconds since their end, limit.
        purge,
    }
}
