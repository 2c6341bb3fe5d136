//! SQS: queues that rules of EventBridge feed.
mod classify;
mod options;
mod settle;
mod source;
mod wire;

pub use options::SqsOptions;

use crate::Error;
use std::sync::Arc;

/// Queues, one for each consumer. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sqs {
    options: Arc<SqsOptions>,
}

impl Sqs {
    /// The queue at this URL for one consumer, with the defaults of [`SqsOptions`].
    ///
    /// Does no I/O: a service that cannot be reached is no error here, and is retried by whoever uses it.
    ///
    /// # Errors
    /// This cannot be the URL of a queue.
    pub fn new(consumer: &str, queue_url: &str) -> Result<Self, Error> {
        Self::with_options(SqsOptions::new().queue(consumer, queue_url))
    }

    /// The same with options.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions), naming the option.
    pub fn with_options(options: SqsOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { options: Arc::new(options) })
    }
}
