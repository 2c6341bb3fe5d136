//! Programs that send: relays, movers of delayed messages, dispatchers of side effects, and runners of jobs.
use super::{Program, act_on_dead_letters, replay};
use crate::support::{
    effects::{QUICK, WELCOME, mail},
    jobs::execute,
    relay::{Target, n_payload},
    stores::{Placed, TestDb, World},
    wait::{Pause, pause},
};
use async_nats::jetstream::stream;
use futures::{StreamExt as _, future::BoxFuture};
use integration_tests::vendors::http_vendor;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};
use twinbox::{
    CancellationToken, Draft, Store, Timestamp,
    effects::{
        Dispatcher, EffectState, Effects, VendorOptions,
        jobs::{Job, JobRunner, Jobs as JobsOf, RunState},
        profiles,
    },
    log::Keeper,
    nats::Nats,
    ops::{
        Ops,
        dead_letters::{DeadLetterAction, DeadLetterFilter},
        replays::NewReplay,
    },
    relay::{DelayedMessageMover, OnExhausted, Relay, RelayOptions},
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

/// A relay to a stream that takes neither large messages nor those of one type.
pub(in super::super) struct RelayProgram {
    target: Target,
    arrived: Arc<Mutex<HashSet<String>>>,
}

impl<DB: TestDb> Program<DB> for RelayProgram {
    const NAME: &str = "relay";

    async fn new(_: &World<DB>) -> Self {
        let target = Target::shared();
        let config = target.config(&["orders.placed"]);
        target.create(stream::Config { max_message_size: 2048, ..config }).await;
        let client = async_nats::connect(target.addresses()).await.unwrap();
        let mut messages = client.subscribe(format!("{}.*.orders.placed", target.prefix())).await.unwrap();
        let arrived = Arc::<Mutex<HashSet<_>>>::default();
        let arrives = arrived.clone();
        tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                let id = message.headers.as_ref().and_then(|headers| headers.get("ce-id"));
                arrives.lock().unwrap().extend(id.map(ToString::to_string));
            }
        });
        Self { target, arrived }
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let nats = Nats::with_options(self.target.existing()).unwrap();
        let options = RelayOptions::new().on_exhausted(OnExhausted::DeadLetter);
        let keeper = Keeper::new(&store).every(Duration::from_secs(1)).first_look(Duration::ZERO);
        Box::pin(
            async move { Relay::with_options(store, nats, options).keeper(keeper).run(stop).await.unwrap() },
        )
    }

    async fn feed(&self, world: &World<DB>, n: i64) {
        let of_type = |event_type: &str, id: &str, payload: Vec<u8>| {
            Draft::raw(event_type, 1, payload).id(format!("{id}-{n}"))
        };
        let plain = || n_payload(u32::try_from(n).unwrap()).into_bytes();
        let drafts = vec![
            of_type("orders.placed", "o", plain()).key(format!("k-{n}")),
            of_type("orders.placed", "large", vec![b' '; 4000]).key(format!("large-{n}")),
            of_type("orders.placed", "behind", plain()).key(format!("large-{n}")),
            of_type("orders.placed", "keyless", vec![b' '; 4000]),
            of_type("orders.homeless", "homeless", plain()).key(format!("homeless-{n}")),
        ];
        let mut tx = world.begin().await.unwrap();
        world.outbox().publish_all(&mut tx, drafts).await.unwrap();
        tx.commit().await.unwrap();
        let ops = Ops::new(world.owner());
        let destination = ops.readers().await.unwrap().first().map(|reader| reader.name.clone());
        let Some(destination) = destination else { return };
        let filter =
            DeadLetterFilter { destination: Some(destination.clone()), ..DeadLetterFilter::default() };
        match n % 8 {
            1 => act_on_dead_letters(&ops, &filter, DeadLetterAction::Discard, false).await,
            3 => act_on_dead_letters(&ops, &filter, DeadLetterAction::Discard, true).await,
            5 if self.is_done(world, n - 1).await => {
                replay(&ops, &destination, format!("k-{}", n - 1), NewReplay::resend("ada")).await;
            }
            _ => {}
        }
    }

    async fn is_done(&self, _: &World<DB>, n: i64) -> bool {
        self.arrived.lock().unwrap().contains(&format!("o-{n}"))
    }
}

/// The mover of delayed messages.
pub(in super::super) struct Mover;

impl<DB: TestDb> Program<DB> for Mover {
    const NAME: &str = "mover of delayed messages";

    async fn new(_: &World<DB>) -> Self {
        Self
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move { DelayedMessageMover::new(store).run(stop).await.unwrap() })
    }

    async fn feed(&self, world: &World<DB>, n: i64) {
        let mut tx = world.begin().await.unwrap();
        let draft = Draft::of(&Placed { n }).unwrap().not_before(Timestamp::from_micros(0));
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn is_done(&self, world: &World<DB>, n: i64) -> bool {
        let moved = format!("SELECT count(*) FROM {} WHERE key = '{n}'", DB::table_of("outbox"));
        world.number(moved).await == 1
    }
}

/// The dispatcher of side effects.
pub(in super::super) struct EffectDispatcher {
    vendor: FakeVendor,
    planned: Mutex<HashMap<i64, Uuid>>,
}

impl EffectDispatcher {
    async fn undo<DB: TestDb>(&self, world: &World<DB>, n: i64) {
        let (effects, source) = (Effects::new(world), self.planned.lock().unwrap()[&n]);
        let sent = effects.find(source, WELCOME).await.unwrap().unwrap();
        let mut tx = world.begin().await.unwrap();
        effects.compensate(&mut tx, sent.id, "email.sorry", mail("sorry")).await.unwrap();
        tx.commit().await.unwrap();
    }
}

impl<DB: TestDb> Program<DB> for EffectDispatcher {
    const NAME: &str = "dispatcher of side effects";

    async fn new(_: &World<DB>) -> Self {
        Self { vendor: FakeVendor::start().await.unwrap(), planned: Mutex::default() }
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let vendor = http_vendor(&self.vendor.url(), profiles::RESEND).unwrap();
        let dispatcher = Dispatcher::new(&store).vendor_with(vendor, VendorOptions::new().retries(QUICK));
        Box::pin(async move { dispatcher.poll(Duration::from_millis(10)).run(stop).await.unwrap() })
    }

    async fn feed(&self, world: &World<DB>, n: i64) {
        let effects = Effects::new(world);
        let mut tx = world.begin().await.unwrap();
        let source = Uuid::now_v7();
        effects.plan(&mut tx, source, WELCOME, mail(&n.to_string()).key(n.to_string())).await.unwrap();
        for second in ["second", "third"] {
            let next = mail(second).key(n.to_string());
            effects.plan(&mut tx, Uuid::now_v7(), WELCOME, next).await.unwrap();
        }
        tx.commit().await.unwrap();
        self.planned.lock().unwrap().insert(n, source);
        if n % 8 == 5 {
            self.vendor.answer_next([VendorAnswer::RetryAfter(429, 1)]);
        }
        if n % 4 == 3 && self.is_done(world, n - 2).await {
            self.undo(world, n - 2).await;
        }
    }

    async fn is_done(&self, world: &World<DB>, n: i64) -> bool {
        let source = self.planned.lock().unwrap()[&n];
        let effect = Effects::new(world).find(source, WELCOME).await.unwrap();
        let is_sent = [EffectState::Confirmed, EffectState::Compensated];
        effect.is_some_and(|effect| is_sent.contains(&effect.state))
    }
}

/// The lease of runs: one that takes so long is renewed.
const LEASE: Duration = Duration::from_secs(3);

/// The runner of jobs.
pub(in super::super) struct Jobs {
    ran: Mutex<HashMap<i64, Uuid>>,
}

impl Jobs {
    /// Asks for a run, which is refused as long as no runner has registered the job.
    async fn ask<DB: TestDb>(&self, world: &World<DB>, n: i64) {
        if let Ok(run) = JobsOf::new(world).run_now("asked").await {
            self.ran.lock().unwrap().insert(n, run);
        }
    }
}

impl<DB: TestDb> Program<DB> for Jobs {
    const NAME: &str = "runner of jobs";

    async fn new(_: &World<DB>) -> Self {
        Self { ran: Mutex::default() }
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let asked = Job::new("asked", "0 0 1 1 *").unwrap().handler(async |_| Ok(()));
        let scheduled = Job::new("scheduled", "* * * * *").unwrap().handler(async |_| Ok(()));
        let slow = Job::new("slow", "* * * * *").unwrap().handler(async |_| {
            pause(Pause::Work, LEASE).await;
            Ok(())
        });
        let runner = JobRunner::new(&store).job(asked).job(scheduled).job(slow).lease(LEASE);
        let runner = runner.poll(Duration::from_millis(10));
        Box::pin(async move { runner.run(stop).await.unwrap() })
    }

    async fn feed(&self, world: &World<DB>, n: i64) {
        // The schedule is due again.
        let (table, earlier) = (DB::table_of("jobs"), DB::earlier("decided_until", 120));
        execute(world, format!("UPDATE {table} SET decided_until = {earlier}")).await;
        self.ask(world, n).await;
    }

    async fn is_done(&self, world: &World<DB>, n: i64) -> bool {
        let Some(run) = self.ran.lock().unwrap().get(&n).copied() else {
            self.ask(world, n).await;
            return false;
        };
        let run = JobsOf::new(world).run(run).await.unwrap();
        run.is_some_and(|run| run.state == RunState::Done)
    }
}
