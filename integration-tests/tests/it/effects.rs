//! Side effects: planned in a transaction, sent once.
#[cfg(feature = "programs")]
mod client;
#[cfg(feature = "programs")]
mod compensation;
mod drift;
mod egress;
#[cfg(feature = "programs")]
mod encryption;
#[cfg(feature = "programs")]
mod example;
mod jobs;
#[cfg(feature = "postgres")]
mod load;
mod planning;
#[cfg(feature = "programs")]
mod recovery;
#[cfg(feature = "postgres")]
mod roles;
mod sending;
mod times;
#[cfg(feature = "http")]
mod webhooks;
