//! The tables: their version, their owner, and migrations. Migrations are embedded, with a version table of
//! their own, never the application's.
use crate::{
    Dialect, Error, ErrorKind,
    catalog::Catalog,
    dialect::Migration,
    engine::Engine,
    render::script,
    sqlstate::sqlstate,
    statement::{query, query_of, raw, scalar},
    text_column::Text,
};
use sqlx::{AssertSqlSafe, Row as _};
use std::{borrow::Cow, time::Duration};

/// How long a migration may take, and the wait for another process that migrates: the server ends both after
/// ten minutes.
const MIGRATION_MAX: Duration = Duration::from_secs(660);
const LOCK_SECRET_BYTES: usize = 32;

/// The version of the tables.
#[derive(Default)]
pub(crate) struct Version {
    pub(crate) version: i64,
    /// The oldest program that may use them.
    compatible_from: i64,
}

/// Applies the migrations that are missing.
pub(crate) async fn migrate<DB: Dialect>(engine: &Engine<DB>) -> Result<(), Error> {
    let catalog = engine.catalog();
    if is_up_to_date(engine).await? {
        return Ok(());
    }
    check_server(engine).await?;
    let Some(unlock) = DB::MIGRATION_UNLOCK else { return in_one_transaction(engine).await };
    let mut conn = engine.connection().await?;
    raw::<DB>(DB::MIGRATION_BEGIN).execute(&mut *conn).await?;
    bootstrap::<DB>(&mut conn, catalog).await?;
    if let Some(lock) = DB::MIGRATION_LOCK {
        let lock = AssertSqlSafe(script::<DB>(&catalog.namespace, lock));
        let lock = query_of::<DB>(lock, false).within(MIGRATION_MAX).scalar::<Option<i64>>();
        if lock.fetch_one(&mut *conn).await? != Some(1) {
            return Err(Error::new(ErrorKind::Busy, "another process has been migrating for ten minutes"));
        }
    }
    // Dropped before its end, the connection is closed, which ends the lock and its waits.
    apply::<DB>(&mut conn, catalog).await?;
    let unlock = AssertSqlSafe(script::<DB>(&catalog.namespace, unlock));
    raw::<DB>(unlock).execute(&mut *conn).await?;
    conn.done().await
}

async fn check_server<DB: Dialect>(engine: &Engine<DB>) -> Result<(), Error> {
    let mut conn = engine.connection().await?;
    DB::check_server(&mut conn).await?;
    conn.done().await
}

async fn in_one_transaction<DB: Dialect>(engine: &Engine<DB>) -> Result<(), Error> {
    let catalog = engine.catalog();
    let mut tx = engine.begin_with(DB::MIGRATION_BEGIN).await?;
    let mut made = bootstrap::<DB>(&mut tx, catalog).await;
    if made.as_ref().is_err_and(is_made_by_another) {
        tx.rollback().await?;
        tx = engine.begin_with(DB::MIGRATION_BEGIN).await?;
        made = bootstrap::<DB>(&mut tx, catalog).await;
    }
    made?;
    if let Some(lock) = DB::MIGRATION_LOCK {
        let lock = AssertSqlSafe(script::<DB>(&catalog.namespace, lock));
        raw::<DB>(lock).within(MIGRATION_MAX).execute(&mut *tx).await?;
    }
    apply::<DB>(&mut tx, catalog).await?;
    tx.commit().await
}

/// Makes what the lock of the migrations needs.
async fn bootstrap<DB: Dialect>(conn: &mut DB::Connection, catalog: &Catalog) -> Result<(), sqlx::Error> {
    let bootstrap = script::<DB>(&catalog.namespace, DB::BOOTSTRAP);
    raw::<DB>(AssertSqlSafe(bootstrap)).within(MIGRATION_MAX).execute(&mut *conn).await?;
    let create_secret = &catalog.sql.setup.create_lock_secret;
    if !create_secret.is_absent() {
        let mut secret = vec![0; LOCK_SECRET_BYTES];
        getrandom::fill(&mut secret).map_err(|error| std::io::Error::other(error.to_string()))?;
        query::<DB>(create_secret).within(MIGRATION_MAX).bind(secret).execute(conn).await?;
    }
    Ok(())
}

/// Whether another process has made the same at the same time: a row of the server's own tables, or an object
/// that `IF NOT EXISTS` has not seen yet.
fn is_made_by_another(error: &sqlx::Error) -> bool {
    sqlstate(error).is_some_and(|code| ["23505", "42710", "42P06", "42P07"].contains(&code.as_str()))
}

/// Applies the migrations that are missing, in the transaction of the caller or each by itself.
async fn apply<DB: Dialect>(conn: &mut DB::Connection, catalog: &Catalog) -> Result<(), Error> {
    let found = read_version::<DB>(conn, catalog).await?.unwrap_or_default();
    if found.version > 0 {
        // A run that was killed half-way may not have come to it.
        set_service::<DB>(conn, catalog).await?;
        check_owner::<DB>(conn, catalog).await?;
    }
    for (version, migration) in versions::<DB>().filter(|(version, _)| *version > found.version) {
        let text = script::<DB>(&catalog.namespace, migration.sql);
        raw::<DB>(AssertSqlSafe(text)).within(MIGRATION_MAX).execute(&mut *conn).await?;
        query::<DB>(&catalog.sql.setup.record_migration)
            .bind(version)
            .bind(migration.name.to_owned())
            .bind(migration.compatible_from)
            .execute(&mut *conn)
            .await?;
        tracing::info!(schema = catalog.namespace, version, name = migration.name, "migrated");
    }
    set_service::<DB>(conn, catalog).await
}

/// Names the service that owns the tables, unless one does.
async fn set_service<DB: Dialect>(conn: &mut DB::Connection, catalog: &Catalog) -> Result<(), Error> {
    let set_service = query::<DB>(&catalog.sql.setup.set_service).bind(catalog.service.clone());
    set_service.execute(conn).await?;
    Ok(())
}

/// Asked first, so that a start neither waits for a writer nor needs the right to make a schema.
async fn is_up_to_date<DB: Dialect>(engine: &Engine<DB>) -> Result<bool, Error> {
    let mut conn = engine.connection().await?;
    let found = version_found::<DB>(&mut conn, engine.catalog()).await;
    // Behind a pooler the connection is a transaction, which an error has ended.
    if !found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Schema) {
        conn.done().await?;
    }
    match found {
        Ok(found) => Ok(found.version >= newest::<DB>()),
        Err(error) if error.kind() == ErrorKind::Schema => Ok(false),
        Err(error) => Err(error),
    }
}

/// The SQL of all migrations.
pub(crate) fn migrations_sql<DB: Dialect>(catalog: &Catalog) -> String {
    let namespace = &catalog.namespace;
    let mut out = script::<DB>(namespace, DB::BOOTSTRAP);
    for (version, migration) in versions::<DB>() {
        let Migration { name, compatible_from, sql } = migration;
        out += &format!("\n\n-- {version}: {name}\n");
        out += &script::<DB>(namespace, sql);
        out += &script::<DB>(
            namespace,
            &format!(
                "INSERT INTO {{migrations}} (version, name, compatible_from)\n\
                 VALUES ({version}, '{name}', {compatible_from});\n"
            ),
        );
    }
    let service = catalog.service.replace('\'', "''");
    out + &script::<DB>(namespace, "INSERT INTO {meta} (singleton, service)\nVALUES (true, ")
        + &format!("'{service}');\n")
}

/// The version of the tables.
///
/// # Errors
/// [`ErrorKind::Schema`]: there are none.
pub(crate) async fn version_found<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
) -> Result<Version, Error> {
    match read_version::<DB>(conn, catalog).await {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(refused("there are no Twinbox tables here: run the migrations")),
        Err(e) if e.is_transient() => Err(e),
        // The version table is missing, or this role may not read it.
        Err(e) => {
            Err(refused("there are no Twinbox tables here, or no right to read them: run the migrations")
                .with_source(e))
        }
    }
}

/// Refuses tables of another version or another service.
///
/// # Errors
/// [`ErrorKind::Schema`], [`ErrorKind::WrongService`]; or the database refused or is away.
pub async fn check_tables<DB: Dialect>(conn: &mut DB::Connection, catalog: &Catalog) -> Result<(), Error> {
    check_version::<DB>(conn, catalog).await?;
    check_owner::<DB>(conn, catalog).await
}

/// Refuses tables that are too new or too old for this program.
async fn check_version<DB: Dialect>(conn: &mut DB::Connection, catalog: &Catalog) -> Result<(), Error> {
    let mine = newest::<DB>();
    match version_found::<DB>(conn, catalog).await? {
        found if found.compatible_from > mine => Err(refused(format!(
            "the tables are at version {}, which needs a program of version {} or newer, and this one is at \
             {mine}",
            found.version, found.compatible_from
        ))),
        found if found.version < mine => Err(refused(format!(
            "the tables are at version {} and this program needs {mine}: run the migrations",
            found.version
        ))),
        _ => Ok(()),
    }
}

/// Refuses tables of another service.
async fn check_owner<DB: Dialect>(conn: &mut DB::Connection, catalog: &Catalog) -> Result<(), Error> {
    let owner = scalar::<DB, Text>(&catalog.sql.setup.service);
    match owner.fetch_optional(conn).await?.map(|owner| owner.0) {
        Some(owner) if owner == catalog.service => Ok(()),
        owner => Err(Error::new(
            ErrorKind::WrongService,
            format!(
                "these tables belong to the service {:?} and this process is {:?}: \
                 use the same name, or another namespace",
                owner.unwrap_or_default(),
                catalog.service
            ),
        )),
    }
}

/// Refuses a namespace that is not a plain lower-case identifier.
///
/// # Errors
/// [`ErrorKind::Configuration`]
pub fn check_namespace(namespace: &str) -> Result<(), Error> {
    match is_identifier(namespace) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Configuration,
            format!("the namespace {namespace:?} must be a lower-case letter and up to 39 of a-z, 0-9 and _"),
        )),
    }
}

/// At most 40 bytes, so that the longest index name stays below Postgres's 63.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 40
        && bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn newest<DB: Dialect>() -> i64 {
    DB::MIGRATIONS.len() as i64
}

fn versions<DB: Dialect>() -> impl Iterator<Item = (i64, &'static Migration)> {
    (1..).zip(DB::MIGRATIONS)
}

/// Lists the triggers that the migrations make, each with its table, as the database names them.
pub fn triggers<DB: Dialect>(namespace: &str) -> Vec<(String, String)> {
    let made = creations::<DB>().filter_map(made_trigger);
    made.map(|(name, table)| (named::<DB>(namespace, name), named::<DB>(namespace, table))).collect()
}

/// Lists the tables of a store, as the database names them.
pub fn tables<DB: Dialect>(namespace: &str) -> Vec<String> {
    let made = creations::<DB>().filter_map(made_table).chain(["{migrations}"]);
    made.map(|name| named::<DB>(namespace, name)).collect()
}

/// The statements of the migrations that make something, without the word `CREATE`.
fn creations<DB: Dialect>() -> impl Iterator<Item = &'static str> {
    DB::MIGRATIONS.iter().flat_map(|migration| migration.sql.split("CREATE "))
}

/// A name of a migration, as the database has it, without the schema.
fn named<DB: Dialect>(namespace: &str, name: &str) -> String {
    match name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        Some(name) => DB::table(namespace, name).rsplit('.').next().unwrap_or_default().to_owned(),
        None => name.to_owned(),
    }
}

/// Reads a table from what follows the word `CREATE`.
fn made_table(statement: &str) -> Option<&str> {
    let rest = statement.strip_prefix("UNLOGGED ").unwrap_or(statement).strip_prefix("TABLE ")?;
    let rest = rest.strip_prefix("IF NOT EXISTS ").unwrap_or(rest);
    rest.split_once(' ').map(|(name, _)| name)
}

/// Reads a trigger and its table from what follows the word `CREATE`.
fn made_trigger(statement: &str) -> Option<(&str, &str)> {
    let rest = statement.strip_prefix("CONSTRAINT ").unwrap_or(statement).strip_prefix("TRIGGER ")?;
    let (name, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once(" ON ")?;
    let end = rest.find('}')?;
    Some((name, &rest[..=end]))
}

async fn read_version<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
) -> Result<Option<Version>, Error> {
    let row = query::<DB>(&catalog.sql.setup.schema_version).fetch_optional(conn).await?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(Version { version: row.try_get("version")?, compatible_from: row.try_get("compatible_from")? }))
}

fn refused(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Schema, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has<DB: Dialect>(name: &str, table: &str) -> bool {
        triggers::<DB>("my_events").contains(&(name.to_owned(), table.to_owned()))
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_trigger_of_postgres_has_a_name_of_its_table() {
        assert!(has::<sqlx::Postgres>("refuse_position", "outbox"));
        assert!(has::<sqlx::Postgres>("refuse_commit", "inbox"));
        assert!(has::<sqlx::Postgres>("blank_response", "idempotency_keys"));
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn a_trigger_of_mysql_has_a_name_of_its_database() {
        assert!(has::<sqlx::MySql>("my_events_refuse_position", "my_events_outbox"));
        assert!(has::<sqlx::MySql>("my_events_refuse_response", "my_events_idempotency_keys"));
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn the_tables_of_a_store_have_its_prefix() {
        let tables = tables::<sqlx::MySql>("my_events");
        for name in ["my_events_outbox", "my_events_holes", "my_events_migrations"] {
            assert!(tables.contains(&name.to_owned()), "{tables:?}");
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_trigger_of_sqlite_has_a_name_of_its_file() {
        assert!(has::<sqlx::Sqlite>("my_events_refuse_position", "my_events_outbox"));
    }
}
