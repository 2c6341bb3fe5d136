//! MySQL lets a handler commit what it has written so far. Nothing of it is written twice, and the message is
//! neither lost nor taken for handled.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    database::SERVICE,
    databases::MySql,
    stores::{Placed, World, effect, failed, placed},
    wait::{PATIENCE, in_time},
};
use std::time::{Duration, Instant};
use twinbox::{
    Consumer, Delivery, DeliveryOutcome, ErrorKind, HandlerResult, Message, Store, Tx, event_handler,
    inbox::{ClaimTerms, DeadReason, InboxClaim, Redrive},
    ops::{Ops, dead_letters::DeadLetterId},
};

const CONSUMER: &str = "tests.partly";

#[event_handler(consumer = "tests.partly", max_attempts = 3)]
async fn commits(tx: &mut Tx<'_, MySql>, order: Delivery<Placed>) -> HandlerResult {
    sqlx::query("INSERT INTO runs VALUES (?)").bind(order.n).execute(&mut **tx).await?;
    sqlx::raw_sql("COMMIT").execute(&mut **tx).await?;
    sqlx::raw_sql("INSERT INTO runs VALUES (-1)").execute(&mut **tx).await?;
    Ok(())
}

/// A database whose table `runs` has a row for each run of a handler that got to its COMMIT.
async fn world() -> World<MySql> {
    let world = World::<MySql>::new().await;
    world.execute("CREATE TABLE runs (n BIGINT)").await;
    world
}

async fn runs(world: &World<MySql>) -> i64 {
    assert_eq!(world.number("SELECT count(*) FROM runs WHERE n < 0").await, 0);
    world.number("SELECT count(*) FROM runs").await
}

/// One run for the message, and one for the redrive of an operator. Fault 24
async fn row_24_such_a_handler_runs_once_and_once_for_each_redrive() {
    let world = world().await;
    publish(&world, 0..1).await;
    let consumer = || Consumer::new((*world).clone(), ()).handler::<commits>();
    let is_dead = "SELECT count(*) FROM twinbox_dead_letters
        WHERE reason = 'in_doubt' AND redrive_at IS NULL AND error LIKE '%committed by itself%'";
    for redriven in 0..3 {
        if redriven > 0 {
            let dead = world.inbox(CONSUMER).dead_letters(1).await.unwrap();
            let id = DeadLetterId::OfConsumer(dead[0].id);
            Ops::new(world.owner()).redrive(&[id], Duration::ZERO).await.unwrap();
        }
        run_until(consumer(), async || world.number(is_dead).await == 1).await;
        assert_eq!(runs(&world).await, redriven + 1);
    }
    assert_eq!((world.rows("dead_letters").await, world.rows("inbox").await), (1, 1));
}

async fn taken(world: &World<MySql>) -> Redrive {
    let dead = world.inbox(CONSUMER).dead_letters(1).await.unwrap();
    let id = DeadLetterId::OfConsumer(dead[0].id);
    Ops::new(world.owner()).redrive(&[id], Duration::ZERO).await.unwrap();
    world.inbox(CONSUMER).take_redrives(false, 1, PATIENCE).await.unwrap().remove(0)
}

/// Its process may die after the COMMIT. Fault 24
async fn row_24_a_redrive_keeps_its_dead_letter_up_to_its_own_commit() {
    let world = world().await;
    let (inbox, order) = (world.inbox(CONSUMER), placed(1));
    assert!(inbox.dead_letter(&order, DeadReason::Rejected, "no", 1).await.unwrap());
    let redrive = taken(&world).await;
    let InboxClaim::Open(mut attempt) = inbox.claim_redrive(ClaimTerms::default(), &redrive).await.unwrap()
    else {
        panic!()
    };
    effect::<MySql>(&mut attempt.tx(), 1).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *attempt.tx()).await.unwrap();
    drop(attempt);
    assert_eq!(world.rows("dead_letters").await, 1);
    let again = in_time(inbox.claim_redrive(ClaimTerms::default(), &redrive)).await.err().unwrap();
    assert_eq!(again.kind(), ErrorKind::PartlyCommitted);
    inbox.record_failed_redrive(&redrive.dead_letter, "partly", None).await.unwrap();
    let redrive = taken(&world).await;
    let InboxClaim::Open(mut attempt) = inbox.claim_redrive(ClaimTerms::default(), &redrive).await.unwrap()
    else {
        panic!()
    };
    effect::<MySql>(&mut attempt.tx(), 2).await.unwrap();
    attempt.commit().await.unwrap();
    assert_eq!((world.effects().await, world.rows("dead_letters").await), (vec![1, 2], 0));
    assert!(matches!(inbox.claim(&order, true).await.unwrap(), InboxClaim::Duplicate(_)));
}

#[event_handler(consumer = "tests.partly", max_attempts = 1)]
async fn commits_and_fails(tx: &mut Tx<'_, MySql>, order: Delivery<Placed>) -> HandlerResult {
    effect::<MySql>(tx, order.n).await?;
    sqlx::raw_sql("COMMIT").execute(&mut **tx).await?;
    Err("no stock".into())
}

/// The dead letter tells its operator that something was written.
async fn a_handler_that_commits_and_fails_for_the_last_time_is_in_doubt() {
    let world = world().await;
    let outcome = world.deliver::<commits_and_fails>(&placed(1)).await;
    assert_eq!(outcome, DeliveryOutcome::DeadLettered { error: "no stock".to_owned() });
    let dead = world.inbox(CONSUMER).dead_letters(1).await.unwrap();
    assert_eq!((&*dead[0].reason, &*dead[0].error), ("in_doubt", "no stock"));
}

/// Another message with the same id is not taken for it.
async fn a_message_with_another_payload_is_a_conflict_and_not_in_doubt() {
    let world = world().await;
    let order = placed(1);
    let outcome = world.deliver::<commits>(&order).await;
    assert!(failed(&outcome, "COMMIT"), "{outcome:?}");
    let another = Message { payload: placed(2).payload, ..order.clone() };
    assert!(matches!(world.deliver::<commits>(&another).await, DeliveryOutcome::DeadLettered { .. }));
    let dead = world.inbox(CONSUMER).dead_letters(1).await.unwrap();
    assert_eq!(dead[0].reason, "conflicting_payload");
    assert!(matches!(world.deliver::<commits>(&order).await, DeliveryOutcome::DeadLettered { .. }));
    let dead = world.inbox(CONSUMER).dead_letters(1).await.unwrap();
    assert_eq!(dead[0].reason, "in_doubt");
}

#[event_handler(consumer = "tests.partly")]
async fn spoils_its_session(tx: &mut Tx<'_, MySql>, order: Delivery<Placed>) -> HandlerResult {
    effect::<MySql>(tx, order.n).await?;
    // After the COMMIT this value is refused.
    let spoil = "SET SESSION sql_mode = 'STRICT_ALL_TABLES', @twinbox_idle = 0";
    sqlx::raw_sql(spoil).execute(&mut **tx).await?;
    Ok(())
}

/// A statement that fails after a COMMIT does not undo it, and the session is not lent again.
async fn a_session_that_cannot_be_set_back_after_the_commit_is_closed() {
    let world = world().await;
    for n in 0..20 {
        assert_eq!(world.deliver::<spoils_its_session>(&placed(n)).await, DeliveryOutcome::Handled);
        let mut conn = world.pool().acquire().await.unwrap();
        let is_usual = "SELECT @@autocommit = 1 AND @@wait_timeout > 1000";
        assert!(sqlx::query_scalar::<_, bool>(is_usual).fetch_one(&mut *conn).await.unwrap());
    }
    assert_eq!(world.effects().await.len(), 20);
}

/// Not waited for until the other copy's handler ends. The bound is not the handler's. R67, fault 22
async fn row_22_a_claim_that_another_copy_holds_is_contention() {
    let world = world().await;
    let (inbox, order) = (world.inbox(CONSUMER), placed(1));
    let InboxClaim::Open(mut held) = inbox.claim(&order, false).await.unwrap() else { panic!() };
    let wait = sqlx::query_scalar::<_, i64>("SELECT CAST(@@innodb_lock_wait_timeout AS SIGNED)");
    assert_eq!(wait.fetch_one(&mut *held.tx()).await.unwrap(), 50);
    let asked = Instant::now();
    let refused = in_time(inbox.claim(&order, true)).await.err().unwrap();
    assert!(refused.is_contention(), "{refused:?}");
    assert!((Duration::from_millis(900)..PATIENCE).contains(&asked.elapsed()), "{:?}", asked.elapsed());
    // A transaction that is dropped ends with its connection.
    drop(held);
    let InboxClaim::Open(next) = in_time(inbox.claim(&order, true)).await.unwrap() else { panic!() };
    next.commit().await.unwrap();
}

/// Statements outside of a transaction would never be committed.
async fn a_session_without_autocommit_is_refused() {
    let world = world().await;
    let options = sqlx::mysql::MySqlPoolOptions::new().after_connect(|conn, _| {
        Box::pin(async move { sqlx::raw_sql("SET SESSION autocommit = 0").execute(conn).await.map(drop) })
    });
    let pool = options.connect(world.url()).await.unwrap();
    let store = Store::new(pool, SERVICE).unwrap();
    let error = store.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert!(error.to_string().contains("autocommit"), "{error}");
}

cases! {
    mysql: [
        row_24_such_a_handler_runs_once_and_once_for_each_redrive,
        row_24_a_redrive_keeps_its_dead_letter_up_to_its_own_commit,
        a_handler_that_commits_and_fails_for_the_last_time_is_in_doubt,
        a_message_with_another_payload_is_a_conflict_and_not_in_doubt,
        a_session_that_cannot_be_set_back_after_the_commit_is_closed,
        row_22_a_claim_that_another_copy_holds_is_contention,
        a_session_without_autocommit_is_refused,
    ]
}
