//! A transaction that is begun together with the commit of the one before it, in the same session.
use crate::support::{
    cases::cases,
    databases::MySql,
    stores::{World, placed},
};
use sqlx::MySqlConnection;
use std::time::Duration;
use twinbox::{
    inbox::{Attempt, ClaimFence, ClaimTerms, InboxClaim},
    log::Log,
};
use twinbox_core::test_signal;

/// The session, its bounds in seconds, and whether it commits by itself.
type Settings = (i64, i64, i64, bool);

async fn settings(conn: &mut MySqlConnection) -> Settings {
    let settings = "SELECT CAST(connection_id() AS SIGNED), CAST(@@innodb_lock_wait_timeout AS SIGNED),
        CAST(@@wait_timeout AS SIGNED), @@autocommit = 1";
    sqlx::query_as(settings).fetch_one(conn).await.unwrap()
}

async fn effects(conn: &mut MySqlConnection) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(conn).await.unwrap()
}

/// Claims a message, and then another one in a transaction that was begun with the commit of the first.
/// Returns it and the settings of the first.
async fn follows(world: &World<MySql>, terms: ClaimTerms, n: i64) -> (Attempt<MySql>, Settings) {
    let inbox = world.inbox("tests.next").keep_connections();
    let waiting = inbox.turn();
    let InboxClaim::Open(mut first) = inbox.claim_on(terms, &placed(n), false).await.unwrap() else {
        panic!()
    };
    let of_first = settings(&mut first.tx()).await;
    // A handler may leave the session as it likes.
    let spoil = "SET SESSION innodb_lock_wait_timeout = 7, SESSION wait_timeout = 7";
    sqlx::raw_sql(spoil).execute(&mut *first.tx()).await.unwrap();
    first.commit().await.unwrap();
    let terms = ClaimTerms { waiting_since: Some(waiting.end()), ..terms };
    let InboxClaim::Open(next) = inbox.claim_on(terms, &placed(n + 1), false).await.unwrap() else {
        panic!()
    };
    (next, of_first)
}

async fn a_transaction_right_after_another_has_the_same_settings() {
    let (world, mut n) = (World::<MySql>::new().await, 0);
    let run = Log::new(&world).server_run().await.unwrap();
    for fence in [None, Some(ClaimFence::ServerRun(run))] {
        let handler_timeout = Some(Duration::from_secs(99));
        let terms = ClaimTerms { handler_timeout, fence, ..ClaimTerms::default() };
        // On a busy machine a connection is away for too long, and goes back.
        let mut next = loop {
            n += 2;
            let begun = test_signal::passed("spares.takes_begun");
            let (mut next, of_first) = follows(&world, terms, n).await;
            assert_eq!((of_first.1, of_first.2, of_first.3), (50, 100, false));
            let of_next = settings(&mut next.tx()).await;
            assert_eq!((of_next.1, of_next.2, of_next.3), (50, 100, false));
            if of_next.0 == of_first.0 && test_signal::passed("spares.takes_begun") > begun {
                break next;
            }
            next.rollback().await;
        };
        // It sees what others commit meanwhile.
        let before = effects(&mut next.tx()).await;
        sqlx::query("INSERT INTO effects (n) VALUES (?)").bind(n).execute(world.pool()).await.unwrap();
        assert_eq!(effects(&mut next.tx()).await, before + 1);
        sqlx::raw_sql("INSERT INTO effects (n) VALUES (-1)").execute(&mut *next.tx()).await.unwrap();
        next.rollback().await;
        assert!(!world.effects().await.contains(&-1));
    }
}

cases! {
    mysql: [a_transaction_right_after_another_has_the_same_settings]
}
