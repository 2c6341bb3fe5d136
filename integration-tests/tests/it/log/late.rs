//! Transactions that commit late: what the windows are for.
use crate::support::{
    cases::cases,
    databases::Postgres,
    log::{draft, open, open_with, publish, publish_all, run_until, settle_until, take, text, texts},
};
use sqlx::Connection as _;
use std::time::Duration;
use twinbox::{Store, log::ReaderOptions};

/// Fault matrix 40: an identity column's values do not follow commit order.
async fn a_late_commit_is_not_skipped(store: &Store<Postgres>) {
    let mut reader = open(store, "d").await;
    let mut late = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut late, draft(None, "late")).await.unwrap();
    for n in 0..3 {
        // Each in a window of its own, while the first is open.
        let name = n.to_string();
        publish(store, None, &[&name]).await;
        assert_eq!(settle_until(&mut reader, &name).await, [name]);
    }
    run_until(store, &mut reader, "d", |row| row.p > 0).await;
    late.commit().await.unwrap();
    let entry = take(&mut reader, 1).await.remove(0);
    assert_eq!(text(&entry), "late");
    assert_eq!(entry.message.sequence, Some(1), "it has the lowest position of all");
}

/// More subtransactions than a snapshot lists (64), some rolled back, the transaction open across windows.
async fn late_commits_out_of_savepoints_are_not_skipped(store: &Store<Postgres>) {
    let mut reader = open(store, "d").await;
    let mut late = store.begin().await.unwrap();
    for n in 0..100 {
        let mut savepoint = late.begin().await.unwrap();
        store.outbox().publish_draft(&mut savepoint, draft(None, &n.to_string())).await.unwrap();
        match n % 2 {
            0 => savepoint.commit().await.unwrap(),
            _ => savepoint.rollback().await.unwrap(),
        }
    }
    publish(store, None, &["between"]).await;
    assert_eq!(settle_until(&mut reader, "between").await, ["between"]);
    late.commit().await.unwrap();
    let kept: Vec<_> = (0..100).step_by(2).map(|n| n.to_string()).collect();
    assert_eq!(settle_until(&mut reader, "98").await, kept);
}

/// Fault matrix 39: neither a snapshot that pins vacuum nor an open transaction with an id, which would
/// hold back whoever waits for the oldest running transaction.
async fn an_open_snapshot_holds_nothing_up(store: &Store<Postgres>) {
    let mut snapshot = store.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    let seen = "SELECT count(*) FROM twinbox.outbox";
    assert_eq!(sqlx::query_scalar::<_, i64>(seen).fetch_one(&mut *snapshot).await.unwrap(), 0);
    let mut open_writer = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut open_writer, draft(None, "never")).await.unwrap();

    let mut reader = open(store, "d").await;
    for round in 0..50 {
        let names: Vec<_> = (0..100).map(|n| format!("{round}/{n}")).collect();
        publish_all(store, names.iter().map(|name| draft(None, name)).collect()).await;
        assert_eq!(settle_until(&mut reader, &names[99]).await, names);
    }
    assert_eq!(sqlx::query_scalar::<_, i64>(seen).fetch_one(&mut *snapshot).await.unwrap(), 0);
}

/// A reader whose lowest message is stuck sees a window each second, for hours, with nothing in it. They do
/// not count towards how far it reads ahead.
async fn empty_windows_are_no_messages(store: &Store<Postgres>) {
    publish(store, None, &["stuck"]).await;
    let mut reader = open(store, "d").await;
    take(&mut reader, 1).await;
    for n in 0..20 {
        // A reader that starts now makes a tick.
        let now = ReaderOptions::new().start(twinbox::log::StartPosition::Now);
        open_with(store, &format!("tick{n}"), now).await.close().await.unwrap();
        let _ = tokio::time::timeout(Duration::from_millis(60), reader.next(1)).await;
    }
    assert_eq!(reader.open_messages(), 1);
    publish(store, None, &["next"]).await;
    assert_eq!(texts(&take(&mut reader, 1).await), ["next"]);
}

cases! {
    with a store:
    postgres: [
        a_late_commit_is_not_skipped,
        late_commits_out_of_savepoints_are_not_skipped,
        an_open_snapshot_holds_nothing_up,
        empty_windows_are_no_messages,
    ]
}
