//! The bus, the access to it, and the limits of publishing.
use crate::{
    client_settings::{ClientSettings, client_setting_methods, is_region, validate_timeouts},
    error::Error,
};
use std::{fmt, time::Duration};
use twinbox_core::limits;

/// Entries of one request that every bus accepts.
const ENTRIES_DEFAULT: usize = 10;
/// The most entries of one request that the option accepts, for a bus that accepts more.
const ENTRIES_MAX: usize = 100;
/// The most bytes of one request, as EventBridge counts them.
const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Bytes for the envelope that EventBridge adds to an event. A queue accepts 1 MiB with the envelope.
const ENVELOPE_BYTES: usize = 4 * 1024;
/// The smallest request limit that the option accepts.
const REQUEST_BYTES_MIN: usize = 1024;
/// The most bytes of an ARN.
const ARN_BYTES_MAX: usize = 1600;
/// The most bytes of the name of a bus.
const BUS_BYTES_MAX: usize = 256;

/// The options of an EventBridge bus: its name, the access to it, and the limits of publishing.
#[derive(Clone)]
#[must_use]
pub struct EventBridgeOptions {
    pub(crate) bus: String,
    pub(crate) id: String,
    pub(crate) client: ClientSettings,
    pub(crate) request_entries_max: usize,
    pub(crate) request_bytes_max: usize,
    pub(crate) publish_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) describe_interval: Duration,
}

impl EventBridgeOptions {
    /// Creates options for a bus, by name or ARN.
    pub fn new(bus: impl Into<String>) -> Self {
        Self {
            bus: bus.into(),
            id: "eventbridge".to_owned(),
            client: ClientSettings::default(),
            request_entries_max: ENTRIES_DEFAULT,
            request_bytes_max: REQUEST_BYTES_MAX - ENVELOPE_BYTES,
            publish_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
            describe_interval: Duration::from_secs(60),
        }
    }

    /// Sets the id of the destination. A relay stores its cursor under this id. Default `eventbridge`.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    client_setting_methods!();

    /// Sets the maximum number of events in one request. Default 10, which every bus accepts; at most 100.
    ///
    /// A request that the bus refuses as a whole is repeated event by event, so a value beyond the limit of
    /// the bus is slow.
    pub fn request_entries_max(mut self, entries: usize) -> Self {
        self.request_entries_max = entries;
        self
    }

    /// Sets the maximum size of one request in bytes, as EventBridge counts them. A larger message is refused
    /// for good.
    ///
    /// Default 1 MiB less 4 KiB, so that an accepted event also fits into a queue behind a rule.
    /// At most 1 MiB. Regions in China accept 256 KiB.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.request_bytes_max = bytes;
        self
    }

    /// Sets how long a batch may take before its remaining messages fail. Messages without a response fail
    /// with `Unanswered`: they may have arrived. Unsent messages fail with `Throttled`. A relay's lease must
    /// be longer. Default 2 s.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// Sets the time-out for name resolution, TCP and TLS together. A service that is not reached in this
    /// time is unavailable. Default 1 s.
    ///
    /// Keep it below [`publish_timeout`](Self::publish_timeout): otherwise a message that was never sent
    /// fails with `Unanswered`, as if it might have arrived.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the time-out for connecting, which includes loading credentials and checking the bus.
    /// Default 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the interval at which the publisher checks that the bus exists. EventBridge acknowledges and
    /// drops an event for a deleted bus. Default 60 s.
    pub fn describe_interval(mut self, interval: Duration) -> Self {
        self.describe_interval = interval;
        self
    }

    /// Returns the region in the ARN of the bus.
    pub(crate) fn region_of_bus(&self) -> Option<&str> {
        arn_fields(&self.bus).map(|fields| fields[3])
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        if !is_bus(&self.bus) {
            let problem = "must be a name of letters, digits, `.`, `-`, `_` and `/`, or the ARN of a bus";
            return Err(Error::invalid("bus", problem));
        }
        if self.id.is_empty() || self.id.len() > limits::NAME_BYTES_MAX {
            return Err(Error::invalid("id", "must have 1 to 120 bytes"));
        }
        self.client.validate()?;
        if !(1..=ENTRIES_MAX).contains(&self.request_entries_max) {
            return Err(Error::invalid("request_entries_max", "must be 1 to 100"));
        }
        if !(REQUEST_BYTES_MIN..=REQUEST_BYTES_MAX).contains(&self.request_bytes_max) {
            return Err(Error::invalid("request_bytes_max", "must be 1 KiB to 1 MiB"));
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

/// Splits the ARN of a bus: `arn`, partition, `events`, region, account, `event-bus/<name>`.
fn arn_fields(text: &str) -> Option<[&str; 6]> {
    let fields: Vec<&str> = text.split(':').collect();
    let fields: [&str; 6] = fields.try_into().ok()?;
    (fields[0] == "arn" && fields[1].starts_with("aws") && fields[2] == "events").then_some(fields)
}

/// Prints no secret.
impl fmt::Debug for EventBridgeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBridgeOptions")
            .field("id", &self.id)
            .field("bus", &self.bus)
            .field("region", &self.client.region)
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
    fn an_invalid_option_is_named() {
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
        refused(good().endpoint_url("http://bus.example.org"), "allow_plain");
        for url in ["https://bus.example.org", "http://127.0.0.1:4566", "http://[::1]:4566"] {
            EventBridge::with_options(good().endpoint_url(url)).unwrap();
        }
        let plain = good().endpoint_url("http://bus.example.org").allow_plain(true);
        assert!(plain.client.protection().unwrap().warning().is_some());
        EventBridge::with_options(plain).unwrap();
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
    async fn the_region_comes_from_the_arn_unless_it_is_set() {
        for (options, region) in [
            (EventBridgeOptions::new(ARN), "eu-west-1"),
            (EventBridgeOptions::new(ARN).region("us-east-2"), "us-east-2"),
        ] {
            let config = options.client.load(options.region_of_bus()).await;
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
