//! Readers of the log, and messages for them.
use super::{
    database::owner_of,
    stores::{TestDb, sql_of},
    wait::{eventually, in_time},
};
use sqlx::AssertSqlSafe;
use twinbox::{
    Dialect, Draft, Store,
    log::{Entry, Reader, ReaderOptions},
};
use uuid::Uuid;

/// The SQL of tests that differs between databases.
pub(crate) trait Names: TestDb {
    const OUTBOX: &'static str;
    const CURSORS: &'static str;
    /// The time of the database in microseconds since 1970.
    const CLOCK: &'static str;
    /// A time at which every lease has ended.
    const LONG_AGO: &'static str;
    /// Returns a text as the bytes of a payload.
    fn bytes(text: &str) -> String;
}

#[cfg(feature = "postgres")]
impl Names for sqlx::Postgres {
    const OUTBOX: &'static str = "twinbox.outbox";
    const CURSORS: &'static str = "twinbox.cursors";
    const CLOCK: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const LONG_AGO: &'static str = "'epoch'";

    fn bytes(text: &str) -> String {
        format!("'{text}'")
    }
}

#[cfg(feature = "mysql")]
impl Names for sqlx::MySql {
    const OUTBOX: &'static str = "twinbox_outbox";
    const CURSORS: &'static str = "twinbox_cursors";
    const CLOCK: &'static str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";
    const LONG_AGO: &'static str = "'1970-01-01'";

    fn bytes(text: &str) -> String {
        format!("'{text}'")
    }
}

impl Names for sqlx::Sqlite {
    const OUTBOX: &'static str = "twinbox_outbox";
    const CURSORS: &'static str = "twinbox_cursors";
    const CLOCK: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    const LONG_AGO: &'static str = "0";

    fn bytes(text: &str) -> String {
        format!("CAST('{text}' AS BLOB)")
    }
}

pub(crate) async fn open<DB: Dialect>(store: &Store<DB>, destination: &str) -> Reader<DB> {
    open_with(store, destination, ReaderOptions::new()).await
}

pub(crate) async fn open_with<DB: Dialect>(
    store: &Store<DB>,
    destination: &str,
    options: ReaderOptions,
) -> Reader<DB> {
    let reader = Reader::open(store, destination, Uuid::now_v7(), options).await;
    reader.expect("the store is fit to be read").expect("nobody has the lease")
}

/// Opens a reader, as another process does, as soon as the lease is free.
pub(crate) async fn take_over<DB: Dialect>(
    store: &Store<DB>,
    destination: &str,
    options: ReaderOptions,
) -> Reader<DB> {
    eventually(async || Reader::open(store, destination, Uuid::now_v7(), options.clone()).await.unwrap())
        .await
}

pub(crate) fn draft(key: Option<&str>, text: &str) -> Draft {
    let draft = Draft::raw("test.happened", 1, text.to_owned());
    match key {
        Some(key) => draft.key(key),
        None => draft,
    }
}

/// Publishes each text in its own transaction.
pub(crate) async fn publish<DB: Dialect>(store: &Store<DB>, key: Option<&str>, texts: &[&str]) {
    for text in texts {
        publish_all(store, vec![draft(key, text)]).await;
    }
}

/// Publishes all drafts in one transaction.
pub(crate) async fn publish_all<DB: Dialect>(store: &Store<DB>, drafts: Vec<Draft>) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
}

pub(crate) fn text(entry: &Entry) -> String {
    String::from_utf8(entry.message.payload.to_vec()).unwrap()
}

pub(crate) fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(text).collect()
}

/// Takes exactly `n` messages and settles none.
pub(crate) async fn take<DB: Dialect>(reader: &mut Reader<DB>, n: usize) -> Vec<Entry> {
    let mut taken = Vec::new();
    while taken.len() < n {
        taken.extend(in_time(reader.next(n - taken.len())).await.unwrap());
    }
    taken
}

/// Settles all messages up to the one with the text `last`. Returns their texts in order.
pub(crate) async fn settle_until<DB: Dialect>(reader: &mut Reader<DB>, last: &str) -> Vec<String> {
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != last) {
        for entry in in_time(reader.next(100)).await.unwrap() {
            reader.settle(entry.ticket);
            came.push(text(&entry));
        }
    }
    came
}

/// The row of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) p: i64,
    pub(crate) w: i64,
    pub(crate) position: i64,
    pub(crate) epoch: i64,
}

pub(crate) async fn row<DB: Names>(store: &Store<DB>, destination: &str) -> Row {
    let sql =
        format!("SELECT p, w, position, epoch FROM {} WHERE destination = '{destination}'", DB::CURSORS);
    let row = sqlx::query_as::<DB, (i64, i64, i64, i64)>(AssertSqlSafe(sql));
    let (p, w, position, epoch) = row.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap();
    Row { p, w, position, epoch }
}

/// Runs the reader, without room for messages, until `reached` is true for its row.
pub(crate) async fn run_until<DB: Names>(
    store: &Store<DB>,
    reader: &mut Reader<DB>,
    destination: &str,
    reached: impl Fn(Row) -> bool,
) -> Row {
    let looking = eventually(async || Some(row(store, destination).await).filter(|row| reached(*row)));
    tokio::select! {
        row = looking => row,
        ended = reader.next(0) => panic!("without room there is nothing to return: {ended:?}"),
    }
}

pub(crate) async fn now<DB: Names>(store: &Store<DB>) -> i64 {
    let sql = AssertSqlSafe(format!("SELECT {}", DB::CLOCK));
    let now = sqlx::query_scalar::<DB, i64>(sql);
    now.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap()
}

/// Runs SQL in its own transaction.
pub(crate) async fn run<DB: Dialect>(store: &Store<DB>, sql: &str) -> Result<(), sqlx::Error> {
    let mut tx = owner_of(store).begin().await.unwrap();
    sqlx::query::<DB>(sql_of::<DB>(sql)).execute(&mut *tx).await?;
    tx.commit().await.unwrap();
    Ok(())
}
