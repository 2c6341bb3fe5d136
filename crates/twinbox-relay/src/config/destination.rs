//! The destinations of the configuration file.
use super::value::{Duration, Size, Start};
use crate::options::OnExhausted;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf};
use twinbox_core::TypePattern;

/// A destination of the configuration file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Destination {
    /// A destination on NATS JetStream.
    Nats(Box<Nats>),
    /// A destination on Amazon EventBridge.
    EventBridge(Box<EventBridge>),
}

impl Destination {
    /// Returns the settings that every kind of destination has.
    pub fn common(&self) -> Common<'_> {
        match self {
            Self::Nats(nats) => nats.common(),
            Self::EventBridge(bus) => bus.common(),
        }
    }
}

/// The settings that every kind of destination has.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    /// The name of the outbox. `None`: that of `[database]`.
    pub schema: Option<&'a str>,
    /// Patterns of the types that the destination takes. Empty: all types.
    pub types: &'a [TypePattern],
    /// The most messages in flight.
    pub in_flight: usize,
    /// The most messages per second.
    pub rate: Option<u32>,
    /// `vendor`, `client` or the name of a table `[retry.NAME]`.
    pub retry: &'a str,
    /// What happens to a message that is given up.
    pub on_exhausted: OnExhausted,
    /// Whether each dead letter publishes an event `twinbox.dead_letter`.
    pub dead_letter_events: bool,
    /// Where a new destination starts in the log.
    pub start: Option<Start>,
    /// How long a relay owns the destination without renewing the lease.
    pub lease: Duration,
    /// How long a sent message may stay without a response. `None`: the destination's default.
    pub publish_timeout: Option<Duration>,
}

// serde cannot both flatten shared fields and refuse unknown ones.
macro_rules! destination {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
            /// The outbox, by the name of its table `[schemas.NAME]` or `[databases.NAME]`. Default: that of
            /// `[database]`.
            #[serde(alias = "database")]
            pub schema: Option<String>,
            /// Patterns of the types that the destination takes. Default: all types.
            #[serde(default)]
            pub types: Vec<TypePattern>,
            /// The most messages in flight.
            #[serde(default = "default_in_flight")]
            pub in_flight: usize,
            /// The most messages per second.
            pub rate: Option<u32>,
            /// `vendor`, `client` or the name of a table `[retry.NAME]`.
            #[serde(default = "default_retry")]
            pub retry: String,
            /// What happens to a message that is given up.
            #[serde(default)]
            pub on_exhausted: OnExhausted,
            /// Whether each dead letter publishes an event `twinbox.dead_letter`. The event goes to the
            /// destinations that take its type.
            #[serde(default)]
            pub dead_letter_events: bool,
            /// Where a new destination starts in the log. Required if the log has messages.
            pub start: Option<Start>,
            /// How long a relay owns the destination without renewing the lease.
            #[serde(default = "default_lease")]
            pub lease: Duration,
            /// How long a sent message may stay without a response. Default 2 s; less than
            /// three quarters of the lease, and best at most a half.
            pub publish_timeout: Option<Duration>,
            /// Whether a connection to another machine may be without TLS.
            #[serde(default)]
            pub allow_plain: bool,
        }

        impl $name {
            fn common(&self) -> Common<'_> {
                Common {
                    schema: self.schema.as_deref(),
                    types: &self.types,
                    in_flight: self.in_flight,
                    rate: self.rate,
                    retry: &self.retry,
                    on_exhausted: self.on_exhausted,
                    dead_letter_events: self.dead_letter_events,
                    start: self.start,
                    lease: self.lease,
                    publish_timeout: self.publish_timeout,
                }
            }
        }
    };
}

destination! {
    /// A stream of NATS JetStream.
    Nats {
        /// `tls://…` or `nats://…`. Commas separate the servers of a cluster.
        url: Option<String>,
        /// A file that holds the URL.
        url_file: Option<PathBuf>,
        /// A `.creds` file.
        credentials_file: Option<PathBuf>,
        /// A file that holds a token.
        token_file: Option<PathBuf>,
        /// Certificates to trust instead of those of the system.
        ca_file: Option<PathBuf>,
        /// The client certificate. Needs `client_key_file`.
        client_certificate_file: Option<PathBuf>,
        /// The key of the client certificate.
        client_key_file: Option<PathBuf>,
        /// The first words of the subjects on which the relay gets its answers.
        #[serde(default = "default_inbox_prefix")]
        inbox_prefix: String,
        /// The domain of JetStream that has the stream. Default: that of the server.
        domain: Option<String>,
        /// Where requests to JetStream go. Default: `$JS.API`. Excludes `domain`.
        api_prefix: Option<String>,
        /// The name of the stream.
        #[serde(default = "default_stream")]
        stream: String,
        /// The prefix of every subject.
        #[serde(default = "default_prefix")]
        prefix: String,
        /// The number of partitions that keys are spread over. Never change it for a stream in use.
        #[serde(default = "default_partitions")]
        partitions: u32,
        /// Over how many streams the partitions are spread. Never change it for streams in use.
        #[serde(default = "default_streams")]
        streams: u32,
        /// Whether the relay creates the stream if it is missing.
        #[serde(default)]
        create_stream: bool,
        /// Whether a stream that the relay creates takes batches, from NATS 2.14 on. Default: yes.
        #[serde(default = "default_batches")]
        batches: bool,
        /// On how many servers a stream that the relay creates has a copy.
        #[serde(default = "default_replicas")]
        replicas: u8,
        /// How long such a stream keeps messages.
        #[serde(default = "default_max_age")]
        max_age: Duration,
        /// The bytes at which such a stream takes no more. Default: no limit.
        max_bytes: Option<Size>,
        /// How long such a stream drops copies of a message.
        #[serde(default = "default_duplicate_window")]
        duplicate_window: Duration,
    }
}

destination! {
    /// A bus of Amazon EventBridge. The AWS SDK finds the credentials.
    EventBridge {
        /// The name or the ARN of the bus.
        bus: String,
        /// The region. Default: the AWS SDK finds it.
        region: Option<String>,
        /// The URL of an emulator. Default: AWS.
        endpoint_url: Option<String>,
        /// The most bytes of one request, up to `1MiB`; `256KiB` in China.
        request_bytes: Option<Size>,
        /// The most events of one request, up to 100. Default 10: set more only if the bus takes more.
        request_entries: Option<usize>,
    }
}

fn default_retry() -> String {
    "vendor".to_owned()
}

fn default_lease() -> Duration {
    Duration(std::time::Duration::from_secs(4))
}

fn default_inbox_prefix() -> String {
    "_INBOX".to_owned()
}

fn default_stream() -> String {
    "EVENTS".to_owned()
}

fn default_prefix() -> String {
    "events".to_owned()
}

fn default_partitions() -> u32 {
    16
}

fn default_streams() -> u32 {
    1
}

fn default_batches() -> bool {
    true
}

fn default_replicas() -> u8 {
    1
}

fn default_max_age() -> Duration {
    Duration(std::time::Duration::from_secs(7 * 24 * 3600))
}

fn default_duplicate_window() -> Duration {
    Duration(std::time::Duration::from_secs(120))
}

fn default_in_flight() -> usize {
    4000
}

impl fmt::Debug for EventBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBridge").field("bus", &self.bus).finish_non_exhaustive()
    }
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("stream", &self.stream).finish_non_exhaustive()
    }
}
