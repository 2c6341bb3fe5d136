//! The configuration file of `twinbox-relay`.
//!
//! ```toml
//! [database]
//! url = "postgres://localhost/orders"   # or url_file = "/run/secrets/database"; `sqlite:orders.db` too
//! service = "orders"                    # whose tables these are
//!
//! [destinations.events]                 # the id under which the cursor is kept, for good
//! kind = "nats"
//! url = "nats://localhost:4222"         # or url_file
//! stream = "EVENTS"
//! prefix = "events"
//! create_stream = true
//! ```
//!
//! Every value can come from the environment instead, which wins over the file:
//! `TWINBOX_RELAY__DATABASE__URL`, `TWINBOX_RELAY__DESTINATIONS__EVENTS__URL`.
use serde::Deserialize;
use std::{collections::BTreeMap, fmt, fs, path::Path, path::PathBuf};
use toml::{Table, Value};

/// What starts the name of an environment variable that sets a value; `__` separates the levels.
pub const ENVIRONMENT_PREFIX: &str = "TWINBOX_RELAY__";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the outbox is.
    pub database: Database,
    /// Where its messages go, by id.
    pub destinations: BTreeMap<String, Destination>,
}

/// Where the outbox is.
#[derive(Clone, PartialEq, Eq, Deserialize)]
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
}

/// One destination.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Destination {
    /// NATS JetStream.
    Nats(Nats),
}

/// A stream of NATS JetStream.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nats {
    /// `nats://…` or `tls://…`.
    pub url: Option<String>,
    /// A file that holds the URL.
    pub url_file: Option<PathBuf>,
    /// A `.creds` file.
    pub credentials_file: Option<PathBuf>,
    /// A file that holds a token.
    pub token_file: Option<PathBuf>,
    /// Certificates to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// The stream.
    #[serde(default = "stream")]
    pub stream: String,
    /// What every subject begins with.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// Over how many partitions keys are spread. Not to be changed for a stream in use.
    #[serde(default = "partitions")]
    pub partitions: u32,
    /// Creates the stream if it is missing.
    #[serde(default)]
    pub create_stream: bool,
    /// Messages that are sent and not yet acknowledged, at most.
    #[serde(default = "in_flight")]
    pub in_flight: usize,
    /// Where to start, if nothing was ever published there.
    #[serde(default)]
    pub start: Start,
}

/// Where a destination starts that was never published to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// At the oldest message of the log.
    #[default]
    Beginning,
    /// After everything that is committed now.
    Now,
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

impl Config {
    /// Reads a file, if there is one, and lays the environment over it.
    ///
    /// # Errors
    /// The file cannot be read, is no TOML, or says something that is not known; names the line where there
    /// is one.
    pub fn load(
        path: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let name = path.map_or(ENVIRONMENT_PREFIX.to_owned() + "…", |path| path.display().to_string());
        let text = match path {
            Some(path) => fs::read_to_string(path).map_err(|e| ConfigError(format!("{name}: {e}")))?,
            None => String::new(),
        };
        let mut set: Vec<_> = environment.filter(|(name, _)| name.starts_with(ENVIRONMENT_PREFIX)).collect();
        if set.is_empty() && path.is_none() {
            let what =
                "nothing says what to relay: name a file with `--config`, or set TWINBOX_RELAY__… variables";
            return Err(ConfigError(what.to_owned()));
        }
        if set.is_empty() {
            return toml::from_str(&text).map_err(|e| ConfigError(format!("{name}: {e}")));
        }
        set.sort();
        let mut table: Table = toml::from_str(&text).map_err(|e| ConfigError(format!("{name}: {e}")))?;
        for (variable, value) in set {
            let path = variable[ENVIRONMENT_PREFIX.len()..].to_ascii_lowercase();
            lay(&mut table, &path.split("__").collect::<Vec<_>>(), value)
                .map_err(|problem| ConfigError(format!("{variable}: {problem}")))?;
        }
        table.try_into().map_err(|e| ConfigError(format!("{name}, the environment laid over it: {e}")))
    }
}

fn lay(table: &mut Table, path: &[&str], value: String) -> Result<(), &'static str> {
    match path {
        [] => Err("names no value"),
        [name] => {
            let plain =
                value.parse::<i64>().map(Value::from).or_else(|_| value.parse::<bool>().map(Value::from));
            table.insert((*name).to_owned(), plain.unwrap_or(Value::String(value)));
            Ok(())
        }
        [name, rest @ ..] => match table.entry(*name).or_insert_with(|| Table::new().into()) {
            Value::Table(inner) => lay(inner, rest, value),
            _ => Err("is below a value that is no table"),
        },
    }
}

/// A secret that is written down, or is in a file.
///
/// # Errors
/// Both or neither are given, or the file cannot be read.
pub fn secret(what: &str, value: Option<&str>, file: Option<&Path>) -> Result<String, ConfigError> {
    match (value, file) {
        (Some(value), None) => Ok(value.to_owned()),
        (None, Some(file)) => {
            let read = fs::read_to_string(file);
            let text = read.map_err(|e| ConfigError(format!("{what}_file {}: {e}", file.display())))?;
            Ok(text.trim_end().to_owned())
        }
        _ => Err(ConfigError(format!("set one of `{what}` and `{what}_file`"))),
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("service", &self.service).finish_non_exhaustive()
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("stream", &self.stream).finish_non_exhaustive()
    }
}

/// What has to change in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(pub(crate) String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.trim_end())
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
        [database]
        url = 'postgres://localhost/orders'
        service = 'orders'
        [destinations.events]
        kind = 'nats'
        url = 'nats://localhost'
    ";

    fn load(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("relay.toml");
        fs::write(&path, text).unwrap();
        let environment = environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Config::load(Some(&path), environment).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_file_and_environment_in_this_order() {
        let Destination::Nats(nats) = &load(FILE, &[]).unwrap().destinations["events"];
        assert_eq!((nats.stream.as_str(), nats.partitions, nats.start), ("EVENTS", 16, Start::Beginning));
        let environment = [
            ("TWINBOX_RELAY__DESTINATIONS__EVENTS__STREAM", "ORDERS"),
            ("TWINBOX_RELAY__DESTINATIONS__EVENTS__PARTITIONS", "4"),
            ("TWINBOX_RELAY__DATABASE__SERVICE", "shop"),
        ];
        let config = load(FILE, &environment).unwrap();
        let Destination::Nats(nats) = &config.destinations["events"];
        assert_eq!((nats.stream.as_str(), nats.partitions), ("ORDERS", 4));
        assert_eq!(config.database.service, "shop");
    }

    #[test]
    fn what_is_not_known_is_named_with_its_line() {
        let error = load(&FILE.replace("service =", "servise ="), &[]).unwrap_err();
        assert!(
            error.contains("line 4") && error.contains("servise") && error.contains("service"),
            "{error}"
        );
        let error = load("[database", &[]).unwrap_err();
        assert!(error.contains("line 1"), "{error}");
        let error = load(FILE, &[("TWINBOX_RELAY__DATABASE__URL__X", "1")]).unwrap_err();
        assert!(error.contains("TWINBOX_RELAY__DATABASE__URL__X"), "{error}");
    }

    #[test]
    fn secrets_come_from_one_place_and_are_not_printed() {
        assert_eq!(secret("url", Some("a"), None).unwrap(), "a");
        let both = secret("url", Some("a"), Some(Path::new("b"))).unwrap_err();
        assert_eq!(both.to_string(), "set one of `url` and `url_file`");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("url");
        fs::write(&file, "postgres://secret\n").unwrap();
        assert_eq!(secret("url", None, Some(&file)).unwrap(), "postgres://secret");
        let config = load(&FILE.replace("localhost", "me:secret@localhost"), &[]).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
    }
}
