//! Connections that operations keep between each other.
use crate::support::{
    operations::{answer, asked, key, policy},
    postgres::counted,
    stores::{World, effect},
    wait::{eventually, in_time},
};
use sqlx::Postgres;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use twinbox::{
    Store,
    operation::{OperationPolicy, OperationStart},
};

const OPERATIONS: i64 = 200;

/// Runs an operation with a key of its own.
async fn run(store: &Store<Postgres>, n: i64, keeps_connection: bool) {
    let policy = OperationPolicy { keeps_connection, ..policy(Duration::ZERO) };
    let begun = store.idempotency_keys().begin(&key(&n.to_string()), &asked("1"), &policy).await.unwrap();
    let OperationStart::Open(mut operation) = begun else { panic!("{n} is taken") };
    effect::<Postgres>(&mut operation.tx(), n).await.unwrap();
    operation.commit(&answer("1")).await.unwrap();
}

#[tokio::test]
async fn busy_operations_take_few_connections_and_return_them() {
    let (world, taken) = (World::<Postgres>::new().await, Arc::new(AtomicUsize::new(0)));
    let store = counted(world.url(), 2, &taken).await;
    let started = Instant::now();
    for n in 0..OPERATIONS {
        run(&store, n, true).await;
    }
    // A connection is kept for 10 ms without work, and 100 ms in all: a slow machine takes more of them.
    let most = (OPERATIONS as usize / 2).max(started.elapsed().as_millis() as usize / 10);
    let most = most.min(OPERATIONS as usize - 1);
    let taken = taken.load(SeqCst);
    assert!(taken <= most, "{taken} for {OPERATIONS} operations");
    let pool = store.pool();
    eventually(async || (pool.num_idle() == pool.size() as usize).then_some(())).await;
    assert_eq!(world.effects().await, Vec::from_iter(0..OPERATIONS));
    // It is outside a transaction, for the server and for sqlx.
    let tx = pool.begin().await.unwrap();
    tx.commit().await.unwrap();
}

/// Hooks of the pool run then.
#[tokio::test]
async fn operations_that_keep_none_take_a_connection_each() {
    let (world, taken) = (World::<Postgres>::new().await, Arc::new(AtomicUsize::new(0)));
    let store = counted(world.url(), 2, &taken).await;
    for n in 0..OPERATIONS {
        run(&store, n, false).await;
    }
    // A new connection is not counted.
    assert!(taken.load(SeqCst) + 2 >= OPERATIONS as usize, "{taken:?} for {OPERATIONS} operations");
}

/// Operations without a pause keep every connection of the pool, and each returns after a while.
#[tokio::test(flavor = "multi_thread")]
async fn another_user_of_the_pool_gets_a_connection_while_operations_keep_them_busy() {
    let (world, taken) = (World::<Postgres>::new().await, Arc::new(AtomicUsize::new(0)));
    let store = counted(world.url(), 2, &taken).await;
    let (next, stop) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
    let busy = Vec::from_iter((0..2).map(|_| {
        let (store, next, stop) = (store.clone(), next.clone(), stop.clone());
        tokio::spawn(async move {
            while !stop.load(SeqCst) {
                run(&store, next.fetch_add(1, SeqCst), true).await;
            }
        })
    }));
    eventually(async || (next.load(SeqCst) > 20).then_some(())).await;
    for _ in 0..5 {
        // It fails when the pool's time-out of 30 s has passed.
        drop(store.pool().acquire().await.unwrap());
    }
    stop.store(true, SeqCst);
    for one in busy {
        in_time(one).await.unwrap();
    }
}

#[tokio::test]
async fn a_kept_connection_that_is_lost_costs_no_operation() {
    let (world, taken) = (World::<Postgres>::new().await, Arc::new(AtomicUsize::new(0)));
    let store = counted(world.url(), 2, &taken).await;
    let mut all_ended = 0;
    for n in 0..20 {
        run(&store, n, true).await;
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND pid <> pg_backend_pid() AND query = 'COMMIT'";
        all_ended += world.number(ended).await;
    }
    assert!(all_ended > 0);
    assert_eq!(world.effects().await, Vec::from_iter(0..20));
}
