//! Transactions may be dropped at any poll, their process may be killed, and their answer may be lost.
mod dropped;

use crate::support::{
    cases::cases,
    database::SERVICE,
    databases::{MySql, Postgres},
    postgres::proxied,
    stores::{Placed, TestDb, World, effect, placed},
    wait::{self, Pause, in_time, signal},
};
use sqlx::{AssertSqlSafe, Sqlite};
use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
    time::Duration,
};
use twinbox::{
    Delivery, DeliveryOutcome, ErrorKind, HandlerResult, Store, StoreOptions, Tx, event_handler,
    log::{Reader, ReaderOptions},
};
use uuid::Uuid;

/// Set in the process that is to publish to the database of this name and die.
const PRODUCER: &str = "TWINBOX_TEST_PRODUCER";

/// Runs the named test of this program in a process of its own, which aborts.
fn killed(test: &str, url: &str) {
    let mut producer = Command::new(std::env::current_exe().unwrap());
    producer.args(["--exact", test]).env(PRODUCER, url).stdout(Stdio::null()).stderr(Stdio::null());
    let status = producer.status().unwrap();
    assert_eq!(status.signal(), Some(6), "{test}: {status}");
}

/// What a reader that starts at the beginning finds, up to a message that is published last.
async fn read<DB: TestDb>(store: &Store<DB>) -> Vec<String> {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish(&mut tx, &Placed { n: -1 }).await.unwrap();
    tx.commit().await.unwrap();
    let opened = Reader::open(store, "reader", Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    let mut reader = opened.expect("nobody else reads");
    let mut keys = Vec::new();
    loop {
        for entry in in_time(reader.next(10)).await.unwrap() {
            reader.settle(entry.ticket);
            match entry.message.key.unwrap() {
                last if last == "-1" => return keys,
                key => keys.push(key),
            }
        }
    }
}

/// Fault 1
async fn a_producer_killed_before_commit_has_published_nothing<DB: TestDb>() {
    if let Ok(url) = std::env::var(PRODUCER) {
        let store = DB::open(&url).await;
        let mut tx = store.begin().await.unwrap();
        effect::<DB>(&mut tx, 1).await.unwrap();
        store.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
        std::process::abort();
    }
    let world = World::<DB>::new().await;
    killed(
        &format!("begin::{}::a_producer_killed_before_commit_has_published_nothing", DB::MODULE),
        world.url(),
    );
    assert!(read(&world).await.is_empty());
    assert!(world.effects().await.is_empty());
}

/// Fault 2
async fn a_producer_killed_after_commit_has_published<DB: TestDb>() {
    if let Ok(url) = std::env::var(PRODUCER) {
        let store = DB::open(&url).await;
        let mut tx = store.begin().await.unwrap();
        effect::<DB>(&mut tx, 1).await.unwrap();
        store.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
        tx.commit().await.unwrap();
        std::process::abort();
    }
    let world = World::<DB>::new().await;
    killed(&format!("begin::{}::a_producer_killed_after_commit_has_published", DB::MODULE), world.url());
    assert_eq!(read(&world).await, ["1"]);
    assert_eq!(world.effects().await, [1]);
}

/// Faults 2 and 36
async fn a_lost_answer_to_commit_is_unknown_and_the_message_is_there() {
    let world = World::<Postgres>::new().await;
    let (proxy, store) = proxied(world.url()).await;
    let mut tx = store.begin().await.unwrap();
    effect::<Postgres>(&mut tx, 1).await.unwrap();
    store.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
    proxy.lose_answer_to(b"COMMIT");
    let error = tx.commit().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error:?}");
    assert!(error.is_transient(), "{error:?}");
    assert_eq!(read(&world).await, ["1"]);
    assert_eq!(world.effects().await, [1]);

    let mut tx = store.begin().await.unwrap();
    effect::<Postgres>(&mut tx, 2).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects().await, [1, 2]);
}

#[event_handler(consumer = "tests.slow")]
async fn slow(tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Sqlite>(tx, order.n).await?;
    wait::pause(Pause::Work, Duration::from_millis(50)).await; // the work of a slow handler
    Ok(())
}

/// Without the permit SQLite hands its lock to whoever asks at the right moment, and a publisher can wait
/// for ever.
async fn handlers_that_write_all_the_time_do_not_starve_publishers() {
    let world = World::<Sqlite>::new().await;
    let mut handlers = tokio::task::JoinSet::new();
    for worker in 0..HANDLERS {
        let store = (*world).clone();
        handlers.spawn(async move {
            let harness = twinbox_testkit::Harness::new(&store, ());
            for n in 0.. {
                let outcome = harness.deliver::<slow>(&placed(worker * 1_000_000 + n)).await;
                assert_eq!(outcome, DeliveryOutcome::Handled);
            }
        });
    }
    let publish = async {
        for n in 0..PUBLISHED {
            let mut tx = world.begin().await.unwrap();
            world.outbox().publish(&mut tx, &Placed { n }).await.unwrap();
            tx.commit().await.unwrap();
        }
        world.rows("inbox").await
    };
    let handled = tokio::time::timeout(Duration::from_secs(20), publish).await;
    let handled = handled.expect("publishers get their turn");
    handlers.shutdown().await;
    assert_eq!(world.rows("outbox").await, PUBLISHED);
    // A publisher waits for each handler once, and one more of each may be done when it is counted.
    assert!(handled <= HANDLERS * (PUBLISHED + 1), "{handled} handled beside {PUBLISHED} published");
}

/// SQLite rolls back by itself on `RAISE(ROLLBACK)`, and a program may miss that error.
async fn a_transaction_that_sqlite_ended_is_not_committed_and_the_next_is() {
    let world = World::<Sqlite>::new().await;
    let one = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
    let pool = one.connect_with((*world.pool().connect_options()).clone()).await.unwrap();
    let store = Store::new(pool, SERVICE).unwrap();
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON effects WHEN NEW.n = 13
        BEGIN SELECT RAISE(ROLLBACK, 'thirteen'); END";
    sqlx::raw_sql(trigger).execute(store.pool()).await.unwrap();
    for commits in [true, false] {
        let mut tx = store.begin().await.unwrap();
        store.outbox().publish(&mut tx, &Placed { n: 1 }).await.unwrap();
        effect::<Sqlite>(&mut tx, 1).await.unwrap();
        effect::<Sqlite>(&mut tx, 13).await.unwrap_err();
        if commits {
            let error = tx.commit().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TransactionAborted, "{error:?}");
            assert!(error.to_string().contains("RAISE(ROLLBACK)"), "{error}");
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(world.left_behind().await, (0, 0, 0));
        // The one connection of the pool is as good as new, for programs that know only sqlx too.
        let mut tx = store.pool().begin_with("BEGIN IMMEDIATE").await.unwrap();
        effect::<Sqlite>(&mut tx, 2).await.unwrap();
        tx.rollback().await.unwrap();
    }
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish(&mut tx, &Placed { n: 3 }).await.unwrap();
    effect::<Sqlite>(&mut tx, 3).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects().await, [3]);
    assert_eq!(read(&world).await, ["3"]);
}

/// The file has one writer, however many services keep their tables in it.
async fn stores_of_one_file_take_turns_to_write() {
    let world = World::<Sqlite>::new().await;
    // Refused at once when the file is busy.
    let options = (*world.pool().connect_options()).clone().busy_timeout(Duration::ZERO);
    let pool = sqlx::sqlite::SqlitePoolOptions::new().connect_with(options).await.unwrap();
    let other = StoreOptions::new().namespace("billing");
    let other = Store::with_options(pool, "billing", other).unwrap();
    other.migrate().await.unwrap();
    let tx = world.begin().await.unwrap();
    let mut waiting = tokio::spawn({
        let other = other.clone();
        async move { other.begin().await?.commit().await }
    });
    tokio::select! {
        () = signal("store.waits_to_write") => {}
        ended = &mut waiting => panic!("it does not wait for its turn: {ended:?}"),
    }
    tx.commit().await.unwrap();
    in_time(waiting).await.unwrap().unwrap();
}

/// Slow handlers hold the permit nearly all the time, and a process that starts has nothing to write.
async fn a_start_waits_for_no_writer_when_the_tables_are_there() {
    let world = World::<Sqlite>::new().await;
    let tx = world.begin().await.unwrap();
    let started = async {
        let pool = twinbox::sqlite::open(world.url()).await.unwrap();
        let store = Store::new(pool, SERVICE).unwrap();
        store.migrate().await.unwrap();
        store.check().await.unwrap();
    };
    // If it waited for its turn it would be refused, because the transaction before it does not end.
    in_time(started).await;
    tx.commit().await.unwrap();
}

const HANDLERS: i64 = 4;
const PUBLISHED: i64 = 12;

/// sqlx's COMMIT would only release the savepoint, and say that all is well.
async fn a_leaked_savepoint_is_no_commit_and_spoils_no_connection<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for n in 0..12 {
        let mut tx = world.begin().await.unwrap();
        effect::<DB>(&mut tx, n).await.unwrap();
        std::mem::forget(sqlx::Connection::begin(&mut *tx).await.unwrap());
        match n % 2 {
            0 => assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::SavepointAbandoned),
            _ => drop(tx),
        }
    }
    for n in 0..12 {
        let mut tx = in_time(world.begin()).await.unwrap();
        effect::<DB>(&mut tx, n).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(world.effects().await.len(), 12);
}

/// MySQL has a number of its own for each, and one SQLSTATE for most.
async fn errors_of_mysql_that_pass_by_themselves_are_told_from_others() {
    const AWAY: [u16; 4] = [1053, 3032, 3100, 4031];
    const SHORT_OF_SOMETHING: [u16; 4] = [1040, 1461, 1135, 1041];
    const ENDED: [u16; 4] = [1317, 1615, 1213, 3101];
    const STAY: [u16; 4] = [1153, 1062, 1146, 1305];
    let world = World::<MySql>::new().await;
    let pass = [AWAY, SHORT_OF_SOMETHING, ENDED].concat().into_iter().map(|number| (number, true));
    for (number, passes) in pass.chain(STAY.map(|number| (number, false))) {
        let signal = format!("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}");
        let error = sqlx::raw_sql(AssertSqlSafe(signal)).execute(world.pool()).await.unwrap_err();
        let error = twinbox::Error::from(error);
        assert_eq!(error.is_transient() || error.is_contention(), passes, "{number}: {error:?}");
    }
}

cases! {
    all: [
        a_leaked_savepoint_is_no_commit_and_spoils_no_connection,
        a_producer_killed_before_commit_has_published_nothing,
        a_producer_killed_after_commit_has_published,
    ]
    postgres: [
        a_lost_answer_to_commit_is_unknown_and_the_message_is_there,
    ]
    mysql: [errors_of_mysql_that_pass_by_themselves_are_told_from_others]
    sqlite: [
        handlers_that_write_all_the_time_do_not_starve_publishers,
        a_transaction_that_sqlite_ended_is_not_committed_and_the_next_is,
        stores_of_one_file_take_turns_to_write,
        a_start_waits_for_no_writer_when_the_tables_are_there,
    ]
}
