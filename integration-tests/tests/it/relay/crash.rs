//! The program dies, or is frozen for longer than its lease, while messages are put aside and tried again.
use super::*;
use crate::kill::{Program, Programs};
use std::{os::unix::process::ExitStatusExt as _, process::Command};
use tokio::process::Child;
use twinbox_testkit::database::TestDatabase;

const KEYS: u32 = 5;
const MESSAGES: u32 = 200;
const POINTS: [&str; 9] = [
    "log.before_park",
    "log.after_park",
    "log.after_park:3",
    "log.before_park:2",
    "relay.after_read:2",
    "relay.after_send:2",
    "relay.after_ack:5",
    "relay.after_ack:60",
    "log.after_park:2",
];

/// A stream that at first takes only one of two types, and a relay that is a process.
struct Rig {
    database: TestDatabase<Postgres>,
    programs: Programs,
    target: Target,
}

impl Rig {
    async fn new() -> Self {
        let database = database::postgres().await;
        let mut programs = Programs::new(&database, "postgres");
        programs.create_stream = false;
        let target = Target { name: programs.stream.clone(), ..Target::shared() };
        let rig = Self { database, programs, target };
        rig.jetstream().await.create_stream(rig.config(&["orders.placed"])).await.unwrap();
        rig
    }

    async fn jetstream(&self) -> jetstream::Context {
        jetstream::new(async_nats::connect(&self.target.url).await.unwrap())
    }

    fn config(&self, types: &[&str]) -> stream::Config {
        let subject = |text: &&str| format!("{}.*.{text}", self.target.name.to_lowercase());
        let subjects = types.iter().map(subject).collect();
        // So that a copy that is sent again is seen.
        let duplicate_window = Duration::from_millis(100);
        stream::Config { name: self.target.name.clone(), subjects, duplicate_window, ..Default::default() }
    }

    /// Every seventh has no home.
    async fn publish(&self, numbers: std::ops::Range<u32>) {
        let mut tx = self.database.begin().await.unwrap();
        let draft = |n| {
            let event_type = if n % 7 == 3 { "orders.paid" } else { "orders.placed" };
            Draft::raw(event_type, 1, n_payload(n)).id(format!("o-{n}")).key(format!("k-{}", n % KEYS))
        };
        self.database.outbox().publish_all(&mut tx, numbers.map(draft).collect()).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn take_everything(&self) {
        let config = self.config(&["orders.placed", "orders.paid"]);
        self.jetstream().await.update_stream(config).await.unwrap();
    }

    fn start(&self, dies_at: Option<&str>) -> Child {
        self.programs.start(Program::Relay, dies_at)
    }

    fn freeze(&self, at: &str) -> Child {
        let mut command = self.programs.command(Program::Relay);
        command.env("TWINBOX_FREEZE_AT", at).spawn().expect("a program just built starts")
    }

    /// Waits until the stream holds every message, and asserts that of each key the first copies came in
    /// order.
    async fn assert_whole(&self) {
        let first_copies = async {
            loop {
                let count = usize::try_from(self.target.count().await).unwrap();
                let mut seen = std::collections::HashSet::new();
                let mut messages = self.target.messages(count).await;
                messages.retain(|(id, ..)| seen.insert(id.clone()));
                if messages.len() == MESSAGES as usize {
                    return messages;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let messages = timeout(PATIENCE, first_copies).await.expect("nothing is lost");
        assert_whole_and_ordered(&messages, MESSAGES as usize);
    }
}

/// PITFALLS rows 4, 5, 6: at every point of parking, sending and settling.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_dies_while_it_parks_loses_nothing_and_keeps_the_order() {
    let rig = Rig::new().await;
    let mut deaths = 0;
    for (n, point) in (0u32..).zip(POINTS) {
        rig.publish(n * 20..(n + 1) * 20).await;
        if n == 5 {
            rig.take_everything().await;
        }
        let mut relay = rig.start(Some(point));
        match timeout(Duration::from_secs(15), relay.wait()).await {
            Ok(ended) => {
                assert_eq!(ended.unwrap().signal(), Some(9), "killed, not ended, at {point}");
                deaths += 1;
            }
            Err(_) => relay.kill().await.unwrap(),
        }
    }
    assert!(deaths >= 7, "only {deaths} died where they should");
    rig.publish(180..MESSAGES).await;
    let mut relay = rig.start(None);
    rig.assert_whole().await;
    relay.kill().await.unwrap();
}

/// Waits until the process has stopped itself.
async fn is_frozen(child: &Child) {
    let stat = format!("/proc/{}/stat", child.id().expect("it runs"));
    timeout(PATIENCE, async {
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it freezes");
}

fn thaw(child: &Child) {
    let id = child.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-CONT", &id]).status().unwrap().success());
}

/// PITFALLS row 7: wherever it is frozen, in the transaction that puts a message aside too.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_frozen_past_its_lease_does_not_disturb_its_successor() {
    for point in ["log.before_park", "log.after_park", "relay.after_read", "relay.after_ack:3"] {
        let rig = Rig::new().await;
        rig.publish(0..50).await;
        let mut frozen = rig.freeze(point);
        is_frozen(&frozen).await;
        rig.publish(50..120).await;
        let mut successor = rig.start(None);
        rig.take_everything().await;
        timeout(PATIENCE, async {
            while rig.target.count().await < 100 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("the successor takes over from one frozen at {point}"));
        thaw(&frozen);
        rig.publish(120..MESSAGES).await;
        rig.assert_whole().await;
        frozen.kill().await.unwrap();
        successor.kill().await.unwrap();
    }
}
