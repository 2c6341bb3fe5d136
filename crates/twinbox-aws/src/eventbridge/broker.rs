//! The broker: an event bus.
use super::options::EventBridgeOptions;
use crate::error::Error;
use std::sync::Arc;

/// An event bus of Amazon EventBridge, to which a relay publishes. Cheap to clone.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use twinbox_aws::{EventBridge, EventBridgeOptions};
/// use twinbox_core::Destination as _;
///
/// let options = EventBridgeOptions::new("orders").region("eu-west-1");
/// let bus = EventBridge::with_options(options)?;
/// let secret = twinbox_core::destination::DestinationSecret::random()?;
/// let publisher = bus.connect(&secret).await?; // a relay does this by itself
/// publisher.health().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EventBridge {
    pub(crate) options: Arc<EventBridgeOptions>,
}

impl EventBridge {
    /// Creates the destination for a bus, by name or ARN, with the defaults of [`EventBridgeOptions`].
    ///
    /// Does no I/O. A service that cannot be reached causes no error here; relays retry.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions): the text is no name and no ARN of a
    /// bus.
    pub fn new(bus: &str) -> Result<Self, Error> {
        Self::with_options(EventBridgeOptions::new(bus))
    }

    /// Creates the destination for the bus of `options`. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions); the text names the option.
    pub fn with_options(options: EventBridgeOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { options: Arc::new(options) })
    }
}
