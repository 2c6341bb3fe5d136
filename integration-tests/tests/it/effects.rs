//! Side effects: planned in a transaction, sent once.
mod load;
mod planning;
mod recovery;
mod sending;
