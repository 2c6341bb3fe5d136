//! The link between a store and a destination.
use crate::{circuit_breaker::CircuitBreakerStatus, counters::Counters, error::Error, options::RelayOptions};
use std::sync::Arc;
use twinbox_core::{Destination, Publisher};
use twinbox_log::{Log, ReaderOptions, Shares};
use twinbox_sql::{Dialect, Store};
use uuid::Uuid;

/// A store, a destination, and how a relay moves messages from one to the other.
pub(crate) struct Link<DB: Dialect> {
    pub(crate) store: Store<DB>,
    pub(crate) destination: Arc<dyn Destination>,
    pub(crate) options: RelayOptions,
    /// Identifies this relay as the owner of leases.
    pub(crate) owner: Uuid,
    /// The destinations of this process.
    pub(crate) shares: Shares,
    pub(crate) counters: Counters,
    pub(crate) breaker: CircuitBreakerStatus,
}

impl<DB: Dialect> Link<DB> {
    pub(crate) fn reader_options(&self) -> ReaderOptions {
        self.options.of_reader(&*self.destination)
    }

    /// Connects to the destination with its secret.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Publisher>, Error> {
        let secret = Log::new(&self.store).destination_secret(self.destination.id()).await?;
        Ok(self.destination.connect(&secret).await?)
    }
}
