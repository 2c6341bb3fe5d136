//! `Consumer::run` on the log of its own store: no broker.
use crate::support::{
    cases::cases,
    consumer::{Gate, publish, run_until},
    database::SERVICE,
    relay::{Running, Target},
    stores::{Confirmed, Placed, TestDb, World, effect, sql},
    wait::in_time,
};
use sqlx::Postgres;
use std::{
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
    time::Duration,
};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, Dialect, Draft, HandlerError, HandlerResult, Store, Tx,
    event_handler, log::LogTransport, nats::Nats,
};

/// Fails twice at 7, rejects 8, never manages 9, panics once at 10.
#[event_handler(consumer = "tests.run", max_attempts = 3)]
async fn mixed<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    match (order.n, order.attempt()) {
        (7, 1 | 2) => Err("not yet".into()),
        (8, _) => Err(HandlerError::reject("never")),
        (9, _) => Err("not ever".into()),
        (10, 1) => panic!("at first"),
        _ => Ok(()),
    }
}

#[event_handler(consumer = "tests.beside")]
async fn beside<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, 1_000 + order.n).await?)
}

/// R10, R11, fault 23
async fn row_23_everything_in_the_log_is_handled_once_or_buried<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 0..30).await;
    let consumer = || Consumer::new((*world).clone(), ()).handler::<mixed>().handler::<beside>();
    run_until(consumer(), async || world.rows("inbox").await == 60).await;
    let mut expected: Vec<i64> = (0..30).filter(|n| ![8, 9].contains(n)).chain(1_000..1_030).collect();
    assert_eq!(world.effects().await, expected);
    assert_eq!(world.rows("attempts").await, 0);
    let mut dead_letters = world.inbox("tests.run").dead_letters(10).await.unwrap();
    dead_letters.sort_by_key(|dead_letter| dead_letter.message.sequence);
    let dead_letters: Vec<_> =
        dead_letters.iter().map(|l| (l.reason.as_str(), l.error.as_str(), l.attempts)).collect();
    assert_eq!(dead_letters, [("rejected", "never", 1), ("exhausted", "not ever", 3)]);

    publish(&world, 30..40).await;
    run_until(consumer(), async || world.rows("inbox").await == 80).await;
    expected.extend((30..40).chain(1_030..1_040));
    expected.sort_unstable();
    assert_eq!(world.effects().await, expected);
}

#[event_handler(consumer = "tests.gate", concurrency = 3)]
async fn gated<DB: Dialect>(gate: &Arc<Gate>, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    gate.pass(order.n).await;
    Ok(())
}

/// On Postgres; on SQLite handlers take turns.
async fn as_many_run_beside_each_other_as_the_policy_says() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..20).await;
    let (gate, mut entries) = Gate::new();
    let consumer = Consumer::new((*world).clone(), gate.clone()).handler::<gated>();
    let opened = gate.clone();
    let open = tokio::spawn(async move {
        for _ in 0..3 {
            in_time(entries.recv()).await.unwrap();
        }
        opened.leave.add_permits(20);
        entries
    });
    run_until(consumer, async || world.rows("inbox").await == 20).await;
    drop(in_time(open).await.unwrap());
    assert_eq!(gate.most.load(SeqCst), 3);
    assert_eq!(world.effects().await, Vec::from_iter(0..20));
}

#[event_handler(consumer = "tests.drain", concurrency = 1)]
async fn drained<DB: Dialect>(
    gate: &Arc<Gate>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    gated(gate, tx, order).await
}

#[event_handler(consumer = "tests.gate-too", concurrency = 3)]
async fn gated_too<DB: Dialect>(
    gate: &Arc<Gate>,
    _: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    gate.pass(order.n).await;
    Ok(())
}

/// Six may run by their policies, and two by the pool.
async fn row_38_handlers_leave_connections_to_leases() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..20).await;
    let store = Store::new(world.twin(4).await, SERVICE).unwrap();
    let (gate, mut entries) = Gate::new();
    let one = Consumer::new(store.clone(), gate.clone()).handler::<gated>();
    let other = Consumer::new(store.clone(), gate.clone()).handler::<gated_too>();
    let all = async || world.rows("inbox").await == 40;
    let open = async {
        for _ in 0..2 {
            in_time(entries.recv()).await.unwrap();
        }
        let _both = tokio::try_join!(store.pool().acquire(), store.pool().acquire()).unwrap();
        gate.leave.add_permits(40);
    };
    tokio::join!(open, run_until(one, all), run_until(other, all));
    assert_eq!(gate.most.load(SeqCst), 2);
}

/// Fault 52
async fn a_stop_lets_what_is_under_way_finish_and_starts_nothing_else<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 0..3).await;
    let (gate, mut entries) = Gate::new();
    let stop = CancellationToken::new();
    // Its lease does not end while the test runs.
    let log = LogTransport::new(&world).lease(Duration::from_secs(3600));
    let consumer = Consumer::new((*world).clone(), gate.clone()).transport(log).handler::<drained>();
    let running = tokio::spawn(consumer.run(stop.clone()));
    assert_eq!(in_time(entries.recv()).await, Some(0));
    stop.cancel();
    gate.leave.add_permits(3);
    in_time(running).await.unwrap().unwrap();
    assert_eq!(world.effects().await, [0]);
    assert!(entries.try_recv().is_err());

    // Another takes over at once, without waiting for a lease to end.
    let consumer = Consumer::new((*world).clone(), gate.clone()).handler::<drained>();
    run_until(consumer, async || world.rows("inbox").await == 3).await;
    assert_eq!(world.effects().await, [0, 1, 2]);
}

/// Three run and the others wait, for longer than the broker does; the last comes when nobody is about to ask
/// for one. Fault 22
async fn row_22_who_waits_for_a_turn_is_not_delivered_again() {
    let world = World::<Postgres>::new().await;
    let target = Target::shared();
    let relay = Running::start(&*world, &target);
    publish(&world, 0..5).await;
    relay.published(5).await;
    let (gate, mut entries) = Gate::new();
    let ack_wait = Duration::from_secs(10);
    let nats = Nats::with_options(target.existing().ack_wait(ack_wait)).unwrap();
    let consumer = Consumer::new((*world).clone(), gate.clone()).transport(nats).handler::<gated>();
    let open = async {
        for _ in 0..3 {
            in_time(entries.recv()).await.unwrap();
        }
        publish(&world, 5..6).await;
        relay.published(6).await;
        target.redelivers_after(ack_wait).await;
        gate.leave.add_permits(6);
    };
    let handled = run_until(consumer, async || world.rows("inbox").await == 6);
    tokio::join!(open, handled);
    relay.stop().await;
    assert_eq!(world.effects().await, Vec::from_iter(0..6));
    assert_eq!(target.deliveries("tests.gate").await, 6, "nothing came twice");
}

/// Batches as they came: the keys of each.
type Seen = Arc<Mutex<Vec<Vec<i64>>>>;

#[event_handler(consumer = "tests.batch", batch = 50)]
async fn batch<DB: Dialect>(
    seen: &Seen,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    seen.lock().unwrap().push(orders.iter().map(|o| o.n).collect());
    for order in &orders {
        effect::<DB>(tx, order.n).await?;
        tx.caused_by(order).publish(&Confirmed { n: order.n }).await?;
    }
    match orders.len() {
        2.. if orders.iter().any(|o| o.n >= 100) => Err("only one by one".into()),
        _ => Ok(()),
    }
}

#[event_handler(consumer = "tests.batch")]
async fn single<DB: Dialect>(_: &Seen, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    tx.publish(&Confirmed { n: order.n }).await?;
    Ok(())
}

/// What was handled before is not in the batch that the handler sees.
async fn a_batch_leaves_out_what_was_handled_before<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 0..20).await;
    let seen = Seen::default();
    let harness = twinbox_testkit::Harness::new(&world, seen.clone());
    let messages = world.published("orders.placed", 100).await.unwrap();
    for message in messages.iter().step_by(3) {
        assert_eq!(harness.deliver::<single>(message).await, twinbox::DeliveryOutcome::Handled);
    }
    let consumer = Consumer::new((*world).clone(), seen.clone()).handler::<batch>();
    run_until(consumer, async || world.rows("inbox").await == 20).await;
    let batches = seen.lock().unwrap().clone();
    assert!(batches.len() < 13, "{batches:?}");
    let mut handled = batches.concat();
    handled.sort_unstable();
    assert_eq!(handled, Vec::from_iter((0..20).filter(|n| n % 3 != 0)));
    assert_eq!(world.left_behind().await, (20, 20, 40));
}

/// A batch that fails, and one in which a payload cannot be read, is handled one by one.
async fn a_batch_that_fails_is_handled_one_by_one<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, 100..110).await;
    let mut tx = world.begin().await.unwrap();
    let broken = Draft::raw("orders.placed", 1, &b"{}"[..]).key("broken");
    world.outbox().publish_draft(&mut tx, broken).await.unwrap();
    tx.commit().await.unwrap();
    let seen = Seen::default();
    let consumer = Consumer::new((*world).clone(), seen.clone()).handler::<batch>();
    run_until(consumer, async || world.rows("inbox").await == 11).await;
    assert_eq!(world.effects().await, Vec::from_iter(100..110));
    assert_eq!(world.left_behind().await, (11, 10, 21));
    assert_eq!(world.rows("attempts").await, 0, "that they failed together says nothing about one");
    let dead_letter = &world.inbox("tests.batch").dead_letters(10).await.unwrap()[0];
    assert_eq!(
        (dead_letter.reason.as_str(), dead_letter.message.key.as_deref()),
        ("undecodable", Some("broken"))
    );
}

#[event_handler(consumer = "tests.ordered", order = "key", concurrency = 8)]
async fn in_order<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Confirmed>) -> HandlerResult {
    // Fails at times, and what is behind it waits.
    let place = i64::try_from(order.message().sequence.unwrap()).unwrap();
    sqlx::query::<DB>(sql::<DB>("INSERT INTO seen (key, place) VALUES ($1, $2)"))
        .bind(order.n)
        .bind(place)
        .execute(&mut **tx)
        .await?;
    if order.attempt() == 1 && place % 7 == 0 { Err("once more".into()) } else { Ok(()) }
}

/// Fault 28
async fn row_28_the_messages_of_a_key_are_handled_in_order<DB: TestDb>() {
    let world = World::<DB>::new().await;
    match DB::MODULE {
        "postgres" => {
            world.execute("CREATE TABLE seen (nth bigserial PRIMARY KEY, key bigint, place bigint)").await
        }
        "mysql" => {
            world
                .execute(
                    "CREATE TABLE seen (nth BIGINT AUTO_INCREMENT PRIMARY KEY, key bigint, place bigint)",
                )
                .await
        }
        _ => world.execute("CREATE TABLE seen (nth integer PRIMARY KEY, key bigint, place bigint)").await,
    }
    let mut tx = world.begin().await.unwrap();
    let drafts = (0..100).map(|n| Draft::of(&Confirmed { n: n % 5 }).unwrap()).collect();
    world.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let consumer = Consumer::new((*world).clone(), ()).handler::<in_order>();
    run_until(consumer, async || world.rows("inbox").await == 100).await;
    let mut conn = world.pool().acquire().await.unwrap();
    let seen = sqlx::query_as::<DB, (i64, i64)>(sql::<DB>("SELECT key, place FROM seen ORDER BY nth"));
    let seen = seen.fetch_all(&mut *conn).await.unwrap();
    assert_eq!(seen.len(), 100);
    for key in 0..5 {
        let places: Vec<_> = seen.iter().filter(|(k, _)| *k == key).map(|(_, place)| *place).collect();
        assert!(places.is_sorted(), "{places:?}");
    }
}

cases! {
    all: [
        row_23_everything_in_the_log_is_handled_once_or_buried,
        a_stop_lets_what_is_under_way_finish_and_starts_nothing_else,
        a_batch_leaves_out_what_was_handled_before,
        a_batch_that_fails_is_handled_one_by_one,
        row_28_the_messages_of_a_key_are_handled_in_order,
    ]
    postgres: [
        as_many_run_beside_each_other_as_the_policy_says,
        row_38_handlers_leave_connections_to_leases,
        row_22_who_waits_for_a_turn_is_not_delivered_again,
    ]
}
