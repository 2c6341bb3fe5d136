//! The broker: a server or cluster, and a stream on it.
use crate::{error::Error, options::NatsOptions};
use std::sync::Arc;

/// The name of the messaging system for traces.
pub(crate) const SYSTEM: &str = "nats";

/// NATS JetStream as destination and as transport: the connection options and the stream. Cheap to clone.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use twinbox_core::Destination as _;
/// use twinbox_nats::{Nats, StreamOptions};
///
/// let nats = Nats::new("nats://localhost:4222")?;
/// nats.provision(&StreamOptions::default()).await?; // once, before the first relay or consumer starts
/// let secret = twinbox_core::destination::DestinationSecret::random()?;
/// let publisher = nats.connect(&secret).await?; // a relay does this by itself
/// publisher.health().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Nats {
    pub(crate) options: Arc<NatsOptions>,
}

impl Nats {
    /// Creates the broker for the server at `url`, with the defaults of [`NatsOptions`].
    ///
    /// Does no I/O. A server that is down causes no error here; relays and consumers retry.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions): the URL is invalid.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::with_options(NatsOptions::new(url))
    }

    /// Creates the broker for the servers and the stream of `options`. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions); the text names the option.
    pub fn with_options(options: NatsOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { options: Arc::new(options) })
    }

    /// Returns texts for an operator about connections that work and are a risk: one for each server on
    /// another machine to which [`allow_plain`](NatsOptions::allow_plain) allows a connection without TLS.
    /// Does no I/O but to read the file of the URL.
    ///
    /// # Errors
    /// The file cannot be read, or holds no URL.
    pub async fn warnings(&self) -> Result<Vec<String>, Error> {
        self.options.with_files().await?.warnings()
    }

    /// Returns a broker for each of the [`streams`](NatsOptions::streams), which has that stream alone. With
    /// one stream: this one.
    pub fn each_stream(&self) -> Vec<Self> {
        let each = self.options.each_stream().into_iter();
        each.map(|options| Self { options: Arc::new(options) }).collect()
    }
}
