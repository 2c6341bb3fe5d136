//! Which bus, how to reach it, and how it is used.
use crate::{
    Error,
    environment::{Environment, environment_options, is_region, validate_timeouts},
};
use std::{fmt, time::Duration};
use twinbox_core::limits;

/// Entries of one request that every bus takes.
const ENTRIES_DEFAULT: usize = 10;
/// Entries that a request can be set to have, for a bus that takes more.
const ENTRIES_MAX: usize = 100;
/// Bytes of one request that EventBridge takes, by its own way of counting.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// What EventBridge wraps around an event on its way to a target, such as a queue, that itself takes 1 MiB.
const ENVELOPE_BYTES: usize = 4 * 1024;
/// The smallest request limit that can be set.
const REQUEST_BYTES_MIN: usize = 1024;
/// Bytes of an ARN.
const ARN_BYTES_MAX: usize = 1600;
/// Bytes of the name of a bus.
const BUS_BYTES_MAX: usize = 256;

/// Which bus, how to reach it, and how it is used.
#[derive(Clone)]
#[must_use]
pub struct EventBridgeOptions {
    pub(crate) bus: String,
    pub(crate) id: String,
    pub(crate) environment: Environment,
    pub(crate) request_entries_max: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) publish_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) describe_interval: Duration,
}

impl EventBridgeOptions {
    /// The bus of this name or ARN.
    pub fn new(bus: impl Into<String>) -> Self {
        Self {
            bus: bus.into(),
            id: "eventbridge".to_owned(),
            environment: Environment::default(),
            request_entries_max: ENTRIES_DEFAULT,
            request_bytes_max: REQUEST_BYTES_MAX - ENVELOPE_BYTES,
            publish_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
            describe_interval: Duration::from_secs(60),
        }
    }

    /// The id of the destination, under which a relay keeps its cursor. Default `eventbridge`.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    environment_options!();

    /// Events of one request. Default 10, which every bus takes; at most 100, for a bus that takes more. What a bus
    /// refuses together is sent one by one, so that more than it takes is slow.
    pub fn request_entries_max(mut self, entries: usize) -> Self {
        self.request_entries_max = entries;
        self
    }

    /// Bytes of one request as EventBridge counts them. A message that is larger alone is refused for good.
    /// Default 1 MiB less 4 KiB, so that what is taken also fits a queue behind a rule; at most 1 MiB.
    /// Regions in China take 256 KiB.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// How long it may take from handing a batch over to the last answer. By then a message without an answer
    /// is in doubt, and one whose turn did not come counts as throttled. A relay's lease has to be longer. Default 2 s.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// How long name resolution, TCP and TLS may take together. A service that cannot be reached in this time
    /// is unavailable. Less than [`publish_timeout`](Self::publish_timeout), else what was never sent counts
    /// as in doubt. Default 1 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long connecting may take, credentials and a look at the bus included. Default 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// How often the publisher asks whether the bus is still there. EventBridge acknowledges and drops what
    /// is sent to a bus that is not. Default 60 s.
    pub fn describe_interval(mut self, interval: Duration) -> Self {
        self.describe_interval = interval;
        self
    }

    /// The region of the ARN.
    pub(crate) fn region_of_bus(&self) -> Option<&str> {
        arn_fields(&self.bus).map(|fields| fields[3])
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if !is_bus(&self.bus) {
            let problem = "has to be a name of letters, digits, `.`, `-`, `_` and `/`, or the ARN of a bus";
            return Err(Error::invalid("bus", problem));
        }
        if self.id.is_empty() || self.id.len() > limits::NAME_BYTES_MAX {
            return Err(Error::invalid("id", "has to have 1 to 120 bytes"));
        }
        self.environment.validate()?;
        if !(1..=ENTRIES_MAX).contains(&self.request_entries_max) {
            return Err(Error::invalid("request_entries_max", "has to be 1 to 100"));
        }
        if !(REQUEST_BYTES_MIN..=REQUEST_BYTES_MAX).contains(&self.request_bytes_max) {
            return Err(Error::invalid("request_bytes_max", "has to be 1 KiB to 1 MiB"));
        }
        validate_timeouts(&[
            ("publish_timeout", self.publish_timeout),
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("describe_interval", self.describe_interval),
        ])
    }
}

fn is_bus(text: &str) -> bool {
    let is_name = |name: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b".-_/".contains(&b);
        (1..=BUS_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
    };
    match arn_fields(text) {
        Some(fields) => {
            let name = fields[5].strip_prefix("event-bus/");
            text.len() <= ARN_BYTES_MAX && is_region(fields[3]) && name.is_some_and(is_name)
        }
        None => is_name(text),
    }
}

/// `arn`, partition, `events`, region, account, `event-bus/<name>`.
fn arn_fields(text: &str) -> Option<[&str; 6]> {
    let fields: Vec<&str> = text.split(':').collect();
    let fields: [&str; 6] = fields.try_into().ok()?;
    (fields[0] == "arn" && fields[1].starts_with("aws") && fields[2] == "events").then_some(fields)
}

/// Without secrets.
impl fmt::Debug for EventBridgeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBridgeOptions")
            .field("id", &self.id)
            .field("bus", &self.bus)
            .field("region", &self.environment.region)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, EventBridge};

    const ARN: &str = "arn:aws:events:eu-west-1:123456789012:event-bus/orders";

    #[track_caller]
    fn refused(options: EventBridgeOptions, option: &str) {
        let error = EventBridge::with_options(options).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidOptions, "aws.options"));
        assert!(error.to_string().contains(&format!("`{option}`")) && !error.is_transient(), "{error}");
    }

    #[test]
    fn what_cannot_be_right_is_named() {
        let good = || EventBridgeOptions::new("orders");
        for bus in ["default", "orders.v1_2-x", "aws.partner/example.com/1", ARN] {
            EventBridge::new(bus).unwrap();
        }
        let long = "a".repeat(257);
        for bus in ["", "a b", "a\r\n", "arn:aws:sqs:eu-west-1:1:q", "arn:aws:events:::rule/x", &long] {
            refused(EventBridgeOptions::new(bus), "bus");
        }
        refused(good().id(""), "id");
        refused(good().region("eu west"), "region");
        for url in ["", "localhost:4566", "ftp://a", "http://", "http://me:secret@a"] {
            refused(good().endpoint_url(url), "endpoint_url");
        }
        refused(good().credentials("", "x", None), "credentials");
        refused(good().request_entries_max(0), "request_entries_max");
        EventBridge::with_options(good().request_entries_max(100)).unwrap();
        refused(good().request_entries_max(101), "request_entries_max");
        refused(good().request_bytes_max(1024 * 1024 + 1), "request_bytes_max");
        refused(good().publish_timeout(Duration::ZERO), "publish_timeout");
        refused(good().connect_timeout(Duration::ZERO), "connect_timeout");
        refused(good().request_timeout(Duration::MAX), "request_timeout");
        refused(good().describe_interval(Duration::MAX), "describe_interval");
    }

    #[tokio::test]
    async fn the_region_is_that_of_the_arn_unless_one_is_given() {
        for (options, region) in [
            (EventBridgeOptions::new(ARN), "eu-west-1"),
            (EventBridgeOptions::new(ARN).region("us-east-2"), "us-east-2"),
        ] {
            let config = options.environment.load(options.region_of_bus()).await;
            assert_eq!(config.region().unwrap().as_ref(), region);
        }
        assert_eq!(EventBridgeOptions::new("orders").region_of_bus(), None);
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = EventBridgeOptions::new("orders").credentials("id", "secret", Some("secret".into()));
        assert!(!format!("{:?}", EventBridge::with_options(options).unwrap()).contains("secret"));
    }
}
