//! EventBridge and SQS on loopback that answer as a test says.
//!
//! They speak the protocol of the AWS SDKs over plain HTTP. Point a client at their `endpoint_url`; any region and any
//! credentials do. Without a script they behave as the services do, their surprises included.
//!
//! ```no_run
//! # async fn run() -> std::io::Result<()> {
//! use twinbox_testkit::aws::{Answer, FakeEventBridge};
//!
//! let fake = FakeEventBridge::start("orders").await?;
//! fake.answer_next([Answer::Throttle(Some(3)), Answer::Truncated]);
//! // … publish to `fake.endpoint_url()` …
//! assert_eq!(fake.requests().len(), 2);
//! assert!(fake.taken()[0]["DetailType"] == "orders.placed");
//! # Ok(())
//! # }
//! ```
mod answer;
mod eventbridge;
mod http;
mod sqs;

pub use answer::Answer;
pub use eventbridge::{FakeEventBridge, PutEvents};
pub use sqs::FakeSqs;
