//! Registration, state, and handlers without the macro.
use crate::support::{
    cases::cases,
    databases::{PgConnection, Postgres},
    stores::{Confirmed, Placed, TestDb, World, effect, placed},
    wait::in_time,
};
use sqlx::{FromRow, Sqlite};
use twinbox::{
    BatchTx, CancellationToken, Consumer, Delivery, DeliveryOutcome, Dialect, Error, HandlerResult,
    InTransaction, Outbox, Policy, Provide, Tx,
    consumer::{DeliveryOrder, ErrorKind as ConsumerErrorKind, EventHandler, Handler},
    event_handler, handler_fn,
};
use twinbox_testkit::Harness;

struct Prices {
    factor: i64,
}

struct Names {
    greeting: String,
}

#[derive(Provide)]
struct State {
    prices: Prices,
    names: Names,
}

fn state() -> State {
    State { prices: Prices { factor: 10 }, names: Names { greeting: "hello".into() } }
}

#[event_handler(consumer = "prices.multiply", max_attempts = 12, order = "key")]
async fn multiply<DB: Dialect>(
    prices: &Prices,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    effect::<DB>(tx, order.n * prices.factor).await?;
    Ok(())
}

#[event_handler(consumer = "names.greet")]
async fn greet<DB: Dialect>(names: &Names, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    assert_eq!(names.greeting, "hello");
    tx.publish(&Confirmed { n: order.n }).await?;
    Ok(())
}

/// A handler asks by type for the part of the state that it needs.
async fn handlers_of_two_states_share_a_runtime<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let harness = Harness::new(&world, state());
    let order = placed(4);
    assert_eq!(harness.deliver::<multiply>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(harness.deliver::<greet>(&order).await, DeliveryOutcome::Handled);
    assert_eq!(world.left_behind().await, (2, 1, 1));
    assert_eq!(world.effects().await, [40]);
    assert_eq!(harness.published::<Confirmed>().await, [Confirmed { n: 4 }]);
}

#[test]
fn the_policy_stands_beside_the_handler() {
    let policy = <multiply as EventHandler<Postgres, State>>::POLICY;
    assert_eq!(policy, Policy::new("prices.multiply").max_attempts(12).order(DeliveryOrder::Key));
    assert_eq!(policy.consumer(), "prices.multiply");
}

async fn plain(prices: &Prices, tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Sqlite>(tx, order.n * prices.factor).await?;
    Ok(())
}

async fn plain_batch<DB: Dialect>(
    _: &Prices,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    for order in orders {
        effect::<DB>(tx, order.n + 100).await?;
    }
    Ok(())
}

async fn handlers_without_the_macro_run_as_well() {
    let world = World::<Sqlite>::new().await;
    let offset = 1000;
    let consumer = Consumer::new((*world).clone(), state())
        .register(handler_fn(Policy::new("a"), plain))
        .register(handler_fn(Policy::new("b").batch(50), plain_batch::<Sqlite>))
        .register(handler_fn(
            Policy::new("c"),
            async |_: &Names, tx: &mut Tx<'_, Sqlite>, order: Delivery<Placed>| {
                effect::<Sqlite>(tx, order.n + 500).await?;
                Ok(())
            },
        ))
        // An async closure that captures is not `Fn` (its future may borrow from it): box the future.
        .register(Handler::new::<Names, Delivery<Placed>>(Policy::new("d"), move |_, tx, order| {
            Box::pin(async move {
                effect::<Sqlite>(tx, order.n + offset).await?;
                Ok(())
            })
        }));
    crate::support::consumer::publish(&world, 3..5).await;
    crate::support::consumer::run_until(consumer, async || world.rows("inbox").await == 8).await;
    assert_eq!(world.effects().await, [30, 40, 103, 104, 503, 504, 1003, 1004]);
}

type PgTx<'t> = Tx<'t, Postgres>;

/// The macro sees through an alias.
#[event_handler(consumer = "names.alias")]
async fn aliased(_: &Names, _: &mut PgTx<'_>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

/// The function is still a function, and may call another handler.
#[event_handler(consumer = "names.both")]
async fn both(state: &State, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    multiply(&state.prices, tx, order.clone()).await?;
    greet(&state.names, tx, order).await
}

async fn handlers_are_functions() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, state());
    assert_eq!(harness.deliver::<aliased>(&placed(4)).await, DeliveryOutcome::Handled);
    assert_eq!(harness.deliver::<both>(&placed(4)).await, DeliveryOutcome::Handled);
    let order = Delivery::of(Placed { n: 5 }).unwrap();
    assert_eq!((order.attempt(), order.n, order.id()), (1, 5, order.message().message_id()));
    harness.run(async |tx| both(harness.state(), tx, order).await).await.unwrap();
    assert_eq!(world.effects().await, [40, 50]);
    assert_eq!(harness.published::<Confirmed>().await.len(), 2);

    let error = harness.run(async |tx| Ok(effect::<Postgres>(tx, 40).await?)).await.unwrap_err();
    assert!(error.is_unique_violation());
    let swallow = async |tx: &mut PgTx<'_>| {
        effect::<Postgres>(tx, 40).await.unwrap_err();
        Ok(())
    };
    let error = harness.run(swallow).await.unwrap_err();
    assert!(error.to_string().contains("nothing can be committed"), "{error}");
    assert_eq!(world.effects().await, [40, 50]);
}

#[event_handler(consumer = "names.greet", order = "key")]
async fn ordered<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Confirmed>) -> HandlerResult {
    Ok(())
}

#[event_handler(consumer = "prices.multiply")]
async fn multiply_too<DB: Dialect>(_: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    Ok(())
}

/// Told at start and not by the first message. R11
async fn contradicting_handlers_are_refused_at_start<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let consumer = || Consumer::new((*world).clone(), state());
    let nameless = |name| {
        handler_fn::<DB, State, Prices, Vec<Delivery<Placed>>, _>(Policy::new(name), plain_batch::<DB>)
    };
    let long: &'static str = "a".repeat(121).leak();
    let cases = [
        (
            consumer().handler::<multiply>().handler::<multiply_too>(),
            "two handlers of the consumer \"prices.multiply\" take \"orders.placed\"",
        ),
        (
            consumer().handler::<greet>().handler::<ordered>(),
            "the handlers of the consumer \"names.greet\" disagree on `order`",
        ),
        (consumer(), "no handler is registered: add one with `.handler::<…>()`"),
        (consumer().register(nameless("")), "the consumer name \"\" must have 1 to 120 bytes"),
        (consumer().register(nameless(long)), "must have 1 to 120 bytes"),
    ];
    for (consumer, says) in cases {
        let error = in_time(consumer.run(CancellationToken::new())).await.unwrap_err();
        assert_eq!(error.kind(), ConsumerErrorKind::Configuration);
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// Helpers take a connection, or any transaction.
async fn touch(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(conn).await?;
    Ok(())
}

async fn confirm_twice(
    outbox: &Outbox<Postgres>,
    tx: &mut impl InTransaction<Postgres>,
) -> Result<(), Error> {
    outbox.publish(tx, &Confirmed { n: 1 }).await?;
    outbox.publish(tx, &Confirmed { n: 2 }).await?; // `tx` is reborrowed, not moved
    Ok(())
}

#[event_handler(consumer = "shapes.helpers")]
async fn helpers(outbox: &Outbox<Postgres>, tx: &mut Tx<'_, Postgres>, _: Delivery<Placed>) -> HandlerResult {
    touch(tx).await?; // `&mut Tx` coerces to `&mut PgConnection`
    confirm_twice(outbox, tx).await?;
    let one: i64 = sqlx::query_scalar("SELECT 1::bigint").fetch_one(&mut **tx).await?;
    let counted = tx
        .savepoint(async |tx| {
            let mut hits = one;
            tx.savepoint(async |tx| Ok(touch(tx).await?)).await?;
            hits += 2;
            Ok(hits)
        })
        .await?;
    tx.publish(&Confirmed { n: counted }).await?;
    Ok(())
}

/// What `DB: Dialect` does not imply is asked for where it is needed.
#[event_handler(consumer = "shapes.bounds")]
async fn bounds<DB>(_: &Outbox<DB>, tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult
where
    DB: Dialect,
    (i64,): for<'r> FromRow<'r, DB::Row>,
{
    let (n,): (i64,) = sqlx::query_as::<DB, _>("SELECT CAST(1 AS BIGINT)").fetch_one(&mut **tx).await?;
    tx.savepoint(async |tx| Ok(tx.publish(&Confirmed { n: n + order.n }).await?)).await?;
    Ok(())
}

async fn handlers_have_many_shapes() {
    let world = World::<Postgres>::new().await;
    let harness = Harness::new(&world, world.outbox());
    assert_eq!(harness.deliver::<helpers>(&placed(0)).await, DeliveryOutcome::Handled);
    assert_eq!(harness.deliver::<bounds>(&placed(9)).await, DeliveryOutcome::Handled);
    let confirmed = harness.published::<Confirmed>().await;
    assert_eq!(confirmed.iter().map(|c| c.n).collect::<Vec<_>>(), [1, 2, 3, 10]);
}

cases! {
    all: [handlers_of_two_states_share_a_runtime, contradicting_handlers_are_refused_at_start]
    postgres: [handlers_are_functions, handlers_have_many_shapes]
    sqlite: [handlers_without_the_macro_run_as_well]
}
