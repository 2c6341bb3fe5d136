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
use twinbox_core::task_name::TaskName;
use twinbox_sql::{
    Dialect, bound_lock_waits, follow_url_file, program_options,
    sqlite::{open_existing, open_or_make},
};

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
            let url = DatabaseUrl::of_other(name, database, &["postgres", "postgresql"])?;
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
            let url = DatabaseUrl::of_other(name, database, &["mysql", "mariadb"])?;
            others.insert(name.clone(), mysql(&url, database.max_connections)?);
        }
        let keeper = DatabaseUrl::of_keeper(config)?.map(|url| mysql(&url, KEEPER_CONNECTIONS));
        Ok(Self { main, others, keeper: keeper.transpose()? })
    }
}

impl Pools<Sqlite> {
    /// Without `makes_files`, a missing file is an error.
    pub(crate) async fn sqlite(
        config: &Config,
        url: &DatabaseUrl,
        makes_files: bool,
    ) -> Result<Self, Failure> {
        let main = sqlite(url, makes_files).await?;
        let mut others = BTreeMap::new();
        for (name, database) in &config.databases {
            let url = DatabaseUrl::of_other(name, database, &["sqlite"])?;
            others.insert(name.clone(), sqlite(&url, makes_files).await?);
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
    /// Whether a connection to another machine may be without verified TLS.
    allow_plain: bool,
    /// The table of the file that says so.
    table: String,
}

impl DatabaseUrl {
    pub(crate) fn of_main(config: &Config) -> Result<Self, ConfigError> {
        Self::of_table(&config.database, "database")
    }

    /// A further database is of the same kind as the main one.
    fn of_other(name: &str, database: &Database, schemes: &[&str]) -> Result<Self, ConfigError> {
        let url = Self::of_table(database, &format!("databases.{name}"))
            .map_err(|error| ConfigError::new(format!("`[databases.{name}]`: {error}")))?;
        if url.scheme().is_some_and(|scheme| schemes.contains(&scheme)) {
            return Ok(url);
        }
        let kind = schemes.join(":` or `");
        let what =
            format!("`databases.{name}.url` has to start with `{kind}:`, as that of `[database]` does");
        Err(ConfigError::new(what))
    }

    fn of_table(database: &Database, table: &str) -> Result<Self, ConfigError> {
        let (url, file) = (database.url.as_deref(), database.url_file.as_deref());
        let text = secret("url", url, file)?;
        let (file, table) = (file.map(Path::to_owned), table.to_owned());
        Ok(Self { text, file, allow_plain: database.allow_plain, table })
    }

    /// `None`: the keeper uses the pools of the relay.
    fn of_keeper(config: &Config) -> Result<Option<Self>, ConfigError> {
        match (config.keeper.database_url.as_deref(), config.keeper.database_url_file.as_deref()) {
            (None, None) => Ok(None),
            (url, file) => {
                let text = secret("database_url", url, file)?;
                let (file, allow_plain) = (file.map(Path::to_owned), config.database.allow_plain);
                Ok(Some(Self { text, file, allow_plain, table: "database".to_owned() }))
            }
        }
    }

    /// Refuses connections that would leave this machine without verified TLS, unless the file allows them.
    fn check<DB: Dialect>(
        &self,
        options: &<DB::Connection as Connection>::Options,
    ) -> Result<(), ConfigError> {
        let checked = DB::protection(options, self.allow_plain);
        checked.map(drop).map_err(|refused| {
            ConfigError::new(format!("{refused}, or set `allow_plain = true` in `[{}]`", self.table))
        })
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
            tokio::spawn(TaskName::FollowUrlFile.of(follow_url_file(
                pool.clone(),
                file.clone(),
                self.text.clone(),
                parse,
            )));
        }
    }
}

async fn sqlite(url: &DatabaseUrl, makes_file: bool) -> Result<SqlitePool, Failure> {
    let options: SqliteConnectOptions = url.text.parse()?;
    let file = options.get_filename().display().to_string();
    let opened = if makes_file { open_or_make(options).await } else { open_existing(options).await };
    opened.map_err(|error| ConfigError::new(format!("{file}: {error}")).into())
}

fn mysql(url: &DatabaseUrl, connections: u32) -> Result<MySqlPool, Failure> {
    let options: MySqlConnectOptions = url.text.parse()?;
    url.check::<MySql>(&options)?;
    let pool = MySqlPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_TIMEOUT);
    let pool = pool.after_connect(|conn, _| Box::pin(bound_lock_waits(conn)));
    let pool = pool.connect_lazy_with(options);
    url.follow(&pool, str::parse);
    Ok(pool)
}

fn postgres(url: &DatabaseUrl, has_pooler: bool, connections: u32) -> Result<PgPool, Failure> {
    let parse = move |url: &str| program_options(url, has_pooler);
    let options = parse(&url.text)?;
    url.check::<Postgres>(&options)?;
    let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_TIMEOUT);
    let pool = pool.connect_lazy_with(options);
    url.follow(&pool, parse);
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_database_may_have_each_scheme_of_the_main_one() {
        let of = |url: &str, schemes: &[&str]| {
            let database = toml::from_str(&format!("url = '{url}'\nservice = 'shop'")).unwrap();
            DatabaseUrl::of_other("eu", &database, schemes).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(of("mariadb://shop@localhost/shop", &["mysql", "mariadb"]), Ok(()));
        assert_eq!(of("postgresql://shop@localhost/shop", &["postgres", "postgresql"]), Ok(()));
        let refused = of("sqlite:shop.db", &["mysql", "mariadb"]).unwrap_err();
        let said =
            "`databases.eu.url` has to start with `mysql:` or `mariadb:`, as that of `[database]` does";
        assert!(refused.contains(said), "{refused}");
    }
}
