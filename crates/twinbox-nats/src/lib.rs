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
//! - `Nats-Msg-Id` is a name that only relays of the destination can make: an HMAC with its secret over the
//!   message id, the position, the time, the prefix and the token of a replay. So the server drops a message
//!   that a relay sends twice within the stream's duplicate window, and nobody else can take the name of a
//!   message. The window only saves work: the consumer's inbox removes duplicates.
//!
//! # What counts in a message
//!
//! The server checks the subject against the permissions of the publisher, and nothing else. So the type of a
//! message has to be that of its subject, and for an ordered consumer the partition that of its key.
//! Otherwise the message has a defect. Whoever may publish a type decides its source, id, key and payload.
//!
//! A server answers a publish on the subject that its sender names, be it one of the stream. A consumer drops
//! such an answer, and counts it: `twinbox_consumer_server_answers_total`.
//!
//! Some options of a stream give a publisher power over other subjects, such as `allow_rollup_hdrs`. A stream
//! that Twinbox creates has none of them. [`Nats::provision`] refuses one that has, a relay logs them, and
//! [`StreamStatus::option_faults`] names them.
//!
//! The mark of a replay, which makes one consumer handle a message again, counts if a relay has signed it
//! with a key in the metadata of the stream.
//!
//! # Facts about a stream
//!
//! A relay writes into the metadata of its stream what consumers have to know:
//! `twinbox-partitions.<prefix>` is the number of partitions, and each `twinbox-replay-key.<public key>`
//! checks the marks of a destination's replays. It needs the right to update the stream, and a server from
//! 2.10 on. Without them it logs what to add by hand. A copy of a stream, such as a mirror, has metadata of
//! its own: add the same facts there.
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
mod facts;
mod header_block;
mod lag;
mod merged;
mod options;
mod ordered;
mod partitioned;
mod permissions;
mod publish;
mod pull;
mod replay_mark;
mod server_answers;
mod settle;
mod signer;
mod source;
mod spread;
mod status;
mod stored;
mod stream;
mod stream_address;
mod stream_options;
mod subject;
mod trust;
mod wire;

pub use broker::Nats;
pub use error::{Error, ErrorKind};
pub use lag::{DurableLag, LagReader, PartitionLag};
pub use options::NatsOptions;
pub use permissions::{Permissions, UserPurpose};
pub use status::{DiskSync, StreamCluster, StreamCopy, StreamStatus, SubjectLimit};
pub use stream_address::{NoStreamAddress, StreamAddress};
pub use stream_options::StreamOptions;
