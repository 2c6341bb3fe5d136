//! Transaction ids mean something only in the cluster that gave them.
use crate::support::{
    cases::cases,
    database::{self, owner_of},
    log::{open, publish, run, settle_until},
    postgres::lacks,
};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres};
use std::process::Command;
use twinbox::{
    ErrorKind, Store,
    log::{Reader, ReaderOptions},
};
use twinbox_testkit::servers::find;
use uuid::Uuid;

async fn the_sentinel_survives_vacuum_and_migration(store: &Store<Postgres>) {
    publish(store, None, &["a"]).await;
    let mut reader = open(store, "d").await;
    settle_until(&mut reader, "a").await;
    reader.close().await.unwrap();
    for maintenance in ["VACUUM FREEZE", "VACUUM FULL", "VACUUM FULL FREEZE", "REINDEX SCHEMA twinbox"] {
        let done = sqlx::raw_sql(AssertSqlSafe(maintenance.to_owned())).execute(owner_of(store).pool()).await;
        done.unwrap_or_else(|e| panic!("{maintenance}: {e}"));
        store.check().await.unwrap_or_else(|e| panic!("after {maintenance}: {e}"));
        owner_of(store).migrate().await.unwrap();
    }
    publish(store, None, &["b"]).await;
    let mut reader = open(store, "d").await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
}

/// Values that a session keeps for later break the order of keys between sessions.
async fn a_sequence_that_caches_is_refused(store: &Store<Postgres>) {
    run(store, "ALTER TABLE twinbox.outbox ALTER COLUMN position SET CACHE 50").await.unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("SET CACHE 1"), "{error}");
    let refused = Reader::open(store, "d", Uuid::now_v7(), ReaderOptions::new()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    run(store, "ALTER TABLE twinbox.outbox ALTER COLUMN position SET CACHE 1").await.unwrap();
    store.check().await.unwrap();
}

/// Another database on the server of the tests, dropped by [`drop`](Self::drop).
pub(super) struct Other {
    admin: PgConnection,
    name: String,
    pub(super) url: String,
}

impl Other {
    pub(super) async fn create(like: &str, options: &str) -> Self {
        let url = std::env::var(database::POSTGRES_URL).unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let name = format!("twinbox_test_{}", Uuid::now_v7().simple());
        let create = AssertSqlSafe(format!("CREATE DATABASE {name} {options}"));
        sqlx::raw_sql(create).execute(&mut admin).await.unwrap();
        let url = format!("{}/{name}", address(like).rsplit_once('/').unwrap().0);
        Self { admin, name, url }
    }

    pub(super) async fn store(&self) -> Store<Postgres> {
        Store::new(PgPool::connect(&self.url).await.unwrap(), database::SERVICE).unwrap()
    }

    pub(super) async fn drop(mut self) {
        let drop = AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.name));
        sqlx::raw_sql(drop).execute(&mut self.admin).await.unwrap();
    }
}

/// Without the options that only sqlx knows.
pub(super) fn address(url: &str) -> &str {
    url.split_once('?').map_or(url, |(address, _)| address)
}

pub(super) fn tool(name: &str, arguments: &[&str]) {
    let program = find::postgres_bin().unwrap().join(name);
    let output = Command::new(&program).args(arguments).output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_dump_is_refused() {
    if lacks("pg_dump") {
        return;
    }
    let original = database::postgres().await;
    publish(&original, None, &["a", "b"]).await;
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump").display().to_string();
    tool("pg_dump", &["-Fc", "-f", &dump, "-d", address(original.owner_url())]);
    let other = Other::create(original.owner_url(), "").await;
    tool("pg_restore", &["--exit-on-error", "-d", &other.url, &dump]);

    let restored = other.store().await;
    let error = restored.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Restored);
    assert!(error.to_string().contains("`twinbox destinations rebase`"), "{error}");
    let refused = Reader::open(&restored, "d", Uuid::now_v7(), ReaderOptions::new()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Restored);
    assert_eq!(restored.migrate().await.unwrap_err().kind(), ErrorKind::Restored);
    original.check().await.unwrap();
    other.drop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_copy_goes_on_where_the_original_was() {
    let original = database::postgres().await;
    publish(&original, None, &["a"]).await;
    let mut reader = open(&original, "d").await;
    settle_until(&mut reader, "a").await;
    reader.close().await.unwrap();
    publish(&original, None, &["b"]).await;
    original.close().await;
    original.pool().close().await;
    let name = address(original.owner_url()).rsplit_once('/').unwrap().1;
    let copy = Other::create(original.owner_url(), &format!("TEMPLATE {name}")).await;

    let store = copy.store().await;
    store.check().await.unwrap();
    publish(&store, None, &["c"]).await;
    let mut reader = open(&store, "d").await;
    assert_eq!(settle_until(&mut reader, "c").await, ["b", "c"]);
    copy.drop().await;
}

cases! {
    with a store:
    postgres: [
        the_sentinel_survives_vacuum_and_migration,
        a_sequence_that_caches_is_refused,
    ]
}
