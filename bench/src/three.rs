//! Three destinations, of which one is down: the rate of the other two, and the time until the third has
//! caught up.
use crate::{failure::Failure, nats::Server, orders, spread::Spread};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval, sleep};
use twinbox::{
    CancellationToken, Store,
    ops::Ops,
    relay::{Counters, Relay},
};
use twinbox_testkit::{database, proxy::Proxy};

const NAMES: [&str; 3] = ["bench_one", "bench_two", "bench_three"];
const DOWN_SECONDS: u64 = 60;
const BEFORE: Duration = Duration::from_secs(20);
const TICK: Duration = Duration::from_millis(25);
/// Messages of one commit. With one commit a tick this is 3,000 messages a second.
const COMMIT: usize = 75;

/// The measurements of one stretch of time.
struct Stretch {
    /// Messages a second of the publisher.
    published: f64,
    /// Messages a second of the first two destinations.
    relayed: [f64; 2],
    /// The messages by which the slower of the two was behind, at each commit.
    behind: Spread,
}

struct Rig<DB: twinbox::Dialect> {
    store: Store<DB>,
    counters: Vec<Counters>,
    published: usize,
}

/// `seconds`: for how long the third destination is down. Default: 60.
pub(crate) async fn run(seconds: Option<&String>) -> Result<(), Failure> {
    let seconds = seconds.map_or(Ok(DOWN_SECONDS), |text| text.parse())?;
    let server = Server::connect().await?;
    let address = server.url().trim_start_matches("nats://").parse()?;
    let (store, proxy) = (database::postgres().await, Proxy::start(address).await?);
    let through = format!("nats://{}", proxy.address());
    let (stop, mut counters, mut running) = (CancellationToken::new(), Vec::new(), Vec::new());
    for (name, url) in NAMES.into_iter().zip([server.url(), server.url(), &through]) {
        let relay = Relay::new((*store).clone(), server.named(url, name).await?);
        counters.push(relay.counters());
        running.push(tokio::spawn(relay.run(stop.clone())));
    }
    let mut rig = Rig { store: (*store).clone(), counters, published: 0 };
    rig.publish_for(Duration::from_secs(3)).await?;

    println!("\nthree destinations, steady publishing; the third is down for {seconds} s");
    let before = rig.publish_for(BEFORE).await?;
    print("before", &before);
    let third_before = rig.counters[2].published();
    proxy.cut();
    let down = rig.publish_for(Duration::from_secs(seconds)).await?;
    print("down", &down);
    let third = &rig.counters[2];
    let behind = rig.published as u64 - third.published();
    println!(
        "  the third relayed {} messages meanwhile and is {behind} behind",
        third.published() - third_before
    );
    for (name, (down, before)) in NAMES.iter().zip(down.relayed.iter().zip(before.relayed)) {
        println!("  ratio of {name}  {:.2}", down / before);
    }

    proxy.restore();
    let restored = Instant::now();
    while third.published() < rig.published as u64 {
        sleep(Duration::from_millis(5)).await;
    }
    let caught_up = restored.elapsed().as_secs_f64();
    println!("  the third caught up in {caught_up:.1} s, {:.0}/s", behind as f64 / caught_up);
    println!(
        "  its messages refused {}, parked {}, dead {}; parked rows {}",
        third.refused(),
        third.parked(),
        third.dead_letters(),
        Ops::new(&store).parked_messages(NAMES[2], 10).await?.len()
    );
    stop.cancel();
    for relay in running {
        relay.await??;
    }
    for name in NAMES {
        server.delete_named(name).await;
    }
    Ok(())
}

fn print(name: &str, stretch: &Stretch) {
    let Stretch { published, relayed: [one, two], behind } = stretch;
    println!(
        "  {name:<6} published {published:.0}/s, relayed {one:.0}/s and {two:.0}/s, \
         behind p50 {:.0}, p99 {:.0}, max {:.0}",
        behind.median(),
        behind.quantile(0.99),
        behind.quantile(1.0)
    );
}

impl<DB: twinbox::Dialect> Rig<DB> {
    async fn publish_for(&mut self, time: Duration) -> Result<Stretch, Failure> {
        let counts = |rig: &Self| [0, 1].map(|n| rig.counters[n].published());
        let (first, relayed) = (self.published, counts(self));
        let (started, mut behind) = (Instant::now(), Vec::new());
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        while started.elapsed() < time {
            ticks.tick().await;
            let slower = counts(self).into_iter().min().unwrap_or_default();
            behind.push((self.published as u64).saturating_sub(slower) as f64);
            let mut tx = self.store.begin().await?;
            let drafts = (self.published..self.published + COMMIT).map(orders::draft).collect();
            self.store.outbox().publish_all(&mut tx, drafts).await?;
            tx.commit().await?;
            self.published += COMMIT;
        }
        let (elapsed, after) = (started.elapsed().as_secs_f64(), counts(self));
        Ok(Stretch {
            published: (self.published - first) as f64 / elapsed,
            relayed: [0, 1].map(|n| (after[n] - relayed[n]) as f64 / elapsed),
            behind: Spread::of(behind),
        })
    }
}
