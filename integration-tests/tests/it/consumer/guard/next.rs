//! A transaction that is begun together with the commit of the one before it, in the same session.
use crate::support::{
    cases::cases,
    databases::MySql,
    stores::{World, placed},
};
use sqlx::MySqlConnection;
use std::time::Duration;
use twinbox::inbox::{ClaimTerms, InboxClaim};

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

async fn a_transaction_right_after_another_has_the_same_settings() {
    let world = World::<MySql>::new().await;
    let inbox = world.inbox("tests.next").keep_connections();
    let terms = ClaimTerms { handler_timeout: Some(Duration::from_secs(99)), ..ClaimTerms::default() };
    let waiting = inbox.turn();
    let InboxClaim::Open(mut first) = inbox.claim_on(terms, &placed(1), false).await.unwrap() else {
        panic!()
    };
    let of_first = settings(&mut first.tx()).await;
    assert_eq!((of_first.1, of_first.2, of_first.3), (50, 100, false));
    // A handler may leave the session as it likes.
    let spoil = "SET SESSION innodb_lock_wait_timeout = 7, SESSION wait_timeout = 7";
    sqlx::raw_sql(spoil).execute(&mut *first.tx()).await.unwrap();
    first.commit().await.unwrap();

    let terms = ClaimTerms { waiting_since: Some(waiting.end()), ..terms };
    let InboxClaim::Open(mut next) = inbox.claim_on(terms, &placed(2), false).await.unwrap() else {
        panic!()
    };
    assert_eq!(settings(&mut next.tx()).await, of_first);
    // It sees what others commit meanwhile.
    assert_eq!(effects(&mut next.tx()).await, 0);
    world.execute("INSERT INTO effects (n) VALUES (1)").await;
    assert_eq!(effects(&mut next.tx()).await, 1);
    sqlx::raw_sql("INSERT INTO effects (n) VALUES (2)").execute(&mut *next.tx()).await.unwrap();
    next.rollback().await;
    assert_eq!(world.effects().await, [1]);
    assert_eq!(world.rows("inbox").await, 1);
}

cases! {
    mysql: [a_transaction_right_after_another_has_the_same_settings]
}
