//! Amazon EventBridge as a destination for Twinbox, and SQS behind it as a source.
//!
//! [`EventBridge`] is a [`Destination`](twinbox_core::Destination) for a relay: one classic event bus. [`Sqs`] is a
//! [`Transport`](twinbox_core::Transport) for consumers: a queue for each. Neither does I/O by itself; every publisher
//! and every subscription has a client, and so connections, of its own.
//!
//! ```no_run
//! # async fn run() -> Result<(), twinbox_aws::Error> {
//! use twinbox_aws::{EventBridge, EventBridgeOptions};
//!
//! let bus = EventBridge::new("orders")?; // region and credentials from the environment
//! let emulated = EventBridgeOptions::new("orders")
//!     .region("eu-west-1")
//!     .endpoint_url("http://localhost:4566")
//!     .credentials("test", "test", None);
//! let emulated = EventBridge::with_options(emulated)?;
//! # Ok(())
//! # }
//! ```
//!
//! # On the wire
//!
//! - `Source` is the message's source, `DetailType` its type, `Time` its time: what rules match on.
//! - `Detail` is a CloudEvent in JSON, structured mode. A payload whose content type is JSON is `data` as it
//!   was written, byte for byte; any other is `data_base64`; an empty one is left out. The names of all
//!   attributes are those of [`Message::attributes`](twinbox_core::Message::attributes), their values texts.
//! - Headers of the application's own, and those that say how a payload was encoded, are the extension `twinboxheaders`: a text that holds a JSON list of
//!   `[name, value]` pairs, because a CloudEvents attribute may neither be an object nor have a name with
//!   `-`, `_` or capitals.
//! - One event may have 1 MiB less 4 KiB. The longest message that the outbox takes fits if its payload is
//!   JSON; as base64, which is a third longer, 760 KiB of payload do. What does not fit is refused for good.
//! - `TraceHeader` is the trace of the producer in X-Ray's form, if it has one. `traceparent` travels too.
//!
//! # What EventBridge promises
//!
//! At least once and **in no order**, even of one key: consumers compare `sequence`. An event that was
//! published twice has two EventBridge ids; consumers go by the CloudEvents id, as the inbox does.
//!
//! An acknowledged event is with EventBridge, not with a consumer. Without a dead-letter queue on each target
//! of each rule EventBridge drops what it cannot deliver within a day, and without a matching rule it drops
//! everything at once, both without a word.
//!
//! How many events a second an account may publish depends on the region, and is shared by all its programs.
//! A publisher sends up to 32 requests at a time; what it could not send within the publish time-out, and what
//! EventBridge throttles, fails as throttled. A relay should have no more messages in flight than the bus
//! takes in that time.
//!
//! **An event for a bus that does not exist is acknowledged and dropped.** The publisher therefore asks for
//! the bus when it connects and again every [`describe_interval`](EventBridgeOptions::describe_interval).
//! What was sent between the deletion of a bus and the next look is lost; resend that range of the log.
//!
//! # Queues
//!
//! A rule sends events to the queue of a consumer, with all that EventBridge wraps around them, or with the input path
//! `$.detail` the CloudEvent alone; both are read. An event that no Twinbox published has its envelope's `id`, `source`,
//! `detail-type` and `time`, and its `detail` as payload; the `detail-type` has to be words joined by dots.
//!
//! Standard queues deliver at least once and in no order, and `order = "key"` is refused. A message of a type without a
//! handler becomes a dead letter: let the rule match only what is handled. What a handler works on is hidden from others
//! until it is done, for at most 12 h; a delivery is deleted after the commit, and if that fails it comes again and the
//! inbox knows it.
//!
//! Give the queue **no redrive policy**, or one that allows many deliveries: SQS counts deliveries while a database is away
//! as well, and a consumer keeps its own dead letters. The retention of the queue, at most 14 days, has to be shorter
//! than that of the inbox.
//!
//! # Rights
//!
//! `events:PutEvents` and `events:DescribeEventBus` on the bus. `sqs:ReceiveMessage`, `sqs:DeleteMessage`,
//! `sqs:ChangeMessageVisibility` and `sqs:GetQueueAttributes` on the queues.

mod environment;
mod error;
mod eventbridge;
mod sqs;

pub use error::{Error, ErrorKind};
pub use eventbridge::{BusFacts, EventBridge, EventBridgeOptions};
pub use sqs::{Sqs, SqsOptions};
