//! Migrations: embedded, with a version table of their own, never the application's.
use crate::{
    Dialect, Error, ErrorKind, Store,
    sql::{self, query, rows},
};
use sqlx::AssertSqlSafe;

/// One step of the schema. Append-only; what is released never changes.
#[doc(hidden)]
#[derive(Debug)]
pub struct Migration {
    pub(crate) name: &'static str,
    /// The oldest program, by its own newest migration, that still works on the result.
    pub(crate) compatible_from: i64,
    pub(crate) sql: &'static str,
}

impl<DB: Dialect> Store<DB> {
    /// Brings the tables up to this program's version, in one transaction. Run twice, or by five processes
    /// at once, it does the work once; killed half-way, it has done nothing. Where nothing is to be done it only reads, and
    /// waits for no writer.
    ///
    /// Needs the right to create tables. A service that must not have it prints
    /// [`migrations_sql`](Self::migrations_sql) for whoever does; what it needs to run is in `GRANTS.md`, beside
    /// this crate's manifest.
    ///
    /// # Errors
    /// The tables are newer than this program can work with, or belong to another service.
    pub async fn migrate(&self) -> Result<(), Error> {
        let statements = self.statements();
        self.check_pooler().await?;
        if self.is_up_to_date().await? {
            return self.check().await;
        }
        let mut tx = self.begin().await?;
        if let Some(lock) = DB::MIGRATION_LOCK {
            sqlx::raw_sql(lock).execute(&mut *tx).await?;
        }
        let bootstrap = sql::tables::<DB>(&statements.namespace, DB::BOOTSTRAP);
        sqlx::raw_sql(AssertSqlSafe(bootstrap)).execute(&mut *tx).await?;
        let done = version_of::<DB>(&mut tx, statements).await?.unwrap_or_default();
        if done.version > 0 {
            self.check_owner(&mut tx).await?;
        }
        for (version, migration) in versions::<DB>().filter(|(version, _)| *version > done.version) {
            let text = sql::tables::<DB>(&statements.namespace, migration.sql);
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *tx).await?;
            query::<DB>(&statements.record_migration)
                .bind(version)
                .bind(migration.name.to_owned())
                .bind(migration.compatible_from)
                .execute(&mut *tx)
                .await?;
            tracing::info!(schema = statements.namespace, version, name = migration.name, "migrated");
        }
        query::<DB>(&statements.set_service).bind(self.service().to_owned()).execute(&mut *tx).await?;
        tx.commit().await?;
        self.check().await
    }

    /// Asked first, so that a start neither waits for a writer nor needs the right to make a schema.
    async fn is_up_to_date(&self) -> Result<bool, Error> {
        let mut conn = self.connection().await?;
        let found = self.version_found(&mut conn).await;
        // Behind a pooler it is a transaction, which an error has ended.
        if !found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Schema) {
            conn.done().await?;
        }
        match found {
            Ok(found) => Ok(found.version >= Self::NEWEST_SCHEMA),
            Err(error) if error.kind() == ErrorKind::Schema => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What [`migrate`](Self::migrate) runs on an empty database, for review or for other tools.
    pub fn migrations_sql(&self) -> String {
        let namespace = &self.statements().namespace;
        let mut out = sql::tables::<DB>(namespace, DB::BOOTSTRAP);
        for (version, migration) in versions::<DB>() {
            out += &format!("\n\n-- {version}: {}\n", migration.name);
            out += &sql::tables::<DB>(namespace, migration.sql);
            out += &sql::tables::<DB>(
                namespace,
                &format!(
                    "INSERT INTO {{migrations}} (version, name, compatible_from) VALUES ({version}, '{}', {});\n",
                    migration.name, migration.compatible_from
                ),
            );
        }
        let service = self.service().replace('\'', "''");
        out + &sql::tables::<DB>(namespace, "INSERT INTO {meta} (singleton, service) VALUES (true, ")
            + &format!("'{service}');\n")
    }

    /// The version that this program brings.
    pub const NEWEST_SCHEMA: i64 = DB::MIGRATIONS.len() as i64;

    /// The version of the tables.
    ///
    /// # Errors
    /// There are none; or the database refused or is away.
    pub async fn schema_version(&self) -> Result<i64, Error> {
        let mut conn = self.connection().await?;
        let version = self.version_found(&mut conn).await?;
        conn.done().await?;
        Ok(version.version)
    }

    pub(crate) async fn version_found(&self, conn: &mut DB::Connection) -> Result<Version, Error> {
        match version_of::<DB>(conn, self.statements()).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(schema("there are no Twinbox tables here: run the migrations")),
            Err(e) if e.is_transient() => Err(e),
            // The version table is missing, or this role may not read it.
            Err(e) => {
                Err(schema("there are no Twinbox tables here, or no right to read them: run the migrations")
                    .with_source(e))
            }
        }
    }

    pub(crate) async fn check_version(&self, conn: &mut DB::Connection) -> Result<(), Error> {
        let mine = Self::NEWEST_SCHEMA;
        match self.version_found(conn).await? {
            found if found.compatible_from > mine => Err(schema(format!(
                "the tables are at version {}, which needs a program of version {} or newer, and this one is at {mine}",
                found.version, found.compatible_from
            ))),
            found if found.version < mine => Err(schema(format!(
                "the tables are at version {} and this program needs {mine}: run the migrations",
                found.version
            ))),
            _ => Ok(()),
        }
    }
}

fn schema(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Schema, what)
}

fn versions<DB: Dialect>() -> impl Iterator<Item = (i64, &'static Migration)> {
    (1..).zip(DB::MIGRATIONS)
}

#[derive(Default)]
pub(crate) struct Version {
    version: i64,
    compatible_from: i64,
}

async fn version_of<DB: Dialect>(
    conn: &mut DB::Connection,
    statements: &sql::Statements,
) -> Result<Option<Version>, Error> {
    let row = rows::<DB, (i64, i64)>(&statements.schema_version).fetch_optional(conn).await?;
    Ok(row.map(|(version, compatible_from)| Version { version, compatible_from }))
}
