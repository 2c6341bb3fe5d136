//! The configuration file of `twinbox-relay`.
//!
//! ```toml
//! [database]
//! url = "postgres://localhost/orders"   # or url_file = "/run/secrets/database"; SQLite: `sqlite:orders.db`
//! service = "orders"                    # the service that owns the tables
//! pooler = true                         # behind PgBouncer in transaction mode
//! idle_poll = "25ms"                    # the pause between two looks while no message comes
//!
//! [destinations.events]                 # the id of the cursor: never change it
//! kind = "nats"
//! url = "tls://one:4222,tls://two:4222" # the servers of one cluster; or url_file
//! allow_plain = false                   # true: a connection to another machine may be without TLS
//! stream = "EVENTS"
//! prefix = "events"
//! create_stream = true
//! replicas = 3                          # of a stream it creates; also max_age, max_bytes, duplicate_window
//! batches = false                       # a stream it creates takes no batches; default: it does
//! types = ["orders.*"]                  # patterns; default: all types
//! start = "beginning"                   # or "now", or a time; only for a new destination
//! retry = "patient"                     # or `vendor` (500 ms, 2 s, 5 s, 30 s), `client` (10 s in all)
//! on_exhausted = "dead_letter"          # or "park_key", "block"
//! dead_letter_events = true             # publishes an event `twinbox.dead_letter` for each dead letter
//! in_flight = 4000
//! rate = 500                            # the most messages per second
//!
//! [destinations.bus]
//! kind = "eventbridge"
//! bus = "orders"
//! region = "eu-central-1"               # credentials: as the AWS SDK finds them
//! request_bytes = "256KiB"              # the most bytes of one request
//! lease = "20s"                         # another relay takes over after that long without a renewal
//! publish_timeout = "5s"                # a message without a response is in doubt after that long
//!
//! [vendors.resend]                      # the name by which side effects choose the vendor
//! profile = "resend"                    # what the vendor promises about repeated calls
//! url = "https://api.resend.com"
//! credential_file = "/run/secrets/resend"
//! credential_header = "authorization"   # the default
//! in_doubt = "operator"                 # or at_least_once, at_most_once; default: as the profile says
//! in_flight = 64
//! timeout = "30s"
//!
//! [retry.patient]
//! base = "1s"                           # the first delay; each next one is twice as long
//! max = "1m"
//! attempts = 20
//!
//! [admin]
//! listen = "127.0.0.1:9464"             # /livez, /readyz, /metrics
//!
//! [collector]                           # of OpenTelemetry, which OTEL_EXPORTER_OTLP_ENDPOINT names
//! allow_plain = false                   # true: `http://` to another machine is allowed
//!
//! [keeper]                              # deletes old rows, once a day in one process
//! keep = "7d"                           # of the messages that every reader has settled
//! database_url = "postgres://keeper@localhost/orders"   # if the role of [database] may not delete
//!
//! [log]
//! format = "json"                       # or "pretty"
//! ```
//!
//! # Several services, several databases
//!
//! One relay can serve several services that share a database. Each service has a schema of its own (on
//! SQLite a prefix):
//!
//! ```toml
//! [schemas.billing]                     # the namespace of further tables in the same database
//! service = "billing"                   # the service that owns them
//!
//! [destinations.invoices]
//! kind = "nats"
//! schema = "billing"                    # the schema of the outbox; default: that of `[database]`
//! url = "nats://localhost:4222"
//! stream = "INVOICES"
//! prefix = "invoices"
//! ```
//!
//! Each database can also be one of its own, such as a database for each tenant:
//!
//! ```toml
//! [databases.acme]                      # the keys of `[database]`
//! url = "postgres://localhost/acme"
//! service = "shop-acme"                 # another one in each database: message ids are derived from it
//!
//! [destinations.acme-events]
//! kind = "nats"
//! database = "acme"                     # the same key as `schema`
//! url = "nats://localhost:4222"
//! stream = "EVENTS"
//! prefix = "events"
//! ```
//!
//! - A database of Postgres that is away, slow or without tables stops no other. A file of SQLite that cannot
//!   be opened stops the start. All are of one kind.
//! - Each has a connection pool of its own.
//! - A destination takes only messages of its own schema or database.
//! - All schemas share the connection pool of `[database]`.
//! - `run --migrate`, `check` and `purge` look at all of them. `run` and `/readyz` fail if no database is
//!   usable.
//! - In `/metrics` the numbers that come from the database have a label `schema` with the name, if there are
//!   several; those of a connection pool have it if there are several databases.
//!
//! # Environment
//!
//! An environment variable overrides the file, such as `TWINBOX_RELAY__DATABASE__URL` or
//! `TWINBOX_RELAY__DESTINATIONS__EVENTS__URL`. Lists and texts of digits alone come only from the file.
mod destination;
mod error;
mod file;
mod hint;
mod keeper;
mod load;
mod outboxes;
mod print;
mod retries;
#[cfg(test)]
mod tests;
mod value;
mod vendor;
mod vendors;

pub use crate::options::OnExhausted;
pub use destination::{Common, Destination, EventBridge, Nats};
pub use error::ConfigError;
pub use file::{Admin, Collector, Config, Database, Log, LogFormat, Schema};
pub use keeper::Keeper;
pub use load::{ENVIRONMENT_PREFIX, secret};
pub(crate) use outboxes::{Outbox, Place};
pub use value::{Duration, Retry, Size, Start};
pub use vendor::{InDoubt, Vendor};
