//! The database that the tool connects to.
mod masked;

use crate::{
    exit::{Exit, invalid},
    output::Output,
};
use clap::Args;
use masked::{MYSQL_PORT, masked};
use serde::Serialize;
use sqlx::{
    ConnectOptions as _, Executor as _, MySql, PgConnection, Postgres,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::SqliteConnectOptions,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};
use twinbox_core::{codec::AesGcm, task_name::TaskName};
use twinbox_sql::{Dialect, StoreOptions, bound_lock_waits, follow_url_file, program_options};

/// How long a connection may take.
const CONNECTION_MAX: Duration = Duration::from_secs(5);
const NAMESPACE: &str = "twinbox";

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct ConnectionArguments {
    /// The database: `postgres://…`, `mysql://…` or `sqlite:FILE`. Keep a password in the environment or in a
    /// file. The command line wins over the environment. [env: DATABASE_URL]
    #[arg(long, global = true, value_name = "URL")]
    database_url: Option<String>,
    /// A file that contains the URL. [env: DATABASE_URL_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// The schema of the tables on Postgres, their prefix on MySQL and SQLite.
    #[arg(long, global = true, env = "TWINBOX_NAMESPACE", value_name = "NAME", default_value = NAMESPACE)]
    namespace: String,
    /// Work through a connection pooler in transaction mode, such as PgBouncer.
    #[arg(long, global = true, env = "TWINBOX_POOLER")]
    pooler: bool,
    /// Allow a connection to a database on another machine without TLS, or without a verified certificate.
    #[arg(long, global = true, env = "TWINBOX_ALLOW_PLAIN")]
    allow_plain: bool,
    /// A file with the keys of payloads that `AesGcm` has encrypted. Payloads are then shown and exported
    /// decrypted, and imported encrypted.
    #[arg(long, global = true, env = "TWINBOX_PAYLOAD_KEYS", value_name = "FILE")]
    payload_keys: Option<PathBuf>,
    /// Whether a login that changes in the file of the URL is used.
    #[arg(skip)]
    follows_file: bool,
}

/// The URL of a database, what gave it, and the file that holds it, if one does.
struct GivenUrl {
    text: String,
    from: &'static str,
    file: Option<PathBuf>,
}

impl GivenUrl {
    fn from_text(text: String, from: &'static str) -> Self {
        Self { text, from, file: None }
    }

    fn from_file(file: &Path, from: &'static str) -> Result<Self, Exit> {
        Ok(Self { text: read(file)?, from, file: Some(file.to_owned()) })
    }
}

/// A connection that is not open yet.
pub(crate) enum Connection {
    Postgres(sqlx::PgPool),
    MySql(sqlx::MySqlPool),
    Sqlite(Box<SqliteConnectOptions>),
}

/// Identifies a database for a person, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DatabaseName {
    host: String,
    database: String,
    namespace: String,
}

impl DatabaseName {
    /// Identifies the database in a record: `db.example.org:5432/shop`.
    pub(crate) fn id(&self) -> String {
        let Self { host, database, namespace } = self;
        let path = if database.starts_with('/') { database.clone() } else { format!("{host}/{database}") };
        if namespace == NAMESPACE { path } else { format!("{path} ({namespace})") }
    }
}

impl fmt::Display for DatabaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}, database {}", self.host, self.database)?;
        if self.namespace == NAMESPACE { Ok(()) } else { write!(f, ", namespace {}", self.namespace) }
    }
}

impl ConnectionArguments {
    /// Uses the login that the file of the URL holds later, for a command that runs long.
    pub(crate) fn following_file(self) -> Self {
        Self { follows_file: true, ..self }
    }

    /// The same namespace of another database.
    pub(crate) fn with_url(&self, url: &str) -> Self {
        Self { database_url: Some(url.to_owned()), database_url_file: None, ..self.clone() }
    }

    /// The command line wins over the environment.
    fn url(&self) -> Result<GivenUrl, Exit> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        match (&self.database_url, &self.database_url_file) {
            (Some(_), Some(_)) => {
                return Err(Exit::usage("use either --database-url or --database-url-file, not both"));
            }
            (Some(url), None) => return Ok(GivenUrl::from_text(url.clone(), "--database-url")),
            (None, Some(file)) => return GivenUrl::from_file(file, "--database-url-file"),
            (None, None) => {}
        }
        if let Some(url) = variable("DATABASE_URL") {
            return Ok(GivenUrl::from_text(url, "DATABASE_URL"));
        }
        match variable("DATABASE_URL_FILE") {
            Some(file) => GivenUrl::from_file(Path::new(&file), "DATABASE_URL_FILE"),
            None => Err(Exit::usage(
                "no database is given: use --database-url, --database-url-file, DATABASE_URL or \
                 DATABASE_URL_FILE",
            )),
        }
    }

    pub(crate) fn has_pooler(&self) -> bool {
        self.pooler
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// # Errors
    /// The file of keys cannot be read.
    pub(crate) fn store_options(&self) -> Result<StoreOptions, Exit> {
        let options = StoreOptions::new().namespace(&self.namespace).pooler(self.pooler);
        let Some(file) = &self.payload_keys else { return Ok(options) };
        let keys = read(file)?.parse::<AesGcm>();
        Ok(options.codec(keys.map_err(|error| invalid(&format!("the file {}", file.display()), error))?))
    }

    /// Prepares a connection. Connects to nothing yet.
    pub(crate) fn prepare(&self) -> Result<(Connection, DatabaseName), Exit> {
        let GivenUrl { text: url, file, .. } = self.url()?;
        let file = file.filter(|_| self.follows_file);
        let name = |host, database| DatabaseName { host, database, namespace: self.namespace.clone() };
        // Without sqlx's error text, which repeats parts of the URL.
        let unfit = |_| Exit::usage("the URL of the database cannot be parsed");
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                let has_pooler = self.pooler;
                let parse =
                    move |url: &str| Ok(program_options(url, has_pooler)?.application_name("twinbox"));
                let options = parse(&url).map_err(unfit)?;
                self.check::<Postgres>(&options)?;
                let name = name(host(&options), database(&options));
                let mut pool = PgPoolOptions::new().max_connections(4).acquire_timeout(CONNECTION_MAX);
                if !self.pooler {
                    pool = pool.after_connect(|conn, _| Box::pin(without_compiler(conn)));
                }
                let pool = pool.connect_lazy_with(options);
                if let Some(file) = file {
                    tokio::spawn(TaskName::FollowUrlFile.of(follow_url_file(pool.clone(), file, url, parse)));
                }
                Ok((Connection::Postgres(pool), name))
            }
            Some("mysql" | "mariadb") => {
                let options: MySqlConnectOptions = url.parse().map_err(unfit)?;
                self.check::<MySql>(&options)?;
                let parsed = options.to_url_lossy();
                let port = parsed.port().unwrap_or(MYSQL_PORT);
                let host = format!("{}:{port}", parsed.host_str().unwrap_or_default());
                let name = name(host, options.get_database().unwrap_or_default().to_owned());
                let pool = MySqlPoolOptions::new().max_connections(4).acquire_timeout(CONNECTION_MAX);
                let pool = pool.after_connect(|conn, _| Box::pin(bound_lock_waits(conn)));
                let pool = pool.connect_lazy_with(options);
                if let Some(file) = file {
                    tokio::spawn(TaskName::FollowUrlFile.of(follow_url_file(
                        pool.clone(),
                        file,
                        url,
                        str::parse,
                    )));
                }
                Ok((Connection::MySql(pool), name))
            }
            Some("sqlite") => {
                let options = url.parse::<SqliteConnectOptions>();
                let options = options.map_err(|error| invalid("the URL of the database", error))?;
                let file = options.get_filename();
                let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
                // The same file has the same name, whatever link leads to it.
                let path = absolute.canonicalize().unwrap_or(absolute);
                let name = name("this machine".to_owned(), path.display().to_string());
                Ok((Connection::Sqlite(options.into()), name))
            }
            _ => {
                Err(Exit::usage("the URL of the database must start with `postgres:`, `mysql:` or `sqlite:`"))
            }
        }
    }

    /// Refuses connections that would leave this machine without verified TLS, unless that is allowed.
    fn check<DB: Dialect>(
        &self,
        options: &<DB::Connection as sqlx::Connection>::Options,
    ) -> Result<(), Exit> {
        let checked = DB::protection(options, self.allow_plain);
        checked.map(drop).map_err(|refused| Exit::usage(format!("{refused}, or use --allow-plain")))
    }

    /// Prints each setting and its origin.
    pub(crate) fn print(&self, output: &Output) -> Result<(), Exit> {
        #[derive(Serialize)]
        struct Setting {
            name: &'static str,
            value: String,
            from: &'static str,
        }
        let GivenUrl { text: url, from: url_from, .. } = self.url()?;
        let from = |name: &str, value: &str, is_default: bool| match std::env::var(name) {
            Ok(set) if set == value => "the environment",
            _ if is_default => "the default",
            _ => "an option",
        };
        let keys = self.payload_keys.as_ref().map_or(String::new(), |file| file.display().to_string());
        let (pooler, allow_plain) = (self.pooler.to_string(), self.allow_plain.to_string());
        let settings = [
            Setting { name: "database_url", value: masked(&url), from: url_from },
            Setting {
                name: "namespace",
                value: self.namespace.clone(),
                from: from("TWINBOX_NAMESPACE", &self.namespace, self.namespace == NAMESPACE),
            },
            Setting {
                name: "payload_keys",
                from: from("TWINBOX_PAYLOAD_KEYS", &keys, self.payload_keys.is_none()),
                value: keys,
            },
            Setting { name: "pooler", from: from("TWINBOX_POOLER", &pooler, !self.pooler), value: pooler },
            Setting {
                name: "allow_plain",
                from: from("TWINBOX_ALLOW_PLAIN", &allow_plain, !self.allow_plain),
                value: allow_plain,
            },
        ];
        output.list(&[("name", "name"), ("value", "value"), ("from", "from")], &settings, "");
        Ok(())
    }
}

/// Postgres compiles statements that it expects to be long, which takes longer than to run one of the tool.
async fn without_compiler(conn: &mut PgConnection) -> sqlx::Result<()> {
    conn.execute("SET jit = off").await.map(drop)
}

fn read(file: &Path) -> Result<String, Exit> {
    let read = std::fs::read_to_string(file);
    let text = read.map_err(|error| invalid(&format!("the file {}", file.display()), error))?;
    Ok(text.trim().to_owned())
}

fn host(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => format!("{}:{}", socket.display(), options.get_port()),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// Without a name, Postgres takes the name of the user.
fn database(options: &PgConnectOptions) -> String {
    options.get_database().unwrap_or(options.get_username()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(url: &str) -> ConnectionArguments {
        ConnectionArguments {
            database_url: Some(url.to_owned()),
            database_url_file: None,
            namespace: NAMESPACE.to_owned(),
            pooler: false,
            allow_plain: true,
            payload_keys: None,
            follows_file: false,
        }
    }

    #[tokio::test]
    async fn a_plain_connection_to_another_machine_needs_an_option() {
        let refused = |url| {
            let arguments = ConnectionArguments { allow_plain: false, ..arguments(url) };
            arguments.prepare().err().map(|exit| format!("{exit:?}"))
        };
        for (url, fix) in [
            ("postgres://me:hush@db.example.org/shop", "sslmode=verify-full"),
            ("postgres://me:hush@db.example.org/shop?sslmode=require", "sslmode=verify-full"),
            ("mysql://me:hush@db.example.org/shop?ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY"),
        ] {
            let text = refused(url).expect("it is refused");
            assert!(text.contains(fix) && text.contains("--allow-plain") && !text.contains("hush"), "{text}");
        }
        for url in [
            "postgres://me@localhost/shop",
            "postgres://me@db.example.org/shop?sslmode=verify-full",
            "mysql://me@db.example.org/shop?ssl-mode=VERIFY_IDENTITY",
            "sqlite:shop.db",
        ] {
            assert_eq!(refused(url), None, "{url}");
        }
    }

    #[tokio::test]
    async fn a_database_is_named_without_credentials() {
        for (url, id, text) in [
            ("postgres://me:hush@host:5/shop", "host:5/shop", "host host:5, database shop"),
            ("postgres://me:hush@host", "host:5432/me", "host host:5432, database me"),
            (
                "postgres:///shop?host=/run/pg&user=me",
                "/run/pg:5432/shop",
                "host /run/pg:5432, database shop",
            ),
            ("sqlite:/no/shop.db", "/no/shop.db", "host this machine, database /no/shop.db"),
        ] {
            let (_, name) = arguments(url).prepare().unwrap();
            assert_eq!((name.id(), name.to_string()), (id.to_owned(), text.to_owned()));
        }
        let (_, name) =
            ConnectionArguments { namespace: "billing".to_owned(), ..arguments("postgres://me@host/shop") }
                .prepare()
                .unwrap();
        assert_eq!(name.id(), "host:5432/shop (billing)");
        assert!(name.to_string().ends_with("database shop, namespace billing"));
    }
}
