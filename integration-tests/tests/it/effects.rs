//! Side effects: planned in a transaction, sent once.
mod client;
mod compensation;
mod drift;
mod egress;
mod example;
mod jobs;
mod load;
mod planning;
mod recovery;
mod roles;
mod sending;
mod webhooks;
