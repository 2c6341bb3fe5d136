//! NATS JetStream as a destination and a source for Twinbox.
//!
//! [`Nats`] is both: a [`Destination`](twinbox_core::Destination) for a relay and a
//! [`Transport`](twinbox_core::Transport) for consumers. It opens no connection by itself; every publisher
//! and every subscription has one of its own.
//!
//! ```no_run
//! # async fn run() -> Result<(), twinbox_nats::Error> {
//! use twinbox_nats::{Nats, NatsOptions, StreamOptions};
//!
//! let nats = Nats::with_options(NatsOptions::new("nats://localhost:4222").stream("EVENTS"))?;
//! nats.provision(&StreamOptions::default()).await?; // creates the stream or checks it
//! # Ok(())
//! # }
//! ```
//!
//! # On the wire
//!
//! - Subject `<prefix>.<n>.<type>`, where n is the partition of the key: `events.3.>` is a partition,
//!   `events.*.orders.placed` a type.
//! - CloudEvents 1.0 in binary mode: each attribute in a header `ce-<name>`, percent-encoded; the payload is
//!   the event's data. The trace of the producer is `ce-traceparent` alone: a server since 2.11 takes a plain
//!   `traceparent` for its own message tracing and spends a fifth of its time on it. One that another system
//!   sent is read.
//! - `Nats-Msg-Id` is the message id, so that the server drops what a relay sends twice within the stream's
//!   duplicate window; what a replay sends again has `.r` and the token of the replay behind it. The window only saves work: the consumer's inbox is what removes duplicates.
//!
//! # What the server promises
//!
//! JetStream acknowledges before it syncs to disk. With `sync_interval: always` and three replicas an
//! acknowledged message survives power loss; without, a lost message is sent again by resending a range of
//! the log.
//!
//! Server 2.9 or newer; a consumer of several types needs 2.10.
//!
//! # What a foreign producer can break
//!
//! A message that is no CloudEvent of ours is delivered with its defect. One whose header lines break the
//! rules of NATS, such as a bare carriage return in a value, cannot be delivered at all: the client library
//! ends the connection that reads it. The source then fails as unavailable, and again whenever the message
//! comes back after the ack wait, until somebody deletes it from the stream.

mod classify;
mod connect;
mod consumer;
mod denials;
mod destination;
mod error;
mod facts;
mod options;
mod partition;
mod pull;
mod settle;
mod source;
mod stream;
mod subject;
mod wire;

pub use error::{Error, ErrorKind};
pub use facts::{StreamFacts, SyncFacts};
pub use options::NatsOptions;
pub use stream::StreamOptions;

use std::sync::Arc;

/// A NATS server or cluster and the stream in it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Nats {
    options: Arc<NatsOptions>,
}

impl Nats {
    /// The server at `url` with the defaults of [`NatsOptions`].
    ///
    /// Does no I/O: a server that is down is no error here, and is retried by whoever uses it.
    ///
    /// # Errors
    /// The URL cannot be read.
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::with_options(NatsOptions::new(url))
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`], naming the option.
    pub fn with_options(options: NatsOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { options: Arc::new(options) })
    }
}
