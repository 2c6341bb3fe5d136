//! The connection pools of the configured databases.
use crate::{
    config::{Config, ConfigError, Database, secret},
    failure::Failure,
};
use sqlx::{
    Connection, MySql, MySqlPool, PgPool, Pool, Postgres, Sqlite, SqlitePool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
    postgres::PgPoolOptions,
    sqlite::SqliteConnectOptions,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};
use twinbox_sql::{Dialect, follow_url_file, program_options};

/// How long the pool may take to give a connection. It first tests an idle one.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// The connections of a keeper with a database URL of its own: one for its work, one for its lease.
const KEEPER_CONNECTIONS: u32 = 2;

/// The pool of `[database]`, those of `[databases.NAME]` by name, and that of a keeper with a URL of its own.
pub(crate) struct Pools<DB: Dialect> {
    pub(crate) main: Pool<DB>,
    pub(crate) others: BTreeMap<String, Pool<DB>>,
    pub(crate) keeper: Option<Pool<DB>>,
}

impl Pools<Postgres> {
    pub(crate) fn postgres(config: &Config, url: &DatabaseUrl) -> Result<Self, Failure> {
        let main = postgres(url, config.database.pooler, config.database.max_connections)?;
        let mut others = BTreeMap::new();
        for (name, database) in &config.databases {
            let url = DatabaseUrl::of_other(name, database, "postgres")?;
            others.insert(name.clone(), postgres(&url, database.pooler, database.max_connections)?);
        }
        let keeper = DatabaseUrl::of_keeper(config)?
            .map(|url| postgres(&url, config.database.pooler, KEEPER_CONNECTIONS));
        Ok(Self { main, others, keeper: keeper.transpose()? })
    }
}

impl Pools<MySql> {
    pub(crate) fn mysql(config: &Config, url: &DatabaseUrl) -> Result<Self, Failure> {
        let main = mysql(url, config.database.max_connections)?;
        let mut others = BTreeMap::new();
        for (name, database) in &config.databases {
            let url = DatabaseUrl::of_other(name, database, "mysql")?;
            others.insert(name.clone(), mysql(&url, database.max_connections)?);
        }
        let keeper = DatabaseUrl::of_keeper(config)?.map(|url| mysql(&url, KEEPER_CONNECTIONS));
        Ok(Self { main, others, keeper: keeper.transpose()? })
    }
}

impl Pools<Sqlite> {
    pub(crate) async fn sqlite(config: &Config, url: &DatabaseUrl) -> Result<Self, Failure> {
        let main = sqlite(url).await?;
        let mut others = BTreeMap::new();
        for (name, database) in &config.databases {
            let url = DatabaseUrl::of_other(name, database, "sqlite")?;
            others.insert(name.clone(), sqlite(&url).await?);
        }
        if DatabaseUrl::of_keeper(config)?.is_some() {
            let what = "SQLite has no roles: remove `keeper.database_url`, the keeper needs none";
            return Err(ConfigError::new(what).into());
        }
        Ok(Self { main, others, keeper: None })
    }
}

/// The URL of a database, and the file that holds it, if one does.
pub(crate) struct DatabaseUrl {
    text: String,
    file: Option<PathBuf>,
}

impl DatabaseUrl {
    pub(crate) fn of_main(config: &Config) -> Result<Self, ConfigError> {
        Self::read("url", config.database.url.as_deref(), config.database.url_file.as_deref())
    }

    /// A further database is of the same kind as the main one.
    fn of_other(name: &str, database: &Database, kind: &str) -> Result<Self, ConfigError> {
        let url = Self::read("url", database.url.as_deref(), database.url_file.as_deref())
            .map_err(|error| ConfigError::new(format!("`[databases.{name}]`: {error}")))?;
        if url.text.starts_with(kind) {
            return Ok(url);
        }
        let what =
            format!("`databases.{name}.url` has to start with `{kind}:`, as that of `[database]` does");
        Err(ConfigError::new(what))
    }

    /// `None`: the keeper uses the pools of the relay.
    fn of_keeper(config: &Config) -> Result<Option<Self>, ConfigError> {
        match (config.keeper.database_url.as_deref(), config.keeper.database_url_file.as_deref()) {
            (None, None) => Ok(None),
            (url, file) => Self::read("database_url", url, file).map(Some),
        }
    }

    fn read(what: &str, url: Option<&str>, file: Option<&Path>) -> Result<Self, ConfigError> {
        Ok(Self { text: secret(what, url, file)?, file: file.map(Path::to_owned) })
    }

    pub(crate) fn scheme(&self) -> Option<&str> {
        self.text.split_once(':').map(|(scheme, _)| scheme)
    }

    /// Lets the pool use what the file says later.
    fn follow<DB: Dialect>(
        &self,
        pool: &Pool<DB>,
        parse: impl Fn(&str) -> sqlx::Result<<DB::Connection as Connection>::Options> + Send + Sync + 'static,
    ) {
        if let Some(file) = &self.file {
            tokio::spawn(follow_url_file(pool.clone(), file.clone(), self.text.clone(), parse));
        }
    }
}

async fn sqlite(url: &DatabaseUrl) -> Result<SqlitePool, Failure> {
    let options: SqliteConnectOptions = url.text.parse()?;
    Ok(twinbox_sql::sqlite::open(options.get_filename()).await?)
}

fn mysql(url: &DatabaseUrl, connections: u32) -> Result<MySqlPool, Failure> {
    let options: MySqlConnectOptions = url.text.parse()?;
    let pool = MySqlPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_TIMEOUT);
    let pool = pool.connect_lazy_with(options);
    url.follow(&pool, str::parse);
    Ok(pool)
}

fn postgres(url: &DatabaseUrl, has_pooler: bool, connections: u32) -> Result<PgPool, Failure> {
    let parse = move |url: &str| program_options(url, has_pooler);
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_TIMEOUT);
    let pool = pool.connect_lazy_with(parse(&url.text)?);
    url.follow(&pool, parse);
    Ok(pool)
}
