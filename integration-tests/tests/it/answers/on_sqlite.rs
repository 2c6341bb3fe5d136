//! SQLite does not fall silent: another process may hold the file's lock for long.
use crate::support::{
    consumer::publish,
    effects::{QUICK, WELCOME, mail},
    long,
    refunds::{Refunds, Strategy},
    stores::{Placed, effect},
    wait::{Pause, eventually, in_time, pause},
};
use integration_tests::{refunds::Does::Answers, vendors::http_vendor};
use sqlite_trace::{Moment, watch};
use sqlx::{Connection as _, Sqlite, SqliteConnection};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use twinbox::{
    CancellationToken, Consumer, Delivery, Draft, HandlerResult, Timestamp, Tx,
    effects::{
        Dispatcher, EffectState, Effects, VendorOptions,
        jobs::{Job, JobRunner, Jobs, RunState},
        profiles,
    },
    event_handler,
    log::Keeper,
    relay::DelayedMessageMover,
};
use twinbox_testkit::vendor::FakeVendor;
use uuid::Uuid;

/// Everything is done so long after the lock is free.
const DONE_WITHIN: Duration = Duration::from_secs(40);
const MESSAGES: i64 = 20;

#[event_handler(consumer = "tests.locked")]
async fn write(tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Sqlite>(tx, order.n).await?)
}

/// Each program has work to do when the lock is taken, and does it when it is free again.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_another_process_holds_locked_holds_up_nothing_for_good() {
    let web = Refunds::<Sqlite>::new(Strategy::Tx).await;
    let (world, vendor, stop) = (&web.world, FakeVendor::start().await.unwrap(), CancellationToken::new());
    let keeper = Keeper::new(world).every(Duration::from_secs(1)).first_look(Duration::ZERO);
    let consumer = Consumer::new((**world).clone(), ()).keeper(keeper).handler::<write>();
    let sender = http_vendor(&vendor.url(), profiles::RESEND).unwrap();
    let dispatcher = Dispatcher::new(world).vendor_with(sender, VendorOptions::new().retries(QUICK));
    let job = Job::new("asked", "0 0 1 1 *").unwrap().retries(QUICK).handler(async |_| Ok(()));
    let (runner, mover) = (JobRunner::new(world).job(job), DelayedMessageMover::new((**world).clone()));
    let mut programs = JoinSet::new();
    let (a, b, c, d) = (stop.clone(), stop.clone(), stop.clone(), stop.clone());
    programs.spawn(async move { consumer.run(a).await.unwrap() });
    programs.spawn(async move { dispatcher.run(b).await.unwrap() });
    programs.spawn(async move { runner.run(c).await.unwrap() });
    programs.spawn(async move { mover.run(d).await.unwrap() });
    let run = eventually(async || Jobs::new(world).run_now("asked").await.ok()).await;
    let (effects, source) = (Effects::new(world), Uuid::now_v7());
    publish(world, 0..MESSAGES).await;
    let mut tx = world.begin().await.unwrap();
    effects.plan(&mut tx, source, WELCOME, mail("hello")).await.unwrap();
    let due = Draft::of(&Placed { n: MESSAGES }).unwrap().not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, due).await.unwrap();
    tx.commit().await.unwrap();

    let mut other = world.twin(1).await.acquire().await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *other).await.unwrap();
    let held = long::or(Duration::from_secs(90), Duration::from_secs(15));
    let refused = async { web.refund("a", 1, Answers).await.status };
    let (refused, ()) = tokio::join!(refused, pause(Pause::Outage, held));
    // It may have come to its turn just when the lock became free.
    assert!(refused == 503 || refused == 201, "{refused}");
    sqlx::raw_sql("ROLLBACK").execute(&mut *other).await.unwrap();
    let free = Instant::now();
    assert_eq!(web.refund("a", 1, Answers).await.status, 201);
    eventually(async || {
        let handled = world.effects().await.len() as i64 == MESSAGES + 1;
        let sent = effects.find(source, WELCOME).await.unwrap().unwrap().state == EffectState::Confirmed;
        let ran = Jobs::new(world).run(run).await.unwrap().unwrap().state == RunState::Done;
        (handled && sent && ran).then_some(())
    })
    .await;
    let took = free.elapsed();
    println!("held for {held:?}, everything was done {took:?} later");
    assert!(took < DONE_WITHIN, "{took:?}");
    stop.cancel();
    while let Some(ended) = in_time(programs.join_next()).await {
        ended.unwrap();
    }
}

/// The test of each statement rests on this trace.
#[tokio::test]
async fn each_statement_of_a_file_is_heard_of_twice() {
    let mut conn = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let heard = Arc::<Mutex<Vec<_>>>::default();
    let hears = heard.clone();
    let note = move |moment, sql: &str| hears.lock().unwrap().push((moment, sql.to_owned()));
    watch(&mut conn, note).await.unwrap();
    let (create, insert) = ("CREATE TABLE t (n INT);", "INSERT INTO t VALUES (1)");
    sqlx::raw_sql(concat!("CREATE TABLE t (n INT);", "INSERT INTO t VALUES (1)"))
        .execute(&mut conn)
        .await
        .unwrap();
    let all = [create, insert].map(|sql| [(Moment::Begins, sql.to_owned()), (Moment::Ended, sql.to_owned())]);
    assert_eq!(*heard.lock().unwrap(), all.concat());
    conn.close().await.unwrap();
    in_time(async {
        while Arc::strong_count(&heard) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
