//! Side effects: planned in a transaction, sent once.
mod example;
mod load;
mod planning;
mod recovery;
mod sending;
