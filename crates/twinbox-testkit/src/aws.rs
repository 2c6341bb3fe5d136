//! Fakes of EventBridge and SQS on loopback, whose responses a test chooses.
//!
//! They speak the protocol of the AWS SDKs over plain HTTP. Set the endpoint URL of a client to their
//! `endpoint_url`, with any region and any credentials. Calls without a chosen response behave as those of
//! the service.
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
mod sqs;

pub use answer::Answer;
pub use eventbridge::{FakeEventBridge, PutEvents};
pub use sqs::FakeSqs;

/// The header that names a call, such as `AWSEvents.PutEvents`.
const TARGET: &str = "x-amz-target";
