//! The time from the commit of an order to its acknowledgement by JetStream, and to its handler, at steady
//! rates.
use crate::{
    failure::Failure,
    nats::Server,
    orders::{self, Placed},
    report::Report,
    spread::Spread,
};
use futures::StreamExt as _;
use sqlx::Postgres;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Consumer, Delivery, HandlerResult, MessageId, Policy, Store, Tx, handler_fn,
    nats::Nats,
    relay::Relay,
    seam::{
        BoxFuture,
        destination::{
            Acknowledgements, Destination, DestinationSecret, Outgoing, PublishError, Publisher, SendOrder,
        },
    },
};
use twinbox_testkit::database;

/// Orders per second, and how many.
const RATES: [(u32, usize); 3] = [(50, 500), (200, 2000), (1000, 5000)];
/// The rate with targets, and how often it is measured.
const MAIN_RATE: u32 = 200;
const RUNS: usize = 3;
/// The first orders are not measured.
const WARM_UP: usize = 100;

/// When a message reached its place, by its message id.
type Reached = Arc<Mutex<HashMap<MessageId, Instant>>>;

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let server = Server::connect().await?;
    println!("milliseconds from the commit, median / p99");
    let (mut p50, mut p99, mut handled_p50) = (Vec::new(), Vec::new(), Vec::new());
    for (rate, orders) in RATES {
        for _ in 0..if rate == MAIN_RATE { RUNS } else { 1 } {
            let stored = measure(&server, rate, orders, false).await?;
            let handled = measure(&server, rate, orders, true).await?;
            println!(
                "  {rate:>4}/s   stored {:.2} / {:.2}   handled {:.2} / {:.2}",
                stored.median(),
                stored.quantile(0.99),
                handled.median(),
                handled.quantile(0.99)
            );
            if rate == MAIN_RATE {
                p50.push(stored.median());
                p99.push(stored.quantile(0.99));
                handled_p50.push(handled.median());
            }
        }
    }
    server.delete().await;
    report.add("latency at 200/s: stored p50, ms", Spread::of(p50))?;
    report.add("latency at 200/s: stored p99, ms", Spread::of(p99))?;
    report.add("latency at 200/s: handled p50, ms", Spread::of(handled_p50))
}

/// Publishes orders at a steady rate. Returns the milliseconds until JetStream has acknowledged each one, or
/// until its handler has run.
async fn measure(server: &Server, rate: u32, orders: usize, is_handled: bool) -> Result<Spread, Failure> {
    let store = database::postgres().await;
    let reached = Reached::default();
    let nats = server.destination(0).await?;
    let stored = if is_handled { Reached::default() } else { reached.clone() };
    let destination = Timed { nats: nats.clone(), stored };
    let stop = CancellationToken::new();
    let mut running = vec![tokio::spawn(relay((*store).clone(), destination, stop.clone()))];
    if is_handled {
        let handler = handler_fn(Policy::new("bench.latency"), note_handled);
        let consumer = Consumer::new((*store).clone(), reached.clone()).transport(nats).register(handler);
        let stop = stop.clone();
        running.push(tokio::spawn(async move { Ok(consumer.run(stop).await?) }));
    }
    let mut committed = Vec::with_capacity(orders);
    let mut pace = tokio::time::interval(Duration::from_secs(1) / rate);
    for n in 0..orders {
        pace.tick().await;
        let mut tx = store.begin().await?;
        let id = store.outbox().publish_draft(&mut tx, orders::draft(n)).await?;
        tx.commit().await?;
        committed.push((id, Instant::now()));
    }
    while reached.lock().map_err(|_| "a task panicked")?.len() < orders {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    for one in running {
        one.await??;
    }
    let reached = reached.lock().map_err(|_| "a task panicked")?;
    Ok(Spread::of(committed.iter().skip(WARM_UP).filter_map(|(id, at)| {
        reached.get(id).map(|reached| reached.saturating_duration_since(*at).as_secs_f64() * 1000.0)
    })))
}

async fn relay(store: Store<Postgres>, to: Timed, stop: CancellationToken) -> Result<(), Failure> {
    Ok(Relay::new(store, to).run(stop).await?)
}

async fn note_handled(
    reached: &Reached,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    sqlx::query("SELECT $1").bind(order.n).execute(&mut **tx).await?;
    if let Ok(mut reached) = reached.lock() {
        reached.entry(order.message().message_id()).or_insert_with(Instant::now);
    }
    Ok(())
}

/// A destination that records the time of each acknowledgement.
struct Timed {
    nats: Nats,
    stored: Reached,
}

impl Destination for Timed {
    fn id(&self) -> &str {
        self.nats.id()
    }

    fn partitions(&self) -> Option<u32> {
        self.nats.partitions()
    }

    fn connect<'a>(
        &'a self,
        secret: &'a DestinationSecret,
    ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let inner = self.nats.connect(secret).await?;
            Ok(Box::new(TimedPublisher { inner, stored: self.stored.clone() }) as Box<dyn Publisher>)
        })
    }
}

struct TimedPublisher {
    inner: Box<dyn Publisher>,
    stored: Reached,
}

impl Publisher for TimedPublisher {
    fn order(&self) -> SendOrder {
        self.inner.order()
    }

    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
        Box::pin(async move {
            let ids: Vec<_> = batch.iter().map(|one| one.message.message_id()).collect();
            let (acknowledgements, stored) = (self.inner.send(batch).await, self.stored.clone());
            Box::pin(acknowledgements.inspect(move |(place, result)| {
                if result.is_ok()
                    && let Ok(mut stored) = stored.lock()
                {
                    stored.entry(ids[*place]).or_insert_with(Instant::now);
                }
            })) as Acknowledgements
        })
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        self.inner.health()
    }
}
