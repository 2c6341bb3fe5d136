//! What `Harness::assert_idempotent` lets pass, and what it finds.
use crate::support::{
    cases::cases,
    databases::{PgPool, Postgres},
    stores::{Confirmed, Placed, TestDb, World, effect},
    wait::{Pause, pause},
};
use futures::FutureExt as _;
use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};
use twinbox::{
    BatchTx, Delivery, Dialect, HandlerError, HandlerResult, Tx, consumer::EventHandler, event_handler,
};
use twinbox_testkit::Harness;

/// What the fake of a mail server took.
#[derive(Default)]
struct Mails(Mutex<Vec<String>>);

/// What the assertion panics with.
async fn found<DB: TestDb, S, H>(harness: &Harness<DB, S>, n: i64) -> String
where
    S: Send + Sync + 'static,
    H: EventHandler<DB, S, Event = Placed>,
{
    let asserting = AssertUnwindSafe(harness.assert_idempotent::<H>(Placed { n })).catch_unwind().await;
    let panic = asserting.expect_err("it is found");
    panic.downcast_ref::<String>().expect("it says what").clone()
}

#[event_handler(consumer = "tests.fine")]
async fn fine<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    Ok(())
}

#[event_handler(consumer = "tests.fine-batch", batch = 10)]
async fn fine_batch<DB: Dialect>(tx: &mut BatchTx<'_, DB>, orders: Vec<Delivery<Placed>>) -> HandlerResult {
    for order in orders {
        effect::<DB>(tx, order.n).await?;
    }
    Ok(())
}

/// R67, R68
async fn what_is_written_with_tx_passes<DB: TestDb>() {
    let world = World::<DB>::new().await;
    Harness::new(&world, ()).assert_idempotent::<fine>(Placed { n: 1 }).await;
    assert_eq!(world.left_behind().await, (1, 1, 1));
    Harness::new(&world, ()).assert_idempotent::<fine_batch>(Placed { n: 2 }).await;
    assert_eq!(world.effects().await, [1, 2]);
}

#[event_handler(consumer = "tests.mails")]
async fn mails<DB: Dialect>(sent: &Mails, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    sent.0.lock().unwrap().push(format!("confirmation of {}", order.n));
    Ok(effect::<DB>(tx, order.n).await?)
}

async fn a_mail_that_is_sent_and_rolled_back_is_found<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, Mails::default());
    let harness = harness.watch("mails", |sent: &Mails| sent.0.lock().unwrap().clone());
    let report = found::<DB, _, mails>(&harness, 7).await;
    let expected = "`tests.mails` is not idempotent\n\n\
        The handler ran, and its process died before COMMIT. This stayed behind, and the retry does it \
        again:\n\n  \
          mails\n    \
            + confirmation of 7\n\n\
        Write rows with the `tx` of the handler.";
    assert!(report.starts_with(expected), "{report}");
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

#[event_handler(consumer = "tests.past-the-tx")]
async fn past_the_tx(pool: &PgPool, _: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(&mut *pool.acquire().await?, order.n).await?)
}

async fn a_row_that_is_written_past_the_tx_is_found() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, world.twin(1).await);
    let report = found::<_, _, past_the_tx>(&harness, 7).await;
    assert!(report.contains("died before COMMIT"), "{report}");
    assert!(report.contains("\n\n  public.effects\n    + n: 7\n\n"), "{report}");
}

/// The mail leaves in a task of its own, after the handler.
#[event_handler(consumer = "tests.mails-later")]
async fn mails_later<DB: Dialect>(
    sent: &Arc<Mails>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    let (sent, n) = (sent.clone(), order.n);
    tokio::spawn(async move {
        pause(Pause::Work, Duration::from_millis(100)).await;
        sent.0.lock().unwrap().push(format!("confirmation of {n}"));
    });
    Ok(effect::<DB>(tx, order.n).await?)
}

async fn a_mail_of_a_task_is_found_although_it_comes_late<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, Arc::new(Mails::default()));
    let harness = harness.watch("mails", |sent: &Arc<Mails>| sent.0.lock().unwrap().clone());
    let report = found::<DB, _, mails_later>(&harness, 7).await;
    assert!(report.contains("died before COMMIT") && report.contains("+ confirmation of 7"), "{report}");
}

#[event_handler(consumer = "tests.remembers")]
async fn remembers<DB: Dialect>(
    runs: &Mutex<i64>,
    tx: &mut Tx<'_, DB>,
    _: Delivery<Placed>,
) -> HandlerResult {
    let run = std::mem::replace(&mut *runs.lock().unwrap(), 1);
    for n in 0..=run {
        effect::<DB>(tx, n).await?;
    }
    Ok(())
}

/// What the process remembers of an attempt is still there in the next.
async fn an_effect_that_depends_on_an_earlier_run_is_found<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let report = found::<DB, _, remembers>(&Harness::new(&world, Mutex::new(0)), 7).await;
    assert!(report.contains("were delivered at the same time"), "{report}");
    assert!(report.contains("effects") && report.contains("+ ") && report.contains('1'), "{report}");
}

#[event_handler(consumer = "tests.rejects")]
async fn rejects<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Err(HandlerError::reject("not this one"))
}

async fn a_handler_that_fails_without_a_fault_is_told<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, ());
    let report = found::<DB, _, rejects>(&harness, 7).await;
    assert_eq!(report, "`tests.rejects` does not handle orders.placed: not this one");
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

cases! {
    all: [
        what_is_written_with_tx_passes,
        a_mail_that_is_sent_and_rolled_back_is_found,
        a_mail_of_a_task_is_found_although_it_comes_late,
        an_effect_that_depends_on_an_earlier_run_is_found,
        a_handler_that_fails_without_a_fault_is_told,
    ]
    postgres: [a_row_that_is_written_past_the_tx_is_found]
}
