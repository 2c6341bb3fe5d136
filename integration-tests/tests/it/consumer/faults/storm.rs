//! A storm of copies beside a slow handler. Fault 27
use crate::support::{
    consumer::run_until,
    long,
    publisher::{secret, send_to},
    relay::Target,
    stores::{Confirmed, Placed, World, effect, placed},
    wait::{self, Pause, eventually},
};
use async_nats::jetstream;
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use twinbox::{
    Consumer, Delivery, Draft, Event, HandlerResult, Tx, event_handler, nats::Nats,
    seam::destination::Destination as _,
};

const IDS: i64 = 10;
const CONCURRENCY: u64 = 8;

fn copies() -> u64 {
    long::or(100_000, 3_000)
}

#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "orders.slow", version = 1, key = n)]
struct Slow {
    n: i64,
}

#[derive(Default)]
struct Seen {
    bystanders: AtomicI64,
    slow: AtomicU64,
}

#[event_handler(consumer = "tests.storm", concurrency = 8)]
async fn storm(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

#[event_handler(consumer = "tests.slow_beside", concurrency = 2)]
async fn slow(seen: &Arc<Seen>, tx: &mut Tx<'_, Postgres>, _: Delivery<Slow>) -> HandlerResult {
    seen.slow.fetch_add(1, SeqCst);
    sqlx::query("SELECT pg_sleep(0.5)").execute(&mut **tx).await?;
    Ok(())
}

#[event_handler(consumer = "tests.bystander_beside")]
async fn bystander(seen: &Arc<Seen>, _: &mut Tx<'_, Postgres>, _: Delivery<Confirmed>) -> HandlerResult {
    seen.bystanders.fetch_add(1, SeqCst);
    Ok(())
}

/// Publishes what the stream holds of these messages again and again, without an id that the broker would
/// know.
async fn copy(target: &Target) {
    let jetstream = target.jetstream().await;
    let stream = jetstream.get_stream(&target.name).await.unwrap();
    let client = async_nats::connect(&target.url).await.unwrap();
    let mut originals = Vec::new();
    for sequence in 1..=IDS.unsigned_abs() {
        let original = stream.get_raw_message(sequence).await.unwrap();
        let headers = original.headers.iter().filter(|(name, _)| name.to_string().starts_with("ce-"));
        let headers =
            headers.flat_map(|(name, values)| values.iter().map(move |v| (name.clone(), v.clone())));
        originals.push((original.subject, headers.collect::<async_nats::HeaderMap>(), original.payload));
    }
    for n in 0..copies() - IDS.unsigned_abs() {
        let (subject, headers, payload) = &originals[usize::try_from(n % IDS.unsigned_abs()).unwrap()];
        client.publish_with_headers(subject.clone(), headers.clone(), payload.clone()).await.unwrap();
    }
    client.flush().await.unwrap();
    eventually(async || (stream.get_info().await.unwrap().state.messages >= copies()).then_some(())).await;
}

async fn send(nats: &Nats, draft: Draft) {
    let message = draft.into_message("shop");
    send_to(&mut *nats.connect(&secret()).await.unwrap(), &[&message]).await.remove(0).unwrap();
}

/// Of a hundred thousand copies, with `--long`.
#[tokio::test(flavor = "multi_thread")]
async fn row_27_a_storm_of_copies_beside_a_slow_handler() {
    let (world, seen) = (World::<Postgres>::new().await, Arc::new(Seen::default()));
    let (target, others) = (Target::shared(), Target::shared());
    let types = ["orders.placed", "orders.slow", "orders.confirmed"];
    let config = |target: &Target| jetstream::stream::Config { max_messages: -1, ..target.config(&types) };
    target.create(config(&target)).await;
    others.create(config(&others)).await;
    let [nats, beside] = [&target, &others].map(|target| Nats::with_options(target.existing()).unwrap());
    let messages = Vec::from_iter((0..IDS).map(placed));
    for sent in send_to(&mut *nats.connect(&secret()).await.unwrap(), &Vec::from_iter(&messages)).await {
        sent.unwrap();
    }
    copy(&target).await;
    for n in 0..20 {
        send(&beside, Draft::of(&Slow { n }).unwrap()).await;
    }

    let storming = Consumer::new((*world).clone(), ()).transport(nats).handler::<storm>();
    let besides = Consumer::new((*world).clone(), seen.clone())
        .transport(beside.clone())
        .handler::<slow>()
        .handler::<bystander>();
    let (is_over, is_watched) = (AtomicBool::new(false), AtomicBool::new(false));
    // Messages of somebody else, one after another. One that the storm held up would be the last of them.
    let watch = async {
        let mut handled = 0;
        while !is_over.load(SeqCst) {
            // A pace, so that there are some all the time.
            wait::pause(Pause::Pace, Duration::from_millis(20)).await;
            send(&beside, Draft::of(&Confirmed { n: handled }).unwrap()).await;
            eventually(async || (seen.bystanders.load(SeqCst) > handled).then_some(())).await;
            handled += 1;
        }
        is_watched.store(true, SeqCst);
        handled
    };
    let mut most = 0;
    let storm = run_until(storming, async || {
        most = most.max(target.unsettled("tests.storm").await);
        is_over.store(most > 0 && target.settled("tests.storm").await >= copies(), SeqCst);
        is_over.load(SeqCst)
    });
    let running = run_until(besides, async || is_watched.load(SeqCst) && world.rows("inbox").await >= IDS);
    let ((), (), handled) = tokio::join!(storm, running, watch);

    assert_eq!(world.effects().await, Vec::from_iter(0..IDS));
    // A quick handler has two shares: one runs and three wait, for each that may run at a time.
    assert!((1..=4 * CONCURRENCY).contains(&most), "{most} deliveries were in the process at a time");
    assert!(seen.slow.load(SeqCst) > 0);
    assert!(handled > 6, "{handled} messages of somebody else were handled meanwhile");
}
