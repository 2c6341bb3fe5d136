//! What `Harness::assert_survives_restart` lets pass, and what it finds.
use crate::support::{
    cases::cases,
    databases::Postgres,
    postgres::own,
    stores::{Placed, TestDb, World, effect},
};
use futures::FutureExt as _;
use std::{panic::AssertUnwindSafe, sync::Mutex};
use twinbox::{Delivery, Dialect, HandlerResult, Tx, event_handler};
use twinbox_testkit::Harness;

#[event_handler(consumer = "tests.survives")]
async fn survives<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// Ends every other connection to the database, as a server does that is killed.
async fn end_connections(world: &World<Postgres>) {
    let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::raw_sql(ended).execute(world.pool()).await.unwrap();
}

/// Fault 34
async fn row_34_what_is_written_with_tx_survives_a_server_that_is_killed() {
    let (mut server, store) = own().await;
    sqlx::raw_sql("CREATE TABLE effects (n BIGINT NOT NULL UNIQUE)").execute(store.pool()).await.unwrap();
    let harness = Harness::new(&store, ());
    let mut restarts = 0;
    let restart = async || {
        restarts += 1;
        server.stop_immediate().unwrap();
        server.start_again().unwrap();
    };
    harness.assert_survives_restart::<survives>(Placed { n: 7 }, restart).await;
    let effects: i64 =
        sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(store.pool()).await.unwrap();
    assert_eq!((effects, restarts), (1, 2));
}

async fn what_is_written_with_tx_survives_without_a_server<DB: TestDb>() {
    let world = World::<DB>::new().await;
    Harness::new(&world, ()).assert_survives_restart::<survives>(Placed { n: 7 }, async || {}).await;
    assert_eq!(world.left_behind().await, (1, 1, 0));
}

#[derive(Default)]
struct Mails(Mutex<Vec<String>>);

#[event_handler(consumer = "tests.mails-first")]
async fn mails_first(sent: &Mails, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    sent.0.lock().unwrap().push(format!("confirmation of {}", order.n));
    Ok(effect::<Postgres>(tx, order.n).await?)
}

async fn a_mail_that_was_sent_before_the_database_went_away_is_found() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, Mails::default());
    let harness = harness.watch("mails", |sent: &Mails| sent.0.lock().unwrap().clone());
    let asserting = harness
        .assert_survives_restart::<mails_first>(Placed { n: 7 }, async || end_connections(&world).await);
    let panic = AssertUnwindSafe(asserting).catch_unwind().await.expect_err("it is found");
    let report = panic.downcast_ref::<String>().expect("it says what");
    let expected = "`tests.mails-first` is not idempotent\n\nThe handler ran, and the database restarted \
                    before COMMIT. \
        This stayed behind, and the retry does it again:\n\n  mails\n    + confirmation of 7\n";
    assert!(report.starts_with(expected), "{report}");
}

cases! {
    all: [what_is_written_with_tx_survives_without_a_server]
    postgres: [
        row_34_what_is_written_with_tx_survives_a_server_that_is_killed,
        a_mail_that_was_sent_before_the_database_went_away_is_found,
    ]
}
