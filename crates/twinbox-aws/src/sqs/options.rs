//! The queues, the access to them, and the times of consuming.
use crate::{
    client_settings::{ClientSettings, client_setting_methods, is_region, is_url, validate_timeouts},
    error::Error,
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// The longest time that SQS hides a delivery, and the longest that the option accepts.
pub(crate) const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
/// The longest time that SQS holds a request for messages.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The options of SQS: the queues, the access to them, and the times of consuming.
#[derive(Clone)]
#[must_use]
pub struct SqsOptions {
    pub(crate) queues: BTreeMap<String, String>,
    pub(crate) client: ClientSettings,
    pub(crate) visibility_timeout: Duration,
    pub(crate) wait_time: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
}

impl Default for SqsOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SqsOptions {
    /// Creates options without a queue.
    pub fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            client: ClientSettings::default(),
            visibility_timeout: Duration::from_secs(30),
            wait_time: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// Adds the queue of one consumer, by its URL. Each consumer needs its own queue: two consumers of one
    /// queue would each receive only a part of its messages.
    pub fn queue(mut self, consumer: impl Into<String>, url: impl Into<String>) -> Self {
        self.queues.insert(consumer.into(), url.into());
        self
    }

    client_setting_methods!();

    /// Sets how long after a delivery, or after its last sign of progress, SQS redelivers it. The deliveries
    /// of a crashed process come again after this time. Whole seconds, at most 12 h. Default 30 s.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility_timeout = timeout;
        self
    }

    /// Sets how long SQS holds a request for messages while the queue is empty. Whole seconds, at most 20.
    /// Default 5 s.
    ///
    /// A longer time is cheaper. Closing a source waits up to this time, because messages that arrive
    /// meanwhile would otherwise stay hidden.
    pub fn wait_time(mut self, wait: Duration) -> Self {
        self.wait_time = wait;
        self
    }

    /// Sets the time-out for name resolution, TCP and TLS together. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time-out of each request to SQS. A request for messages has [`wait_time`](Self::wait_time) in
    /// addition. Default 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.client.validate()?;
        if self.queues.is_empty() {
            return Err(Error::invalid("queue", "must name the queue of at least one consumer"));
        }
        for (consumer, url) in &self.queues {
            if !is_url(url) || queue_name(url).is_empty() {
                let problem = format!("of {consumer:?} must be a URL that ends with the name of the queue");
                return Err(Error::invalid("queue", &problem));
            }
        }
        let whole = |duration: Duration| duration.subsec_nanos() == 0;
        let visibility = self.visibility_timeout;
        if !whole(visibility) || visibility.is_zero() || visibility > VISIBILITY_MAX {
            return Err(Error::invalid("visibility_timeout", "must be 1 s to 12 h, in whole seconds"));
        }
        if !whole(self.wait_time) || self.wait_time > WAIT_MAX {
            return Err(Error::invalid("wait_time", "must be at most 20 s, in whole seconds"));
        }
        validate_timeouts(&[
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
        ])
    }
}

/// Returns the name at the end of a queue's URL, or an empty string.
pub(crate) fn queue_name(url: &str) -> &str {
    let path = url.split_once("://").map_or(url, |(_, rest)| rest);
    path.split('/').skip(1).last().unwrap_or_default()
}

/// Returns the region in the URL of an AWS queue: `https://sqs.REGION.amazonaws.com/…`.
pub(crate) fn queue_region(url: &str) -> Option<&str> {
    let host = url.split_once("://")?.1.split('/').next()?;
    let (region, rest) = host.strip_prefix("sqs.")?.split_once('.')?;
    (rest.starts_with("amazonaws.com") && is_region(region)).then_some(region)
}

/// Prints no secret.
impl fmt::Debug for SqsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsOptions")
            .field("queues", &self.queues)
            .field("region", &self.client.region)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, Sqs};

    const URL: &str = "https://sqs.eu-west-1.amazonaws.com/123456789012/billing-invoice";

    #[track_caller]
    fn refused(options: SqsOptions, option: &str) {
        let error = Sqs::with_options(options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOptions);
        assert!(error.to_string().contains(&format!("`{option}`")), "{error}");
    }

    #[test]
    fn an_invalid_option_is_named() {
        let good = || SqsOptions::new().queue("billing", URL);
        Sqs::with_options(good()).unwrap();
        Sqs::new("billing", "http://127.0.0.1:4566/123456789012/q").unwrap();
        refused(SqsOptions::new(), "queue");
        for url in ["", "billing", "https://", "https://sqs.eu-west-1.amazonaws.com", "http://me:secret@a/q"]
        {
            refused(good().queue("stock", url), "queue");
        }
        refused(good().region("eu west"), "region");
        refused(good().endpoint_url("localhost"), "endpoint_url");
        refused(good().endpoint_url("http://queues.example.org"), "allow_plain");
        Sqs::with_options(good().endpoint_url("http://queues.example.org").allow_plain(true)).unwrap();
        refused(good().credentials("", "x", None), "credentials");
        refused(good().visibility_timeout(Duration::ZERO), "visibility_timeout");
        refused(good().visibility_timeout(Duration::from_millis(1500)), "visibility_timeout");
        refused(good().visibility_timeout(Duration::from_secs(43_201)), "visibility_timeout");
        refused(good().wait_time(Duration::from_secs(21)), "wait_time");
        refused(good().connect_timeout(Duration::ZERO), "connect_timeout");
        refused(good().request_timeout(Duration::MAX), "request_timeout");
    }

    #[test]
    fn names_and_regions_are_read_from_the_url() {
        assert_eq!((queue_name(URL), queue_region(URL)), ("billing-invoice", Some("eu-west-1")));
        let local = "http://localhost:4566/000000000000/q";
        assert_eq!((queue_name(local), queue_region(local)), ("q", None));
        assert_eq!(queue_region("https://sqs.evil.example.com/1/q"), None);
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = SqsOptions::new().queue("a", URL).credentials("id", "secret", Some("secret".into()));
        assert!(!format!("{:?}", Sqs::with_options(options).unwrap()).contains("secret"));
    }
}
