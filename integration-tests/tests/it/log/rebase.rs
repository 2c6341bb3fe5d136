//! A log that was restored from a dump goes on where it was.
use super::restore::{Other, address, tool};
use crate::support::{
    book::Book,
    cases::cases,
    database::{self, SERVICE, owner_of},
    log::{Names, draft, open, open_with, publish, run_until, settle_until, take, text, texts},
    postgres::{lacks, waits_for_a_lock},
    tool::Tool,
    wait::in_time,
};
use sqlx::{PgPool, Postgres};
use std::time::Duration;
use twinbox::{
    ErrorKind, OwnedTx, Store,
    log::{Log, ReaderOptions, parking::ParkedState},
    ops::Ops,
};
use twinbox_testkit::servers::PostgresServer;

const DESTINATIONS: [&str; 6] = ["done", "mid", "window", "parker", "untouched", "fresh"];

async fn begin_publish(store: &Store<Postgres>, text: &str) -> OwnedTx<Postgres> {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut tx, draft(None, text)).await.unwrap();
    tx
}

/// Readers at every kind of place, with messages that were committed after their positions.
async fn fill(store: &Store<Postgres>) {
    open(store, "untouched").await.close().await.unwrap();
    let later = begin_publish(store, "later").await;
    let late = begin_publish(store, "late").await;
    publish(store, None, &["a", "b", "c", "d", "e", "f"]).await;
    for destination in ["done", "window"] {
        let mut reader = open(store, destination).await;
        settle_until(&mut reader, "f").await;
        run_until(store, &mut reader, destination, |row| row.p > 0 && row.p == row.w).await;
        reader.close().await.unwrap();
    }
    let mut mid = open(store, "mid").await;
    for entry in take(&mut mid, 6).await.into_iter().take(3) {
        mid.settle(entry.ticket);
    }
    run_until(store, &mut mid, "mid", |row| row.position > 0 && row.p == 0 && row.w > 0).await;
    mid.close().await.unwrap();
    late.commit().await.unwrap();
    publish(store, None, &["g", "h", "i"]).await;
    let mut window = open(store, "window").await;
    let taken = take(&mut window, 4).await;
    assert_eq!(texts(&taken), ["late", "g", "h", "i"]);
    for entry in taken.into_iter().take(2) {
        window.settle(entry.ticket);
    }
    run_until(store, &mut window, "window", |row| row.position > 0 && 0 < row.p && row.p < row.w).await;
    window.close().await.unwrap();
    let mut parker = open_with(store, "parker", ReaderOptions::new().parking(true)).await;
    for entry in take(&mut parker, 10).await {
        match text(&entry).as_str() {
            "b" => parker.park(entry, ParkedState::Dead, 3, "test.refused"),
            "c" => parker.park(entry, ParkedState::Waiting(Duration::from_secs(3600)), 1, "test.down"),
            _ => parker.settle(entry.ticket),
        }
    }
    run_until(store, &mut parker, "parker", |row| row.p > 0 && row.p == row.w).await;
    parker.close().await.unwrap();
    later.commit().await.unwrap();
}

/// What each destination is handed out, up to a message that is published now.
async fn rest(store: &Store<Postgres>) -> Vec<(&'static str, Vec<String>)> {
    publish(store, None, &["end"]).await;
    let mut all = Vec::new();
    for destination in DESTINATIONS {
        let mut reader = open_with(store, destination, ReaderOptions::new().parking(true)).await;
        let mut came = settle_until(&mut reader, "end").await;
        run_until(store, &mut reader, destination, |row| row.p > 0 && row.p == row.w).await;
        reader.close().await.unwrap();
        came.sort();
        all.push((destination, came));
    }
    all
}

async fn parked(store: &Store<Postgres>) -> Vec<(String, String)> {
    let parked = Ops::new(store).parked_messages("parker", 10).await.unwrap().into_iter();
    parked.map(|p| (String::from_utf8(p.message.payload.to_vec()).unwrap(), p.state)).collect()
}

/// Writers do not look whether a database was restored: some were there before the repair, some are under
/// way.
async fn publish_before_and_during_the_repair(restored: &Store<Postgres>) {
    publish(restored, None, &["new"]).await;
    let mut tx = restored.pool().begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *tx).await.unwrap();
    let mut nested = sqlx::Acquire::begin(&mut tx).await.unwrap();
    restored.outbox().publish_draft(&mut nested, draft(None, "nested")).await.unwrap();
    nested.commit().await.unwrap();
    tx.commit().await.unwrap();

    let mut open = restored.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()").execute(&mut *open).await.unwrap();
    let under_way = begin_publish(restored, "under way").await;
    let store = restored.clone();
    let repair = tokio::spawn(async move { Ops::new(&store).rebase().await });
    waits_for_a_lock(restored.pool()).await;
    under_way.commit().await.unwrap();
    let repaired = in_time(repair).await.unwrap().unwrap();
    assert_eq!(repaired.messages, 14);
    restored.outbox().publish_draft(&mut open, draft(None, "open")).await.unwrap();
    open.commit().await.unwrap();
}

async fn goes_on_where_it_was(original: &Store<Postgres>, restored: &Store<Postgres>) {
    assert_eq!(restored.check().await.unwrap_err().kind(), ErrorKind::Restored);
    publish_before_and_during_the_repair(restored).await;
    restored.check().await.unwrap();
    let refused = Ops::new(restored).rebase().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    assert!(refused.to_string().contains("nothing to rebase"), "{refused}");

    let mut expected = rest(original).await;
    for (_, texts) in &mut expected {
        texts.extend(["nested", "new", "open", "under way"].map(str::to_owned));
        texts.sort();
    }
    assert_eq!(expected[0].1, ["end", "g", "h", "i", "late", "later", "nested", "new", "open", "under way"]);
    assert_eq!(rest(restored).await, expected);
    assert_eq!(parked(restored).await, parked(original).await);
    assert_eq!(parked(restored).await, [("b", "dead"), ("c", "waiting")].map(|(a, b)| (a.into(), b.into())));
    assert_eq!(
        Log::new(restored).purge(Duration::ZERO).await.unwrap().messages,
        14,
        "all but what is parked"
    );
}

async fn dumped() -> (database::TestDatabase<Postgres>, tempfile::TempDir, String) {
    let original = database::postgres().await;
    fill(&original).await;
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump").display().to_string();
    tool("pg_dump", &["-Fc", "-f", &dump, "-d", address(original.owner_url())]);
    (original, folder, dump)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_goes_on_in_another_database() {
    if lacks("pg_dump") {
        return;
    }
    let (original, _folder, dump) = dumped().await;
    let other = Other::create(original.owner_url(), "").await;
    tool("pg_restore", &["--exit-on-error", "-d", &other.url, &dump]);
    goes_on_where_it_was(&original, &other.store().await).await;
    other.drop().await;
}

/// Which nobody else can work with.
#[tokio::test(flavor = "multi_thread")]
async fn the_tool_repairs_a_restored_log() {
    if lacks("pg_dump") {
        return;
    }
    let (original, _folder, dump) = dumped().await;
    let other = Other::create(original.owner_url(), "").await;
    tool("pg_restore", &["--exit-on-error", "-d", &other.url, &dump]);
    let twinbox = Tool::at::<Postgres>(&other.url);
    let refused = twinbox.ends(4, &["status"]).await;
    assert!(refused.contains("was restored from a dump"), "{refused}");
    let mut book = Book::with(Tool::at::<Postgres>(&other.url), "A database was restored from a dump");
    book.says("11 messages rebased").await;
    let status = book.ran().await;
    assert!(!status.err.contains("restored"), "{status:?}");
    book.close();
    assert_eq!(twinbox.json(&["audit", "list"]).await[0]["count"], 11);
    other.store().await.check().await.unwrap();
    other.drop().await;
}

/// Whose transaction ids are lower by far.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_goes_on_on_another_server() {
    if lacks("pg_dump") {
        return;
    }
    let (original, _folder, dump) = dumped().await;
    let server = PostgresServer::start().unwrap();
    tool("pg_restore", &["--exit-on-error", "--no-owner", "--no-acl", "-d", &server.url(), &dump]);
    let pool = PgPool::connect(&server.url()).await.unwrap();
    goes_on_where_it_was(&original, &Store::new(pool, SERVICE).unwrap()).await;
}

/// The other way round: those of the dump are lower than what was published since.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_comes_back_from_a_younger_server() {
    if lacks("pg_dump") {
        return;
    }
    let server = PostgresServer::start().unwrap();
    let young = Store::new(PgPool::connect(&server.url()).await.unwrap(), SERVICE).unwrap();
    young.migrate().await.unwrap();
    fill(&young).await;
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump").display().to_string();
    tool("pg_dump", &["-Fc", "-f", &dump, "-d", &server.url()]);
    let like = std::env::var(database::POSTGRES_URL).unwrap();
    let other = Other::create(&like, "").await;
    tool("pg_restore", &["--exit-on-error", "--no-owner", "-d", &other.url, &dump]);
    goes_on_where_it_was(&young, &other.store().await).await;
    other.drop().await;
}

async fn a_log_that_was_not_restored_is_left_alone<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let mut reader = open(store, "d").await;
    settle_until(&mut reader, "a").await;
    let refused = Ops::new(&owner_of(store)).rebase().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    let says = match DB::MODULE {
        "postgres" => "there is nothing to rebase",
        "mysql" => "MySQL needs no rebase",
        _ => "SQLite needs no rebase",
    };
    assert!(refused.to_string().contains(says), "{refused}");
    publish(store, None, &["b"]).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
}

cases! {
    with a store:
    all: [
        a_log_that_was_not_restored_is_left_alone,
    ]
}
