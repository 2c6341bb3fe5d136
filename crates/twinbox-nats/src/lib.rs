//! NATS JetStream as a destination and a source for Twinbox.
//!
//! [`Nats`] is a [`Destination`](twinbox_core::Destination) for relays and a
//! [`Transport`](twinbox_core::Transport) for consumers. It holds options and no connection: each publisher
//! and each subscription opens its own.
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
//! # Wire format
//!
//! - The subject is `<prefix>.<n>.<type>`, where n is the partition of the key. `events.3.>` selects a
//!   partition, `events.*.orders.placed` selects a type.
//! - A message is a CloudEvent 1.0 in binary mode. Each attribute is a percent-encoded header `ce-<name>`;
//!   the payload is the event's data.
//! - The producer's trace travels as `ce-traceparent` only. A server from 2.11 on uses a plain `traceparent`
//!   for its own message tracing, which costs a fifth of its time. A plain `traceparent` of another system is
//!   read.
//! - `Nats-Msg-Id` is the message id, a dot and the prefix, so that the server drops a message that a relay
//!   sends twice within the stream's duplicate window. A resend appends `.r` and the token of the replay. The
//!   window only saves work: the consumer's inbox removes duplicates.
//!
//! # Batches
//!
//! From NATS 2.14 on, a stream with `allow_batched` takes many messages as a batch (ADR-50). The server
//! stores them in the order of sending and acknowledges them together. So messages of one key follow each
//! other without waiting, and a busy key is as fast as many keys. Fewer than 64 waiting messages go one by
//! one, which is quicker for them.
//!
//! When the server refuses a message of a batch, it stores none behind it. These go again, one by one, and
//! the refused one gets the result that it gets alone. When the connection is lost, the messages without an
//! acknowledgement are in doubt. They go again in the same order, and the server drops those that it has. In
//! a batch it does so without a word: duplicates are counted only for messages that go one by one.
//!
//! A stream that Twinbox creates takes batches, unless [`StreamOptions::batches`] says no. For an existing
//! stream set `allow_batched` at the server.
//!
//! # Durability
//!
//! JetStream acknowledges a message before it syncs the message to disk. With `sync_interval: always` and
//! three replicas, an acknowledged message survives a power loss. Without them, resend a range of the log to
//! restore lost messages.
//!
//! # Server versions
//!
//! NATS server 2.9 or newer. A consumer of several types needs 2.10, and [batches](#batches) need 2.14.
//!
//! # Messages of other producers
//!
//! A message that is not a valid CloudEvent is delivered together with its defect.
//!
//! So is a message whose header block cannot be read, whatever bytes it holds: the consumer receives
//! deliveries over a connection of its own, because the client library closes one at such a block. The
//! message keeps the block in hexadecimal digits. Attributes are found under names in any case.

mod ack_subject;
mod broker;
mod classify;
mod connect;
mod consumer;
mod deliveries;
mod denied;
mod destination;
mod error;
mod header_block;
mod lag;
mod merged;
mod options;
mod ordered;
mod partitioned;
mod publish;
mod pull;
mod settle;
mod source;
mod spread;
mod status;
mod stored;
mod stream;
mod stream_address;
mod stream_options;
mod subject;
mod wire;

pub use broker::Nats;
pub use error::{Error, ErrorKind};
pub use lag::{DurableLag, LagReader, PartitionLag};
pub use options::NatsOptions;
pub use status::{DiskSync, StreamCluster, StreamCopy, StreamStatus, SubjectLimit};
pub use stream_address::{NoStreamAddress, StreamAddress};
pub use stream_options::StreamOptions;
