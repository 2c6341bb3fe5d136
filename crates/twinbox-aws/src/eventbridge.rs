//! EventBridge, the classic event buses.
mod classify;
mod connect;
mod destination;
pub(crate) mod entry;
mod facts;
mod json;
mod options;
mod pack;
mod request;

pub use facts::BusFacts;
pub use options::EventBridgeOptions;

use crate::Error;
use std::sync::Arc;

/// An event bus. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventBridge {
    options: Arc<EventBridgeOptions>,
}

impl EventBridge {
    /// The bus of this name or ARN with the defaults of [`EventBridgeOptions`].
    ///
    /// Does no I/O: a service that cannot be reached is no error here, and is retried by whoever uses it.
    ///
    /// # Errors
    /// This cannot be a bus.
    pub fn new(bus: &str) -> Result<Self, Error> {
        Self::with_options(EventBridgeOptions::new(bus))
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions), naming the option.
    pub fn with_options(options: EventBridgeOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { options: Arc::new(options) })
    }
}
