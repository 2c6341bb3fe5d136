//! The time from the commit of an order to its acknowledgement by JetStream, at a steady rate.
use crate::{failure::Failure, nats::Server, orders, spread::Spread};
use futures::FutureExt as _;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Message, MessageId,
    nats::Nats,
    relay::Relay,
    seam::{
        BoxFuture,
        destination::{Acknowledgement, Destination, PublishError, Publisher},
    },
};
use twinbox_testkit::database;

const PACE: Duration = Duration::from_millis(5);
const ORDERS: usize = 4000;
/// The first orders are not measured.
const WARM_UP: usize = 200;

type Stored = Arc<Mutex<HashMap<MessageId, Instant>>>;

pub(crate) async fn run() -> Result<(), Failure> {
    let server = Server::connect().await?;
    let store = database::postgres().await;
    let stored = Stored::default();
    let destination = Timed { nats: server.destination(0).await?, stored: stored.clone() };
    let stop = CancellationToken::new();
    let running = tokio::spawn(Relay::new(store.clone(), destination).run(stop.clone()));
    let mut committed = Vec::with_capacity(ORDERS);
    let mut pace = tokio::time::interval(PACE);
    for n in 0..ORDERS {
        pace.tick().await;
        let mut tx = store.begin().await?;
        let id = store.outbox().publish_draft(&mut tx, orders::draft(n)).await?;
        tx.commit().await?;
        committed.push((id, Instant::now()));
    }
    server.holds(ORDERS).await?;
    stop.cancel();
    running.await??;
    server.delete().await;
    let stored = stored.lock().map_err(|_| "a publisher panicked")?;
    let latencies = committed.iter().skip(WARM_UP).filter_map(|(id, at)| {
        stored.get(id).map(|stored| stored.saturating_duration_since(*at).as_secs_f64() * 1000.0)
    });
    let latencies = Spread::of(latencies);
    println!("from commit to acknowledgement at {} orders/s, {ORDERS} orders:", 1000 / PACE.as_millis());
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
        println!("  {name} {:>7.2} ms", latencies.quantile(share));
    }
    Ok(())
}

/// A destination that records the time of each acknowledgement.
struct Timed {
    nats: Nats,
    stored: Stored,
}

impl Destination for Timed {
    fn id(&self) -> &str {
        self.nats.id()
    }

    fn partitions(&self) -> Option<u32> {
        self.nats.partitions()
    }

    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let inner = self.nats.connect().await?;
            Ok(Box::new(TimedPublisher { inner, stored: self.stored.clone() }) as Box<dyn Publisher>)
        })
    }
}

struct TimedPublisher {
    inner: Box<dyn Publisher>,
    stored: Stored,
}

impl Publisher for TimedPublisher {
    fn send<'a>(&'a mut self, batch: &'a [&'a Message]) -> BoxFuture<'a, Vec<Acknowledgement>> {
        Box::pin(async move {
            let ids: Vec<_> = batch.iter().map(|message| message.message_id()).collect();
            let acknowledgements = self.inner.send(batch).await;
            ids.into_iter()
                .zip(acknowledgements)
                .map(|(id, ack)| note(id, ack, self.stored.clone()))
                .collect()
        })
    }

    fn timeout(&self) -> Duration {
        self.inner.timeout()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        self.inner.health()
    }
}

fn note(id: MessageId, ack: Acknowledgement, stored: Stored) -> Acknowledgement {
    ack.map(move |result| {
        if result.is_ok()
            && let Ok(mut stored) = stored.lock()
        {
            stored.entry(id).or_insert_with(Instant::now);
        }
        result
    })
    .boxed()
}
