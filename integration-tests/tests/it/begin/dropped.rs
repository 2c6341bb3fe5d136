//! `begin` and `commit` may be dropped at any poll; sqlx's `pool.begin()` may not. Fault 3
use crate::support::{
    cases::cases,
    database::SERVICE,
    databases::{PgPoolOptions, Postgres},
    postgres::{postgres_address, through},
    stores::{Placed, TestDb, World, effect},
};
use sqlx::{Pool, Sqlite};
use std::{
    collections::BTreeSet,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use twinbox::{
    Dialect, Draft, Store,
    inbox::{Inbox, InboxClaim},
};
use twinbox_testkit::proxy::Proxy;

/// Ends after `polls` polls, whether the future inside is done or not.
struct DropAfter<F> {
    polls: usize,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.polls -= 1;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// `polls` counts from 1.
fn drop_after<F: Future>(polls: usize, future: F) -> DropAfter<F> {
    DropAfter { polls, future: Box::pin(future) }
}

/// Where the polls fall depends on the server's timing, so every test goes through them often.
const ROUNDS: i64 = 25;

/// Drops `begin` after each number of polls in turn, and each time writes with the same connection
/// afterwards. Answers with the numbers of polls after which that write was lost.
async fn lost_writes<DB: TestDb, T>(begin: impl AsyncFn(&Pool<DB>) -> T) -> BTreeSet<usize> {
    let world = World::<DB>::new().await;
    let (mut lost, mut dropped, mut n) = (BTreeSet::new(), 0, 0);
    for _ in 0..ROUNDS {
        for polls in 1.. {
            n += 1;
            let pool = world.twin(1).await;
            let finished = drop_after(polls, begin(&pool)).await.is_some();
            write_plainly(&pool, n).await;
            pool.close().await;
            if !world.effects().await.contains(&n) {
                lost.insert(polls);
            }
            if finished {
                break;
            }
            dropped += 1;
        }
    }
    assert_ne!(dropped, 0, "every `begin` ended at its first poll");
    lost
}

/// The next borrower of the only connection writes without a transaction.
async fn write_plainly<DB: Dialect>(pool: &Pool<DB>, n: i64) {
    effect::<DB>(&mut *pool.acquire().await.unwrap(), n).await.unwrap();
}

async fn a_begin_dropped_at_any_poll_loses_nothing<DB: TestDb>() {
    assert_eq!(lost_writes::<DB, _>(async |pool| twinbox::begin(pool).await.unwrap()).await, BTreeSet::new());
}

async fn a_store_begin_dropped_at_any_poll_loses_nothing<DB: TestDb>() {
    let begin = async |pool: &Pool<DB>| Store::new(pool.clone(), SERVICE).unwrap().begin().await.unwrap();
    assert_eq!(lost_writes::<DB, _>(begin).await, BTreeSet::new());
}

/// Documents sqlx 0.9.0. When this fails, sqlx was repaired and `begin` can lose its task.
async fn sqlx_begin_dropped_half_way_loses_writes() {
    let world = World::<Postgres>::new().await;
    let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
    let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = pool.connect(&through(world.url(), &proxy)).await.unwrap();
    // No answer comes while it is frozen, and BEGIN is on its way.
    proxy.freeze();
    assert!(tokio::time::timeout(Duration::from_millis(100), pool.begin()).await.is_err());
    proxy.thaw();
    write_plainly(&pool, 1).await;
    pool.close().await;
    assert_eq!(world.effects().await, Vec::<i64>::new());
}

async fn sqlx_begin_dropped_half_way_loses_nothing() {
    let lost = lost_writes::<Sqlite, _>(async |pool| pool.begin().await.unwrap()).await;
    assert_eq!(lost, BTreeSet::new());
}

async fn a_begin_dropped_at_any_time_loses_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let pool = world.twin(1).await;
    let store = Store::new(pool.clone(), SERVICE).unwrap();
    for n in 0..300_u32 {
        let late = Duration::from_micros((u64::from(n) * 7) % 600);
        let _ = tokio::time::timeout(late, store.begin()).await;
        write_plainly(&pool, n.into()).await;
    }
    assert_eq!(world.effects().await.len(), 300);
}

/// All or nothing, and the connection is fit for whoever comes next.
async fn a_commit_dropped_at_any_poll_is_whole_or_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let (mut dropped, mut n) = (0, 0);
    for _ in 0..ROUNDS {
        for polls in 1.. {
            n += 1;
            let pool = world.twin(1).await;
            let store = Store::new(pool.clone(), SERVICE).unwrap();
            let mut tx = store.begin().await.unwrap();
            effect::<DB>(&mut tx, n).await.unwrap();
            store.outbox().publish(&mut tx, &Placed { n }).await.unwrap();
            let finished = drop_after(polls, tx.commit()).await;
            write_plainly(&pool, -n).await;
            pool.close().await;

            let effects = world.effects().await;
            assert!(effects.contains(&-n), "lost after {polls} polls");
            let published = world.published("orders.placed", 10_000).await.unwrap();
            let published = published.iter().any(|m| m.key == Some(n.to_string()));
            assert_eq!(effects.contains(&n), published, "half a transaction after {polls} polls");
            if let Some(committed) = finished {
                committed.unwrap();
                assert!(published, "committed and gone");
                break;
            }
            dropped += 1;
        }
    }
    assert_ne!(dropped, 0, "every `commit` ended at its first poll");
}

/// Handles a message, on a connection that is kept for the next one.
async fn handle(inbox: &Inbox<Sqlite>, n: i64) {
    let message = Draft::of(&Placed { n }).unwrap().into_message("shop");
    let InboxClaim::Open(mut attempt) = inbox.claim(&message, false).await.unwrap() else {
        panic!("it is new");
    };
    effect::<Sqlite>(&mut attempt.tx(), n).await.unwrap();
    attempt.commit().await.unwrap();
}

/// A transaction of the application on its connection ends with its rollback, and holds the file no longer.
async fn a_delivery_dropped_at_any_poll_leaves_a_connection_in_order() {
    let world = World::<Sqlite>::new().await;
    let (mut dropped, mut n) = (0, 0);
    for _ in 0..ROUNDS {
        for polls in 1.. {
            n += 2;
            let pool = world.twin(1).await;
            let inbox = Store::new(pool.clone(), SERVICE).unwrap().inbox("tests.dropped").keep_connections();
            handle(&inbox, n).await;
            let finished = drop_after(polls, handle(&inbox, n + 1)).await.is_some();
            let mut tx = pool.begin().await.unwrap();
            effect::<Sqlite>(&mut *tx, -n).await.unwrap();
            tx.rollback().await.unwrap();

            let other = world.twin(1).await;
            let mut other = other.acquire().await.unwrap();
            sqlx::raw_sql("PRAGMA busy_timeout = 200").execute(&mut *other).await.unwrap();
            effect::<Sqlite>(&mut *other, -n).await.unwrap_or_else(|e| panic!("after {polls} polls: {e}"));
            let effects = world.effects().await;
            assert!(effects.contains(&n) && (!finished || effects.contains(&(n + 1))), "{polls} polls");
            if finished {
                break;
            }
            dropped += 1;
        }
    }
    assert_ne!(dropped, 0, "every delivery ended at its first poll");
}

cases! {
    all: [
        a_begin_dropped_at_any_poll_loses_nothing,
        a_store_begin_dropped_at_any_poll_loses_nothing,
        a_begin_dropped_at_any_time_loses_nothing,
        a_commit_dropped_at_any_poll_is_whole_or_nothing,
    ]
    postgres: [sqlx_begin_dropped_half_way_loses_writes]
    sqlite: [
        sqlx_begin_dropped_half_way_loses_nothing,
        a_delivery_dropped_at_any_poll_leaves_a_connection_in_order,
    ]
}
