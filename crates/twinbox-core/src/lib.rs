//! The vocabulary of Twinbox: events, messages, ids, retry policies, and the traits that a broker implements.
//! It contains no database and no broker.
//!
//! | module | contents |
//! |---|---|
//! | [`event`] | [`Event`] and [`Schema`]: a serde type with a type name, a version and a key |
//! | [`codec`] | [`PayloadCodec`]: encrypts or compresses payloads |
//! | [`draft`] | [`Draft`]: a message before it is published |
//! | [`message`] | [`Message`]: an event with its envelope |
//! | [`id`] | message ids and derived ids |
//! | [`limits`] | the bounds of a message |
//! | [`canonical`], [`fingerprint`] | comparison of requests by a digest |
//! | [`destination`] | the traits of a broker that a relay publishes to |
//! | [`source`] | the traits of a broker that consumers read from |
//! | [`lanes`] | the order of messages per key, for relay and consumer |
//! | [`endpoint`] | whether a connection needs TLS |
//! | [`retry`] | delays between the attempts of one message |
//! | [`backoff`] | pauses between tries to reach a server |
//!
//! An application depends on the facade `twinbox`, which re-exports these items. Depend on `twinbox-core` to
//! write a destination or a source for another broker.

pub mod backoff;
mod boxed;
pub mod canonical;
pub mod codec;
#[doc(hidden)]
pub mod count;
#[doc(hidden)]
pub mod crash;
pub mod destination;
pub mod draft;
pub mod endpoint;
pub mod event;
pub mod fingerprint;
pub mod id;
#[doc(hidden)]
pub mod labels;
pub mod lanes;
pub mod limits;
mod manifest;
pub mod message;
mod pattern;
#[doc(hidden)]
pub mod rate_limit;
pub mod retry;
pub mod source;
#[doc(hidden)]
pub mod task_name;
#[doc(hidden)]
pub mod test_signal;
mod timestamp;
#[doc(hidden)]
pub mod trace;

pub use boxed::{BoxError, BoxFuture};
pub use codec::{EncodedPayload, PayloadCodec, PayloadContext, PayloadPurpose};
pub use destination::{Destination, PublishError, PublishErrorKind, Publisher};
pub use draft::{Draft, InvalidDraft};
pub use event::{DecodeError, Event, Schema};
pub use fingerprint::{Fingerprint, FingerprintAlgorithm, FingerprintInput};
pub use id::MessageId;
pub use manifest::Manifest;
pub use message::Message;
pub use pattern::{InvalidPattern, TypePattern};
pub use retry::RetryPolicy;
pub use source::{
    Checkpoint, MaxAge, PartitionMessage, PartitionReader, PartitionedLog, ReceivedMessage, Settle, Source,
    SourceError, SourceErrorKind, Subscription, Transport,
};
pub use timestamp::Timestamp;
