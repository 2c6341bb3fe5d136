//! The broker: queues, one for each consumer.
use super::options::SqsOptions;
use crate::error::Error;
use std::sync::Arc;

/// The transport that delivers from SQS queues, one queue for each consumer. Cheap to clone.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use twinbox_aws::{Sqs, SqsOptions};
///
/// let options = SqsOptions::new()
///     .queue("billing.invoice", "https://sqs.eu-west-1.amazonaws.com/123456789012/billing-invoice")
///     .visibility_timeout(Duration::from_secs(60));
/// let transport = Sqs::with_options(options)?; // for `Consumer::transport`
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Sqs {
    pub(crate) options: Arc<SqsOptions>,
}

impl Sqs {
    /// Creates the transport for one consumer's queue, by its URL, with the defaults of [`SqsOptions`].
    ///
    /// Does no I/O. A service that cannot be reached causes no error here; consumers retry.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions): the text is no URL of a queue.
    pub fn new(consumer: &str, queue_url: &str) -> Result<Self, Error> {
        Self::with_options(SqsOptions::new().queue(consumer, queue_url))
    }

    /// Creates the transport for the queues of `options`. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOptions`](crate::ErrorKind::InvalidOptions); the text names the option.
    pub fn with_options(options: SqsOptions) -> Result<Self, Error> {
        options.validate()?;
        Ok(Self { options: Arc::new(options) })
    }
}
