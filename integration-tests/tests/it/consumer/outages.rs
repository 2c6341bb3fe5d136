//! A message that takes the database away with it.
use crate::support::{
    consumer::{publish, run_until},
    postgres::proxied,
    stores::{Placed, World, effect},
    wait::{Pause, pause},
};
use sqlx::Postgres;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Notify;
use twinbox::{Consumer, Delivery, HandlerResult, RetryPolicy, Tx, event_handler};
use twinbox_testkit::proxy::Proxy;

/// Longer than a consumer waits to hear whether the database is there.
const AWAY: Duration = Duration::from_secs(6);
const AT_ONCE: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(1)]);

struct Server {
    proxy: Proxy,
    has_gone: Notify,
    runs: AtomicU32,
}

impl Server {
    async fn comes_back(&self) {
        loop {
            self.has_gone.notified().await;
            pause(Pause::Outage, AWAY).await;
            self.proxy.restore();
        }
    }
}

/// Takes the server away, as a statement does that ends its process.
#[event_handler(consumer = "tests.takes_the_server_away", retry = AT_ONCE, max_attempts = 2)]
async fn takes_the_server_away(
    server: &Arc<Server>,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    if order.n == 1 {
        server.runs.fetch_add(1, SeqCst);
        server.proxy.cut();
        server.has_gone.notify_one();
    }
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// The failure is recorded when the server is back. Fault 34
#[tokio::test(flavor = "multi_thread")]
async fn row_34_a_message_that_takes_the_server_away_each_time_becomes_a_dead_letter() {
    let world = World::<Postgres>::new().await;
    let (proxy, store) = proxied(world.url()).await;
    publish(&world, 1..3).await;
    let server = Arc::new(Server { proxy, has_gone: Notify::new(), runs: AtomicU32::new(0) });
    let consumer = Consumer::new(store, server.clone()).handler::<takes_the_server_away>();
    let handled = run_until(consumer, async || world.rows("dead_letters").await == 1);
    tokio::select! {
        () = handled => {}
        () = server.comes_back() => unreachable!("it comes back as often as it goes"),
    }
    // The first three are nobody's fault, and two are counted.
    assert_eq!((server.runs.load(SeqCst), world.effects().await), (5, vec![2]));
}
