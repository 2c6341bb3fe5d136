//! Which database, and opening it.
use crate::{
    exit::{Exit, bad},
    output::Output,
};
use clap::Args;
use serde::Serialize;
use sqlx::{
    Postgres, Sqlite,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::SqliteConnectOptions,
};
use std::{path::PathBuf, time::Duration};
use twinbox_sql::{Store, StoreOptions};

/// How long a connection may take.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct Place {
    /// `postgres://…`, or `sqlite:FILE`. A password is better kept in the environment, or in a file.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
    /// A file that holds the URL.
    #[arg(long, global = true, env = "DATABASE_URL_FILE", value_name = "FILE")]
    database_url_file: Option<PathBuf>,
    /// The schema of the tables, on SQLite their prefix.
    #[arg(long, global = true, env = "TWINBOX_NAMESPACE", value_name = "NAME", default_value = "twinbox")]
    namespace: String,
    /// There is a pooler in transaction mode between here and Postgres.
    #[arg(long, global = true, env = "TWINBOX_POOLER")]
    pooler: bool,
}

/// A store of either database.
pub(crate) enum Opened {
    Postgres(Store<Postgres>),
    Sqlite(Store<Sqlite>),
}

/// A connection that is not made yet.
pub(crate) enum Connection {
    Postgres(sqlx::PgPool),
    Sqlite(PathBuf),
}

impl Place {
    /// The same schema of another database.
    pub(crate) fn elsewhere(&self, url: &str) -> Self {
        Self { database_url: Some(url.to_owned()), database_url_file: None, ..self.clone() }
    }

    fn url(&self) -> Result<(String, &'static str), Exit> {
        if let Some(file) = self.database_url_file.as_ref().filter(|_| self.database_url.is_none()) {
            let read = std::fs::read_to_string(file);
            let url = read.map_err(|error| bad(&format!("the file {}", file.display()), error))?;
            return Ok((url.trim().to_owned(), "a file"));
        }
        let url = self.database_url.clone().filter(|url| !url.is_empty());
        let missing =
            || Exit::usage("say which database, with --database-url, DATABASE_URL or DATABASE_URL_FILE");
        let from = if std::env::var("DATABASE_URL").ok() == url { "the environment" } else { "an option" };
        Ok((url.ok_or_else(missing)?, from))
    }

    pub(crate) fn has_pooler(&self) -> bool {
        self.pooler
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions::new().namespace(&self.namespace).pooler(self.pooler)
    }

    /// Connects to nothing yet.
    pub(crate) fn connection(&self) -> Result<Connection, Exit> {
        let (url, _) = self.url()?;
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => {
                // Not with sqlx's words, which repeat parts of the URL.
                let options = url.parse::<PgConnectOptions>();
                let mut options =
                    options.map_err(|_| Exit::usage("the URL of the database cannot be read"))?;
                if self.pooler {
                    options = options.extra_float_digits(None);
                }
                let pool = PgPoolOptions::new().max_connections(4).acquire_timeout(CONNECTION_MAX);
                Ok(Connection::Postgres(pool.connect_lazy_with(options.application_name("twinbox"))))
            }
            Some("sqlite") => {
                let options = url.parse::<SqliteConnectOptions>();
                let options = options.map_err(|error| bad("the URL of the database", error))?;
                Ok(Connection::Sqlite(options.get_filename().to_owned()))
            }
            _ => Err(Exit::usage("the URL of the database starts with `postgres:` or `sqlite:`")),
        }
    }

    /// The store that is there, checked, unless it is to be repaired.
    pub(crate) async fn open(&self, checked: bool) -> Result<Opened, Exit> {
        Ok(match self.connection()? {
            Connection::Postgres(pool) => {
                let store = Store::found(pool, self.options()).await?;
                if checked {
                    store.check().await?;
                }
                Opened::Postgres(store)
            }
            Connection::Sqlite(file) => {
                if !file.exists() {
                    return Err(Exit::not_found(format!("there is no file {}", file.display())));
                }
                let store = Store::found(twinbox_sql::sqlite::open(file).await?, self.options()).await?;
                store.check().await?;
                Opened::Sqlite(store)
            }
        })
    }

    /// What is in force, and where it comes from.
    pub(crate) fn print(&self, output: &Output) -> Result<(), Exit> {
        #[derive(Serialize)]
        struct Setting {
            name: &'static str,
            value: String,
            from: &'static str,
        }
        let (url, from) = self.url()?;
        let by = |name: &str, default: bool| match std::env::var_os(name) {
            Some(_) => "the environment",
            None if default => "the default",
            None => "an option",
        };
        let settings = [
            Setting { name: "database_url", value: masked(&url), from },
            Setting {
                name: "namespace",
                value: self.namespace.clone(),
                from: by("TWINBOX_NAMESPACE", self.namespace == "twinbox"),
            },
            Setting {
                name: "pooler",
                value: self.pooler.to_string(),
                from: by("TWINBOX_POOLER", !self.pooler),
            },
        ];
        output.list(&[("name", "name"), ("value", "value"), ("from", "from")], &settings, "");
        Ok(())
    }
}

/// What the URL says, without its password; nothing of what cannot be read.
fn masked(url: &str) -> String {
    if url.starts_with("sqlite:") {
        return url.split('?').next().unwrap_or_default().to_owned();
    }
    match url.parse::<PgConnectOptions>() {
        Ok(options) if url.starts_with("postgres") => format!(
            "postgres://{}:***@{}:{}/{}",
            options.get_username(),
            options.get_host(),
            options.get_port(),
            options.get_database().unwrap_or_default()
        ),
        _ => "***".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for (url, expected) in [
            ("postgres://me:hush@host/db?password=hush", "postgres://me:***@host:5432/db"),
            ("postgres://me:hu%23sh@host:5/db", "postgres://me:***@host:5/db"),
            ("postgres://me@host/db", "postgres://me:***@host:5432/db"),
            ("host=db user=me password=hush", "***"),
            ("sqlite:shop.db?mode=ro", "sqlite:shop.db"),
        ] {
            assert_eq!(masked(url), expected);
        }
    }
}
