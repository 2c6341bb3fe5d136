//! Code of the application that panics where it is not polled: it costs its message an attempt, and nobody
//! else anything.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, TestDb, World, effect, failed, placed},
};
use std::{fmt, future::pending};
use twinbox::{Consumer, Delivery, Dialect, HandlerResult, Tx, consumer::EventHandler, event_handler};

/// The first of three messages.
const POISON: i64 = 0;

#[derive(Debug)]
struct Unshowable(&'static str);

impl fmt::Display for Unshowable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Inside of a character.
        f.write_str(&self.0[..1])
    }
}

impl std::error::Error for Unshowable {}

struct Undroppable;

impl Drop for Undroppable {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("never drop me");
        }
    }
}

#[derive(Debug)]
struct UndroppableError(Undroppable);

impl fmt::Debug for Undroppable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Undroppable")
    }
}

impl fmt::Display for UndroppableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no")
    }
}

impl std::error::Error for UndroppableError {}

#[event_handler(consumer = "tests.unshowable", max_attempts = 2)]
async fn unshowable<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    if order.n == POISON {
        return Err(Unshowable("\u{e4}").into());
    }
    Ok(effect::<DB>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.undroppable-error", max_attempts = 2)]
async fn undroppable_error<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    if order.n == POISON {
        return Err(UndroppableError(Undroppable).into());
    }
    Ok(effect::<DB>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.undroppable", max_attempts = 2, timeout = "2s")]
async fn undroppable<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    if order.n == POISON {
        let _held = Undroppable;
        pending::<()>().await;
    }
    Ok(effect::<DB>(tx, order.n).await?)
}

async fn costs_an_attempt<DB: TestDb, H: EventHandler<DB, ()>>(words: &str) {
    let world = World::<DB>::new().await;
    let outcome = world.deliver::<H>(&placed(POISON)).await;
    assert!(failed(&outcome, words), "{outcome:?}");
    publish(&world, 0..3).await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<H>();
    run_until(consumer, async || world.rows("dead_letters").await == 1 && world.effects().await == [1, 2])
        .await;
}

async fn an_error_that_cannot_be_shown_costs_an_attempt<DB: TestDb>() {
    costs_an_attempt::<DB, unshowable>("not a char boundary").await;
}

async fn an_error_that_cannot_be_dropped_costs_an_attempt<DB: TestDb>() {
    costs_an_attempt::<DB, undroppable_error>("never drop me").await;
}

async fn a_handler_that_cannot_be_stopped_at_its_time_out_costs_an_attempt<DB: TestDb>() {
    costs_an_attempt::<DB, undroppable>("panicked when it was stopped: never drop me").await;
}

cases! {
    all: [
        an_error_that_cannot_be_shown_costs_an_attempt,
        an_error_that_cannot_be_dropped_costs_an_attempt,
        a_handler_that_cannot_be_stopped_at_its_time_out_costs_an_attempt,
    ]
}
