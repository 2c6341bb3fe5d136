//! Side effects: planned in a transaction, sent once.
mod planning;
