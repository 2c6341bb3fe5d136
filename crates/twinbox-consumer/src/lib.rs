//! The consumer runtime of Twinbox.
//!
//! For each delivery: begin, claim `(consumer, message_id)` in the inbox, run the handler in that
//! transaction, commit, and only then acknowledge. A claim that exists is a duplicate: it is acknowledged
//! and nothing runs. An error rolls everything back, the claim included. So each effect that a handler
//! writes with its `tx` happens once, however often the message arrives.
//!
//! Failures are counted in the database. A message whose handler ends the process, by an abort or by all the memory there
//! is, is found as well: it runs alone when it comes again, and is given up after [`Policy::crash_limit`] deaths.
//!
//! With [`Order::Key`] a stream of NATS is read as a log, partition by partition, with the place in each kept in the store.
//! A lease tells which process reads which; each handler's transaction holds its partition, so that an owner that was
//! given up cannot commit. What the new one reads again, the inbox removes.
//!
//! What the store's codec encoded is decoded before it is read; the claim knows the payload as it came. A message
//! that was [redacted](twinbox_sql::Store::redact) is acknowledged and nothing runs.
//!
//! Each delivery runs in a span `process`, and what a handler logs has its fields:
//!
//! | field | what |
//! |---|---|
//! | `consumer` | whose delivery it is |
//! | `message_id` | the id that the inbox knows, of a batch the first |
//! | `event_type` | the type |
//! | `correlation_id` | what the message belongs to, if it says so |
//! | `messages` | how many are in the batch, if several |
//!
//! With the feature `opentelemetry` the span also has the names of OpenTelemetry, and links to those that published
//! the messages.
//!
//! | module | holds |
//! |---|---|
//! | [`Consumer`] | handlers, their state, and where they get their messages |
//! | [`Handler`], [`EventHandler`], [`handler_fn`] | functions as handlers, with and without the macro |
//! | [`Delivery`] | an event as it arrived |
//! | [`Policy`] | attempts, concurrency, time-out |
//! | [`InboxRetention`] | for how long it is remembered what was handled |
//! | [`DryRun`] | what a replay would come to |
//! | [`Status`] | what consumers are doing, for probes and metrics |
//! | [`Provide`] | the state that handlers ask for |

mod attempt;
mod batch;
mod conflict;
mod consumer;
mod delivery;
mod dry_run;
mod error;
mod handler;
mod keep_alive;
mod memory;
mod operated;
mod ordered;
mod partition;
mod policy;
mod shared;
mod start;
mod status;
mod trace;
mod under_way;
mod worker;

pub use attempt::Outcome;
pub use consumer::{Consumer, deliver};
pub use delivery::Delivery;
pub use dry_run::{DryDelivery, DryOutcome, DryRun};
pub use error::{Error, ErrorKind};
pub use handler::{EventHandler, Handler, HandlerFn, Input, Provide, handler_fn};
pub use memory::InboxRetention;
pub use policy::{Order, Policy};
pub use status::{ConsumerState, ConsumerStatus, Status};

/// What generated code names. Not part of the API.
#[doc(hidden)]
pub mod private {
    pub use crate::{
        consumer::{run_within, unfinished},
        handler::{HandlerFuture, TxFor},
    };
}
