//! The configuration file of `twinbox-relay`.
//!
//! ```toml
//! [database]
//! url = "postgres://localhost/orders"   # or url_file = "/run/secrets/database"; `sqlite:orders.db` too
//! service = "orders"                    # whose tables these are
//! pooler = true                         # behind PgBouncer in transaction mode
//!
//! [destinations.events]                 # the id under which the cursor is kept, for good
//! kind = "nats"
//! url = "nats://localhost:4222"         # or url_file
//! stream = "EVENTS"
//! prefix = "events"
//! create_stream = true
//! types = ["orders.*"]                  # patterns; without it all types
//! start = "beginning"                   # or "now", or a time; only for a destination that is new
//! retry = "patient"                     # `vendor` (500 ms, 2 s, 5 s, 30 s), `client` (10 s in all), or yours
//! on_exhausted = "dead_letter"          # or "park_key", "block"
//! dead_letter_events = true             # an event `twinbox.dead_letter` for each message that is given up
//! in_flight = 2000
//! rate = 500                            # messages a second, at most
//!
//! [destinations.bus]
//! kind = "eventbridge"
//! bus = "orders"
//! region = "eu-central-1"               # credentials come from where the AWS SDK looks for them
//! request_bytes = "256KiB"              # at most
//! lease = "20s"                         # without a word for that long another relay takes over
//! publish_timeout = "5s"                # without an answer for that long a message is in doubt
//!
//! [retry.patient]
//! base = "1s"                           # doubling
//! max = "1m"
//! attempts = 20
//!
//! [admin]
//! listen = "127.0.0.1:9464"             # /livez, /readyz, /metrics
//!
//! [log]
//! format = "json"                       # or "pretty"
//! ```
//!
//! One relay can serve several services that share a database, each with a schema (on SQLite a prefix) of its own:
//!
//! ```toml
//! [schemas.billing]                     # the namespace of further tables in the same database
//! service = "billing"                   # whose they are
//!
//! [destinations.invoices]
//! kind = "nats"
//! schema = "billing"                    # whose outbox goes there; without it that of `[database]`
//! url = "nats://localhost:4222"
//! stream = "INVOICES"
//! prefix = "invoices"
//! ```
//!
//! A type is looked for among the destinations of its own schema. All share the pool of `[database]`, `run --migrate`,
//! `check`, `purge`, `rebase` and `/readyz` look at every schema, and what the database tells in `/metrics` has a label
//! `schema` then. `retire NAME` asks for `--schema`, because a destination that left the file is in it no more.
//!
//! Every value can come from the environment instead, which wins over the file:
//! `TWINBOX_RELAY__DATABASE__URL`, `TWINBOX_RELAY__DESTINATIONS__EVENTS__URL`.
mod load;
mod print;
mod retries;
mod schemas;
mod value;

pub use load::{ConfigError, ENVIRONMENT_PREFIX, secret};
pub use value::{Duration, Exhausted, Retry, Size, Start};

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};
use twinbox_core::TypePattern;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the outbox is.
    pub database: Database,
    /// Further outboxes in the same database, by namespace.
    #[serde(default)]
    pub schemas: BTreeMap<String, Schema>,
    /// Where its messages go, by id.
    #[serde(default)]
    pub destinations: BTreeMap<String, Destination>,
    /// When messages are tried again, by name.
    #[serde(default)]
    pub retry: BTreeMap<String, Retry>,
    /// Probes and metrics.
    #[serde(default)]
    pub admin: Admin,
    /// What is logged.
    #[serde(default)]
    pub log: Log,
}

/// Probes and metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// Where `/livez`, `/readyz` and `/metrics` are served, to whoever asks: keep it on loopback or behind a
    /// wall. Without it nowhere.
    pub listen: Option<SocketAddr>,
}

/// What is logged. `RUST_LOG` chooses how much.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// How a line looks.
    #[serde(default)]
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One object a line.
    Json,
}

/// Where the outbox is.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// `postgres://…` or `sqlite:FILE`.
    pub url: Option<String>,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// The service that owns the tables.
    pub service: String,
    /// The schema (Postgres) or prefix (SQLite) of the tables.
    #[serde(default = "namespace")]
    pub namespace: String,
    /// Connections at most.
    #[serde(default = "connections")]
    pub max_connections: u32,
    /// A pooler in transaction mode, such as PgBouncer, stands in front of Postgres.
    #[serde(default)]
    pub pooler: bool,
}

/// The tables of another service in the same database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The service that owns them.
    pub service: String,
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Destination {
    /// NATS JetStream.
    Nats(Nats),
    /// Amazon EventBridge.
    EventBridge(EventBridge),
}

impl Destination {
    /// What every kind of destination can be told.
    pub fn common(&self) -> Common<'_> {
        match self {
            Self::Nats(nats) => nats.common(),
            Self::EventBridge(bus) => bus.common(),
        }
    }
}

/// What every kind of destination can be told.
#[derive(Debug, Clone, Copy)]
pub struct Common<'a> {
    /// The namespace of the outbox that goes there; none: that of `[database]`.
    pub schema: Option<&'a str>,
    /// Patterns of the types that it takes; none: all.
    pub types: &'a [TypePattern],
    /// Messages that are sent and not yet acknowledged, at most.
    pub in_flight: usize,
    /// Messages a second, at most.
    pub rate: Option<u32>,
    /// `vendor`, `client` or the name of a table `[retry.NAME]`.
    pub retry: &'a str,
    /// What becomes of a message that is given up.
    pub on_exhausted: Exhausted,
    /// Whether an event `twinbox.dead_letter` is published for each message that is given up.
    pub dead_letter_events: bool,
    /// Where to start, if nothing was ever published there.
    pub start: Option<Start>,
    /// For how long a relay that is not heard of keeps others out.
    pub lease: Duration,
    /// How long a message that was sent may stay without an answer, unless it is the destination's default.
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
            /// The namespace of the outbox that goes there. Default: that of `[database]`.
            pub schema: Option<String>,
            /// Patterns of the types that it takes; none: all.
            #[serde(default)]
            pub types: Vec<TypePattern>,
            /// Messages that are sent and not yet acknowledged, at most.
            #[serde(default = "in_flight")]
            pub in_flight: usize,
            /// Messages a second, at most.
            pub rate: Option<u32>,
            /// `vendor`, `client` or the name of a table `[retry.NAME]`.
            #[serde(default = "retry")]
            pub retry: String,
            /// What becomes of a message that is given up.
            #[serde(default)]
            pub on_exhausted: Exhausted,
            /// Whether an event `twinbox.dead_letter` is published for each message that is given up. It goes
            /// where its type is taken, like any other.
            #[serde(default)]
            pub dead_letter_events: bool,
            /// Where to start, if nothing was ever published there. Has to be said if the log has messages.
            pub start: Option<Start>,
            /// For how long a relay that is not heard of keeps others out.
            #[serde(default = "lease")]
            pub lease: Duration,
            /// How long a message that was sent may stay without an answer. Default 2 s; at most half a lease.
            pub publish_timeout: Option<Duration>,
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
        /// `nats://…` or `tls://…`.
        url: Option<String>,
        /// A file that holds the URL.
        url_file: Option<PathBuf>,
        /// A `.creds` file.
        credentials_file: Option<PathBuf>,
        /// A file that holds a token.
        token_file: Option<PathBuf>,
        /// Certificates to trust instead of the system's.
        ca_file: Option<PathBuf>,
        /// The certificate that is shown to the server, with `client_key_file`.
        client_certificate_file: Option<PathBuf>,
        /// Its key.
        client_key_file: Option<PathBuf>,
        /// The stream.
        #[serde(default = "stream")]
        stream: String,
        /// What every subject begins with.
        #[serde(default = "prefix")]
        prefix: String,
        /// Over how many partitions keys are spread. Not to be changed for a stream in use.
        #[serde(default = "partitions")]
        partitions: u32,
        /// Creates the stream if it is missing.
        #[serde(default)]
        create_stream: bool,
    }
}

destination! {
    /// A bus of Amazon EventBridge. Credentials come from where the AWS SDK looks for them.
    EventBridge {
        /// The name or the ARN of the bus.
        bus: String,
        /// The region. Without it the AWS SDK looks for one.
        region: Option<String>,
        /// Where to send to instead of AWS, for an emulator.
        endpoint_url: Option<String>,
        /// Bytes of one request, at most `1MiB`; `256KiB` in China.
        request_bytes: Option<Size>,
        /// Events of one request: 10 unless the bus takes more, and at most 100.
        request_entries: Option<usize>,
    }
}

fn retry() -> String {
    "vendor".to_owned()
}

fn lease() -> Duration {
    Duration(std::time::Duration::from_secs(4))
}

fn namespace() -> String {
    "twinbox".to_owned()
}

fn connections() -> u32 {
    8
}

fn stream() -> String {
    "EVENTS".to_owned()
}

fn prefix() -> String {
    "events".to_owned()
}

fn partitions() -> u32 {
    16
}

fn in_flight() -> usize {
    2000
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("service", &self.service).finish_non_exhaustive()
    }
}

impl fmt::Debug for EventBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBridge").field("bus", &self.bus).finish_non_exhaustive()
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("stream", &self.stream).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
