//! The tables of the configuration file.
use super::{
    destination::Destination,
    keeper::Keeper,
    value::{Duration, Retry},
    vendor::Vendor,
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, net::SocketAddr, path::PathBuf};

/// The configuration file of `twinbox-relay`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The database of the outbox.
    pub database: Database,
    /// Further outboxes in the same database, by namespace.
    #[serde(default)]
    pub schemas: BTreeMap<String, Schema>,
    /// Further databases of the same kind, by name.
    #[serde(default)]
    pub databases: BTreeMap<String, Database>,
    /// The destinations of the relay, by id.
    #[serde(default)]
    pub destinations: BTreeMap<String, Destination>,
    /// The vendors to which side effects are sent, by name.
    #[serde(default)]
    pub vendors: BTreeMap<String, Vendor>,
    /// Retry policies of your own, by name.
    #[serde(default)]
    pub retry: BTreeMap<String, Retry>,
    /// The section about probes and metrics.
    #[serde(default)]
    pub admin: Admin,
    /// The section about the collector of traces and metrics.
    #[serde(default)]
    pub collector: Collector,
    /// The section about old rows.
    #[serde(default)]
    pub keeper: Keeper,
    /// The section about log lines.
    #[serde(default)]
    pub log: Log,
}

/// The section `[database]`, or a section `[databases.NAME]`: a database with an outbox.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Database {
    /// The URL of the database, `postgres://…`, `mysql://…` or `sqlite:FILE`.
    pub url: Option<String>,
    /// The path of a file that holds the URL of the database.
    pub url_file: Option<PathBuf>,
    /// The service that owns the tables.
    pub service: String,
    /// The schema (Postgres) or prefix (SQLite) of the tables.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// The most connections of the pool.
    #[serde(default = "default_max_connections")]
    pub max_connections: u32,
    /// Whether a pooler in transaction mode, such as PgBouncer, stands in front of Postgres.
    #[serde(default)]
    pub pooler: bool,
    /// Whether a connection to another machine may be without verified TLS, that of the keeper too.
    #[serde(default)]
    pub allow_plain: bool,
    /// How often the relay looks for messages, delayed messages, replays and effects when there were none: at
    /// least every 2 ms, 250 ms, 1 s and 200 ms. A longer time lets a database rest.
    #[serde(default = "default_idle_poll")]
    pub idle_poll: Duration,
}

/// A section `[schemas.NAME]`: the tables of another service in the same database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schema {
    /// The service that owns the tables.
    pub service: String,
}

/// The section `[admin]`: the address of probes and metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Admin {
    /// The address that serves `/livez`, `/readyz` and `/metrics`. Default: none.
    ///
    /// There is no authentication: use a loopback address, or protect the port.
    pub listen: Option<SocketAddr>,
}

/// The section `[collector]`: the connection to the collector of traces and metrics, which variables of
/// OpenTelemetry name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collector {
    /// Whether the connection to another machine may be without TLS.
    #[serde(default)]
    pub allow_plain: bool,
}

/// The section `[log]`: level and format of log lines. `RUST_LOG` sets its level.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// The format of log lines.
    #[serde(default)]
    pub format: LogFormat,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Writes text for people.
    #[default]
    Pretty,
    /// Writes one JSON object per line.
    Json,
}

fn default_namespace() -> String {
    "twinbox".to_owned()
}

fn default_idle_poll() -> Duration {
    Duration(twinbox_log::POLL_IDLE)
}

fn default_max_connections() -> u32 {
    8
}

/// Without the URL, which may hold a password.
impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("service", &self.service).finish_non_exhaustive()
    }
}
