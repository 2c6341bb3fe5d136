//! The consumer runtime of Twinbox.
//!
//! For each delivery a consumer begins a transaction, claims `(consumer, message_id)` in the inbox, runs the
//! handler in the transaction, commits, and only then acknowledges. If a claim exists, the delivery is a
//! duplicate: it is acknowledged without running the handler. An error rolls everything back, the claim
//! included. So each effect that a handler writes with its `tx` happens once, however often the message is
//! delivered.
//!
//! The database counts failed attempts. A message whose handler ends the process, by an abort or by using all
//! memory, is found as well: its next attempt runs alone, and after [`Policy::crash_limit`] crashes it
//! becomes a dead letter.
//!
//! With [`DeliveryOrder::Key`] on NATS the stream is read as a log, partition by partition. The store keeps
//! the checkpoint in each partition. Processes share the partitions by lease, and each handler's transaction
//! holds the fence of its partition. So a process that lost its lease cannot commit. A new owner reads some
//! messages again, and the inbox removes them.
//!
//! A message that the store's codec encoded is decoded before the handler sees it; the claim has the hash of
//! the encoded payload. A [redacted](twinbox_core::Message::is_redacted) message is acknowledged without
//! running a handler.
//!
//! # Spans
//!
//! Each delivery runs in a span `process`. Log lines of its handler have these fields:
//!
//! | field | meaning |
//! |---|---|
//! | `consumer` | the durable name of the consumer |
//! | `message_id` | the message id in the inbox; of a batch, the first |
//! | `event_type` | the type of the event |
//! | `correlation_id` | the correlation of the message, if it has one |
//! | `messages` | the number of messages, in a batch of several |
//!
//! With the feature `opentelemetry` the span also has the attributes of OpenTelemetry, and links to the spans
//! that published the messages.
//!
//! # Contents
//!
//! | item | purpose |
//! |---|---|
//! | [`Consumer`] | runs handlers; the place to start |
//! | [`Handler`], [`EventHandler`], [`handler_fn`] | functions as handlers, with and without the macro |
//! | [`Delivery`] | an event as a handler gets it |
//! | [`Policy`] | attempts, order, concurrency and time-out of a handler |
//! | [`Provide`] | the state that handlers take |
//! | [`InboxRetention`] | how long the inbox keeps claims |
//! | [`DeliveryOutcome`], [`deliver`] | the result of a delivery, and a single attempt for tests and tools |
//! | [`DryRunCounts`] | the counts of a replay that is rolled back |
//! | [`Status`] | the state and the counters of consumers, for probes and metrics |

mod attempt;
mod batch;
mod consumer;
mod context;
mod control;
mod crash_guard;
mod dead_letter;
mod dead_letter_guard;
mod delivery;
mod direct;
mod dry_run;
mod duplicate;
mod error;
mod group;
mod handler;
mod in_flight;
mod in_place;
mod keep_alive;
mod lost_sessions;
mod metrics;
mod outcome;
mod partition;
mod partition_leases;
mod partition_stop;
mod policy;
mod process;
mod redrive;
mod retention;
mod runtime;
mod source_loop;
mod starts;
mod status;
mod trace;
mod worker;

pub use consumer::Consumer;
pub use delivery::Delivery;
pub use direct::deliver;
pub use dry_run::{DryRunCounts, DryRunDelivery, DryRunOutcome, PlannedReplay};
pub use error::{Error, ErrorKind};
pub use handler::{EventHandler, Handler, HandlerFn, HandlerInput, Provide, handler_fn};
pub use outcome::DeliveryOutcome;
pub use policy::{DeliveryOrder, Policy};
pub use retention::InboxRetention;
pub use status::{ConsumerState, ConsumerStatus, Status};

/// Items for the test harness and for generated code. Not part of the API.
#[doc(hidden)]
pub mod private {
    pub use crate::{
        direct::{batch_max, run_within, unfinished},
        handler::{HandlerFuture, TxFor},
    };
}
