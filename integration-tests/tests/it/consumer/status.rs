//! What an application's own probes can ask while consumers run.
use crate::support::{
    cases::cases,
    consumer::{Gate, publish},
    database::SERVICE,
    postgres::{postgres_address, through},
    relay::{Running, Target},
    stores::{Placed, World, effect},
    wait::{eventually, in_time},
};
use sqlx::{Postgres, postgres::PgPoolOptions};
use std::{sync::Arc, time::Duration};
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, Store, Tx,
    consumer::{ConsumerState, Status},
    event_handler,
    nats::Nats,
};
use twinbox_testkit::proxy::Proxy;

#[event_handler(consumer = "tests.status", concurrency = 2)]
async fn gated(gate: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    effect::<Postgres>(tx, order.n).await?;
    gate.pass(order.n).await;
    if order.n == 3 { Err("no".into()) } else { Ok(()) }
}

#[event_handler(consumer = "tests.status_too")]
async fn note(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, 100 + order.n).await?)
}

fn states(status: &Status) -> Vec<ConsumerState> {
    status.consumers().iter().map(|one| one.state).collect()
}

async fn from_before_it_runs_until_after_it_stopped() {
    let world = World::<Postgres>::new().await;
    publish(&world, 0..3).await;
    let (gate, mut entries) = Gate::new();
    let consumer =
        Consumer::new((*world).clone(), gate.clone()).handler::<gated>().register(twinbox::handler_fn(
            twinbox::Policy::new("tests.status_too"),
            async |_: &Arc<Gate>, tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>| {
                Ok(effect::<Postgres>(tx, 100 + order.n).await?)
            },
        ));
    let status = consumer.status();
    assert!(!status.is_ready() && status.consumers().is_empty());
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    eventually(async || status.is_ready().then_some(())).await;
    for _ in 0..2 {
        in_time(entries.recv()).await.unwrap();
    }
    let [first, second] = &status.consumers()[..] else { panic!("two consumers") };
    assert_eq!((&*first.consumer, first.in_flight, first.handled), ("tests.status", 2, 0));
    assert_eq!(&*second.consumer, "tests.status_too");
    gate.leave.add_permits(3);
    eventually(async || (status.consumers().iter().all(|one| one.handled == 3)).then_some(())).await;
    publish(&world, 3..4).await;
    gate.leave.add_permits(1);
    eventually(async || (status.consumers()[0].failed == 1).then_some(())).await;
    stop.cancel();
    gate.leave.add_permits(10);
    in_time(running).await.unwrap().unwrap();
    assert_eq!(states(&status), [ConsumerState::Stopped; 2]);
    assert!(!status.is_ready());
}

async fn a_database_that_is_away_is_seen() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    publish(&world, 0..1).await;
    relay.published(1).await;
    let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(5));
    let pool = pool.connect(&through(world.url(), &proxy)).await.unwrap();
    let nats = Nats::with_options(target.existing()).unwrap();
    let consumer = Consumer::new(Store::new(pool, SERVICE).unwrap(), ()).transport(nats).handler::<note>();
    let status = consumer.status();
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    eventually(async || (status.is_ready() && status.consumers()[0].handled == 1).then_some(())).await;
    proxy.cut();
    publish(&world, 1..2).await;
    eventually(async || (states(&status) == [ConsumerState::DatabaseAway]).then_some(())).await;
    proxy.restore();
    eventually(async || (status.is_ready() && status.consumers()[0].handled == 2).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    relay.stop().await;
}

/// It answers, has messages, and delivers none: paused by an operator, or broken.
async fn a_broker_that_delivers_nothing_of_what_it_has_is_noticed() {
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*world, &target);
    publish(&world, 0..1).await;
    relay.published(1).await;
    let nats = Nats::with_options(target.existing()).unwrap();
    let consumer = Consumer::new((*world).clone(), ()).transport(nats).handler::<note>();
    let status = consumer.status();
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    eventually(async || (status.consumers().first().is_some_and(|one| one.handled == 1)).then_some(())).await;
    let client = async_nats::connect(&target.url).await.unwrap();
    let pause = async |until: &'static str| {
        let subject = format!("$JS.API.CONSUMER.PAUSE.{}.tests_status_too", target.name);
        let answer = client.request(subject, until.into()).await.unwrap();
        assert!(!String::from_utf8_lossy(&answer.payload).contains("error"), "{answer:?}");
    };
    pause(r#"{"pause_until":"2999-01-01T00:00:00Z"}"#).await;
    publish(&world, 1..8).await;
    eventually(async || (status.consumers()[0].lag == Some(7)).then_some(())).await;
    eventually(async || (states(&status) == [ConsumerState::Waiting]).then_some(())).await;
    pause("{}").await;
    eventually(async || (status.is_ready() && status.consumers()[0].handled == 8).then_some(())).await;
    eventually(async || (status.consumers()[0].lag == Some(0)).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    relay.stop().await;
}

cases! {
    postgres: [
        from_before_it_runs_until_after_it_stopped,
        a_database_that_is_away_is_seen,
        a_broker_that_delivers_nothing_of_what_it_has_is_noticed,
    ]
}
