//! The vocabulary of Twinbox, free of databases and brokers.
//!
//! | module | holds |
//! |---|---|
//! | [`event`] | what an application publishes and handles: a serde type with a name, a version and a key |
//! | [`codec`] | what changes a payload between the event and the row: encryption, compression |
//! | [`draft`] | an event on its way into the outbox, validated before anything is written |
//! | [`message`] | an event with its envelope, as every destination and source carries it |
//! | [`id`] | message ids and derived ids |
//! | [`limits`] | the named bounds of a message |
//! | [`fingerprint`], [`canonical`] | whether two requests are the same |
//! | [`destination`] | the seam to a broker that is published to, and its three outcomes |
//! | [`source`] | the seam to a broker that is consumed from |
//! | [`lanes`] | which message may go next, and how far all is settled: the order of relay and consumer |
//! | [`retry`], [`reconnect`] | when to try again: a message, a connection |
//!
//! Everything is re-exported by the `twinbox` facade; depend on this crate to write a destination or a
//! source of your own.

pub mod canonical;
pub mod codec;
#[doc(hidden)]
pub mod count;
#[doc(hidden)]
pub mod crash;
pub mod destination;
pub mod draft;
pub mod event;
pub mod fingerprint;
pub mod id;
pub mod lanes;
pub mod limits;
mod manifest;
pub mod message;
#[doc(hidden)]
pub mod pace;
mod partitioned;
mod pattern;
pub mod reconnect;
pub mod retry;
pub mod source;
mod timestamp;
#[doc(hidden)]
pub mod trace;

pub use codec::{Encoded, PayloadCodec, PayloadContext};
pub use destination::{Destination, PublishError, PublishErrorKind, Publisher};
pub use draft::{Draft, InvalidDraft};
pub use event::{DecodeError, Event, Schema};
pub use fingerprint::{Fingerprint, FingerprintAlgorithm, Fingerprinted};
pub use id::MessageId;
pub use manifest::Manifest;
pub use message::Message;
pub use partitioned::{PartitionReader, PartitionedLog, Place, Sequenced};
pub use pattern::{InvalidPattern, TypePattern};
pub use retry::RetryPolicy;
pub use source::{Horizon, Received, Settle, Source, SourceError, SourceErrorKind, Subscription, Transport};
pub use timestamp::Timestamp;

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Any error, boxed.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
