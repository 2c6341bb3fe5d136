//! Which queues, how to reach them, and how they are used.
use crate::{
    Error,
    environment::{Environment, environment_options, is_region, is_url, validate_timeouts},
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// The longest that SQS hides a delivery, and the longest that can be set.
pub(crate) const VISIBILITY_MAX: Duration = Duration::from_secs(12 * 3600);
/// The longest that SQS keeps a request for messages.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Which queues, how to reach them, and how they are used.
#[derive(Clone)]
#[must_use]
pub struct SqsOptions {
    pub(crate) queues: BTreeMap<String, String>,
    pub(crate) environment: Environment,
    pub(crate) visibility: Duration,
    pub(crate) wait: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
}

impl Default for SqsOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl SqsOptions {
    /// No queue yet.
    pub fn new() -> Self {
        Self {
            queues: BTreeMap::new(),
            environment: Environment::default(),
            visibility: Duration::from_secs(30),
            wait: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// The URL of the queue that holds the messages of one consumer. Two consumers of one queue would each see some of
    /// its messages.
    pub fn queue(mut self, consumer: impl Into<String>, url: impl Into<String>) -> Self {
        self.queues.insert(consumer.into(), url.into());
        self
    }

    environment_options!();

    /// How long after a delivery, or the last sign of progress, SQS delivers it again. Whole seconds, at most 12 h. What
    /// a process that dies held comes again after this. Default 30 s.
    pub fn visibility_timeout(mut self, timeout: Duration) -> Self {
        self.visibility = timeout;
        self
    }

    /// How long a request for messages stays with SQS if there are none. Whole seconds, at most 20. Longer is cheaper;
    /// closing waits as long, because what comes meanwhile would stay hidden. Default 5 s.
    pub fn wait_time(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How long name resolution, TCP and TLS may take together. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long any request may take; one for messages has [`wait_time`](Self::wait_time) on top. Default 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.environment.validate()?;
        if self.queues.is_empty() {
            return Err(Error::invalid("queue", "has to name the queue of at least one consumer"));
        }
        for (consumer, url) in &self.queues {
            if !is_url(url) || name_of(url).is_empty() {
                let problem = format!("of {consumer:?} has to be a URL that ends with the queue's name");
                return Err(Error::invalid("queue", &problem));
            }
        }
        let whole = |duration: Duration| duration.subsec_nanos() == 0;
        if !whole(self.visibility) || self.visibility.is_zero() || self.visibility > VISIBILITY_MAX {
            return Err(Error::invalid("visibility_timeout", "has to be 1 s to 12 h, in whole seconds"));
        }
        if !whole(self.wait) || self.wait > WAIT_MAX {
            return Err(Error::invalid("wait_time", "has to be at most 20 s, in whole seconds"));
        }
        validate_timeouts(&[
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
        ])
    }
}

/// The name at the end of a queue's URL. Empty if there is none.
pub(crate) fn name_of(url: &str) -> &str {
    let path = url.split_once("://").map_or(url, |(_, rest)| rest);
    path.split('/').skip(1).last().unwrap_or_default()
}

/// The region in the URL of a queue of AWS: `https://sqs.REGION.amazonaws.com/…`.
pub(crate) fn region_of(url: &str) -> Option<&str> {
    let host = url.split_once("://")?.1.split('/').next()?;
    let (region, rest) = host.strip_prefix("sqs.")?.split_once('.')?;
    (rest.starts_with("amazonaws.com") && is_region(region)).then_some(region)
}

/// Without secrets.
impl fmt::Debug for SqsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqsOptions")
            .field("queues", &self.queues)
            .field("region", &self.environment.region)
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
    fn what_cannot_be_right_is_named() {
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
        assert_eq!((name_of(URL), region_of(URL)), ("billing-invoice", Some("eu-west-1")));
        let local = "http://localhost:4566/000000000000/q";
        assert_eq!((name_of(local), region_of(local)), ("q", None));
        assert_eq!(region_of("https://sqs.evil.example.com/1/q"), None);
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = SqsOptions::new().queue("a", URL).credentials("id", "secret", Some("secret".into()));
        assert!(!format!("{:?}", Sqs::with_options(options).unwrap()).contains("secret"));
    }
}
