//! The consumer runtime: what becomes of a delivery, by the harness and by `Consumer::run` on the log.
mod any_order;
#[cfg(feature = "programs")]
mod codec;
mod contention;
mod elsewhere;
mod errors;
#[cfg(feature = "postgres")]
mod faults;
#[cfg(feature = "programs")]
mod forget;
#[cfg(feature = "programs")]
mod fulfilment;
mod guard;
mod idempotent;
mod ids;
#[cfg(feature = "postgres")]
mod kept;
#[cfg(feature = "programs")]
mod let_go;
mod logs;
mod newer;
#[cfg(feature = "postgres")]
mod ordered;
#[cfg(feature = "postgres")]
mod outages;
mod panics;
mod payloads;
mod poison;
#[cfg(feature = "programs")]
mod redact;
#[cfg(feature = "postgres")]
mod refused;
mod registration;
mod required_codec;
mod restart;
mod retry;
#[cfg(feature = "postgres")]
mod roles;
#[cfg(feature = "postgres")]
mod running;
#[cfg(feature = "postgres")]
mod silent;
#[cfg(feature = "programs")]
mod source;
#[cfg(feature = "programs")]
mod spans;
#[cfg(feature = "postgres")]
mod status;
mod times;
mod transition;

use crate::support::{
    cases::cases,
    stores::{Confirmed, Placed, TestDb, World, effect, failed, placed, sql},
};
use std::time::Duration;
use twinbox::{Delivery, DeliveryOutcome, Dialect, HandlerError, HandlerResult, Message, Tx, event_handler};

const CHOOSE: &str = "tests.choose";

/// Writes an effect and an event, and then ends as the order says.
#[event_handler(consumer = "tests.choose", max_attempts = 3)]
async fn choose<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    match order.n {
        FAIL => Err("not today".into()),
        NEVER => Err(HandlerError::retry_after(Duration::MAX, "come back never")),
        LATER => Err(HandlerError::retry_after(Duration::from_secs(9), "come back later")),
        REJECT => Err(HandlerError::reject("a bad order")),
        PANIC => panic!("words of the {}", "panic"),
        AGAIN => Ok(effect::<DB>(tx, order.n).await?),
        TWICE if order.attempt() < 3 => Err("not yet".into()),
        LONG => Err(format!("\0{}", "é".repeat(10_000)).into()),
        _ => Ok(()),
    }
}

#[event_handler(consumer = "tests.choose", timeout = "1s")]
async fn hangs<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    std::future::pending().await
}

const FAIL: i64 = 1;
const LATER: i64 = 2;
const REJECT: i64 = 3;
const PANIC: i64 = 4;
const AGAIN: i64 = 6;
const TWICE: i64 = 7;
const LONG: i64 = 8;
const NEVER: i64 = 9;
const FINE: i64 = 100;

/// Failures on record and the last error.
async fn recorded<DB: TestDb>(world: &World<DB>, message: &Message) -> Option<(i64, String)> {
    let failures =
        format!("SELECT failures, last_error FROM {} WHERE message_id = $1", DB::table_of("attempts"));
    let query =
        sqlx::query_as::<DB, (i64, String)>(sql::<DB>(&failures)).bind(message.message_id().as_uuid());
    query.fetch_optional(&mut *world.pool().acquire().await.unwrap()).await.unwrap()
}

/// R67, fault 26
async fn row_26_a_message_is_handled_once_and_its_duplicates_run_nothing<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(FINE);
    assert_eq!(world.deliver::<choose>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(world.left_behind().await, (1, 1, 1));
    for _ in 0..3 {
        assert_eq!(world.deliver::<choose>(&order).await, DeliveryOutcome::Duplicate);
    }
    assert_eq!(world.left_behind().await, (1, 1, 1));
}

/// Fault 26
async fn row_26_of_twenty_copies_at_once_one_is_handled<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(FINE);
    let copies = (0..20).map(|_| world.deliver::<choose>(&order));
    let mut outcomes = futures::future::join_all(copies).await;
    outcomes.retain(|outcome| *outcome != DeliveryOutcome::Duplicate);
    assert_eq!(outcomes, [DeliveryOutcome::Handled]);
    assert_eq!(world.left_behind().await, (1, 1, 1));
}

/// Fault 23
async fn row_23_an_error_rolls_everything_back_and_is_recorded<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(FAIL);
    let DeliveryOutcome::Retried { delay, counted: true, error } = world.deliver::<choose>(&order).await
    else {
        panic!()
    };
    assert_eq!(error, "not today");
    assert!((100..=150).contains(&delay.as_millis()), "{delay:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    assert_eq!(recorded(&world, &order).await, Some((1, "not today".into())));
    let DeliveryOutcome::Retried { delay, .. } = world.deliver::<choose>(&order).await else { panic!() };
    assert!((200..=300).contains(&delay.as_millis()), "{delay:?}");
    assert_eq!(recorded(&world, &order).await, Some((2, "not today".into())));
}

async fn a_database_error_of_the_handlers_own_doing_is_counted<DB: TestDb>() {
    let world = World::<DB>::new().await;
    assert!(failed(&world.deliver::<choose>(&placed(AGAIN)).await, ""));
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

/// For ever is a year.
async fn a_delay_that_no_clock_can_count_is_cut<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<choose>(&placed(NEVER)).await;
    let DeliveryOutcome::Retried { delay, counted: true, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(delay, Duration::from_secs(365 * 24 * 3600));
}

async fn a_handler_may_say_when_to_try_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<choose>(&placed(LATER)).await;
    let nine = Duration::from_secs(9);
    assert_eq!(
        outcome,
        DeliveryOutcome::Retried { delay: nine, counted: true, error: "come back later".into() }
    );
}

/// Fault 23
async fn row_23_a_panic_and_a_time_out_are_failed_attempts_like_any_other<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let panicked = placed(PANIC);
    let outcome = world.deliver::<choose>(&panicked).await;
    assert!(failed(&outcome, "the handler panicked: words of the panic"), "{outcome:?}");
    assert_eq!(recorded(&world, &panicked).await.unwrap().0, 1);
    let outcome = world.deliver::<hangs>(&placed(FINE)).await;
    assert!(failed(&outcome, "the handler took longer than 1s"), "{outcome:?}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
    for n in 0..20 {
        assert_eq!(world.deliver::<choose>(&placed(FINE + n)).await, DeliveryOutcome::Handled);
    }
}

async fn the_attempt_is_counted_for_the_handler_and_forgotten_when_it_succeeds<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(TWICE);
    assert!(failed(&world.deliver::<choose>(&order).await, "not yet"));
    assert!(failed(&world.deliver::<choose>(&order).await, "not yet"));
    assert_eq!(world.deliver::<choose>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(recorded(&world, &order).await, None);
    assert_eq!(world.left_behind().await, (1, 1, 1));
}

/// The message with everything that an envelope can hold.
fn full(n: i64) -> Message {
    Message {
        subject: Some("orders/7".into()),
        sequence: Some(42),
        correlation_id: Some("c-1".into()),
        causation_id: Some("m-0".into()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        headers: vec![("region".into(), "eu".into())],
        ..placed(n)
    }
}

async fn a_rejected_message_is_kept_whole_and_never_runs_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = full(REJECT);
    let dead = DeliveryOutcome::DeadLettered { error: "a bad order".into() };
    assert_eq!(world.deliver::<choose>(&order).await, dead);
    assert_eq!(world.left_behind().await, (1, 0, 0), "only the claim, so that a late duplicate does not run");
    let [dead_letter] = &world.inbox(CHOOSE).dead_letters(10).await.unwrap()[..] else {
        panic!("one dead letter")
    };
    assert_eq!(dead_letter.message, order);
    assert_eq!(
        (dead_letter.reason.as_str(), dead_letter.error.as_str(), dead_letter.attempts),
        ("rejected", "a bad order", 1)
    );
    assert_eq!(world.deliver::<choose>(&order).await, DeliveryOutcome::Duplicate);
    assert_eq!(world.rows("dead_letters").await, 1);
}

async fn a_message_whose_attempts_run_out_is_kept_whole_and_never_runs_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = full(FAIL);
    assert!(failed(&world.deliver::<choose>(&order).await, "not today"));
    assert!(failed(&world.deliver::<choose>(&order).await, "not today"));
    let dead = DeliveryOutcome::DeadLettered { error: "not today".into() };
    assert_eq!(world.deliver::<choose>(&order).await, dead);
    assert_eq!(world.left_behind().await, (1, 0, 0));
    let [dead_letter] = &world.inbox(CHOOSE).dead_letters(10).await.unwrap()[..] else {
        panic!("one dead letter")
    };
    assert_eq!(dead_letter.message, order);
    assert_eq!(
        (dead_letter.reason.as_str(), dead_letter.error.as_str(), dead_letter.attempts),
        ("exhausted", "not today", 3)
    );
    assert_eq!(recorded(&world, &order).await, None);
    assert_eq!(world.deliver::<choose>(&order).await, DeliveryOutcome::Duplicate);
}

/// Fault 45
async fn row_45_an_error_text_is_bounded_and_free_of_nul<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(LONG);
    assert!(failed(&world.deliver::<choose>(&order).await, "é"));
    let (_, text) = recorded(&world, &order).await.unwrap();
    assert!(
        text.starts_with("\u{fffd}é") && text.len() <= twinbox::limits::ERROR_BYTES_MAX,
        "{}",
        text.len()
    );
}

#[event_handler(consumer = "tests.commission")]
async fn commission<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.analytics")]
async fn analytics<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, -order.n).await?)
}

/// R10, R11
async fn two_handlers_of_one_event_have_claims_of_their_own<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let order = placed(1);
    assert_eq!(world.deliver::<commission>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<analytics>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(world.deliver::<commission>(&order).await, DeliveryOutcome::Duplicate);
    assert_eq!(world.deliver::<analytics>(&order).await, DeliveryOutcome::Duplicate);
    assert_eq!(world.effects().await, [-1, 1]);
    assert_eq!(world.rows("inbox").await, 2);
}

cases! {
    all: [
        row_26_a_message_is_handled_once_and_its_duplicates_run_nothing,
        row_26_of_twenty_copies_at_once_one_is_handled,
        row_23_an_error_rolls_everything_back_and_is_recorded,
        a_database_error_of_the_handlers_own_doing_is_counted,
        a_handler_may_say_when_to_try_again,
        a_delay_that_no_clock_can_count_is_cut,
        row_23_a_panic_and_a_time_out_are_failed_attempts_like_any_other,
        the_attempt_is_counted_for_the_handler_and_forgotten_when_it_succeeds,
        a_rejected_message_is_kept_whole_and_never_runs_again,
        a_message_whose_attempts_run_out_is_kept_whole_and_never_runs_again,
        row_45_an_error_text_is_bounded_and_free_of_nul,
        two_handlers_of_one_event_have_claims_of_their_own,
    ]
}
