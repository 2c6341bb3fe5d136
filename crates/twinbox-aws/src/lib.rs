//! Amazon EventBridge as a destination for Twinbox, and SQS queues behind it as a source.
//!
//! [`EventBridge`] is a [`Destination`](twinbox_core::Destination) for relays: one classic event bus. [`Sqs`]
//! is a [`Transport`](twinbox_core::Transport) for consumers, with one queue for each consumer. Both hold
//! options and no connection: each publisher and each subscription has its own client with its own
//! connections.
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
//! # Wire format
//!
//! - `Source` is the message's source, `DetailType` its type, `Time` its time. Rules match on these.
//! - `Detail` is a CloudEvent in JSON, structured mode. A payload with a JSON content type becomes `data`,
//!   byte for byte. Any other payload becomes `data_base64`. An empty payload is left out. The attributes
//!   have the names of [`Message::attributes`](twinbox_core::Message::attributes); their values are strings.
//! - The extension `twinboxheaders` holds the application's own headers, and the headers that tell how a
//!   payload was encoded. It is a string with a JSON list of `[name, value]` pairs: a CloudEvents attribute
//!   can be no object, and its name can have no `-`, no `_` and no capital letter.
//! - The limit for one event is 1 MiB less 4 KiB. The longest message of the outbox fits if its payload is
//!   JSON. Base64 is a third longer, so of other payloads 760 KiB fit. A message beyond the limit is refused
//!   for good.
//! - `TraceHeader` is the producer's trace in X-Ray's form, if the message has a trace. `traceparent` travels
//!   too.
//!
//! # Guarantees of EventBridge
//!
//! EventBridge delivers at least once and **in no order**, not even within a key; consumers compare
//! `sequence`. An event that was published twice has two EventBridge ids. Consumers identify it by its
//! CloudEvents id, as the inbox does.
//!
//! An acknowledgement comes from EventBridge, not from a consumer. EventBridge silently drops an event
//! without a matching rule at once. It silently drops an event that it cannot deliver within a day, unless
//! the target of the rule has a dead-letter queue.
//!
//! The number of events a second that an account may publish depends on the region, and all programs of the
//! account share it. A publisher sends up to 32 requests at a time. Messages that EventBridge throttles, and
//! messages that could not be sent within the publish time-out, fail as throttled. Limit a relay's messages
//! in flight to the number that the bus accepts in that time.
//!
//! **EventBridge acknowledges and drops an event for a bus that does not exist.** The publisher therefore
//! checks the bus when it connects and again every
//! [`describe_interval`](EventBridgeOptions::describe_interval). Events between the deletion of a bus and the
//! next check are lost; resend that range of the log.
//!
//! # Queues
//!
//! A rule sends events to the queue of a consumer, with EventBridge's envelope around them. With the input
//! path `$.detail` it sends the CloudEvent alone. Both forms are read. An event of another publisher takes
//! `id`, `source`, `detail-type` and `time` from its envelope, and its `detail` as payload. The `detail-type`
//! must be words joined by dots.
//!
//! Standard queues deliver at least once and in no order; `order = "key"` is refused. A message of a type
//! without a handler becomes a dead letter, so let the rule match only handled types. A delivery in progress
//! stays hidden from other processes until it is settled, for at most 12 h. It is deleted after the commit.
//! If the deletion fails, it is redelivered, and the inbox recognises it as a duplicate.
//!
//! Give the queue **no redrive policy**, or one that allows many deliveries. SQS also counts deliveries
//! during an outage of the database, and a consumer keeps its own dead letters. The retention of the queue,
//! at most 14 days, must be shorter than that of the inbox.
//!
//! # Permissions
//!
//! `events:PutEvents` and `events:DescribeEventBus` on the bus. `sqs:ReceiveMessage`, `sqs:DeleteMessage`,
//! `sqs:ChangeMessageVisibility` and `sqs:GetQueueAttributes` on the queues.

mod client_settings;
mod cloud_event;
mod error;
mod eventbridge;
mod sqs;

pub use error::{Error, ErrorKind};
pub use eventbridge::{BusStatus, EventBridge, EventBridgeOptions};
pub use sqs::{Sqs, SqsOptions};
