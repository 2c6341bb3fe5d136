//! How much memory the program takes for large messages.
use super::*;
use crate::support::{
    cases::cases,
    long,
    program::{Program, destination},
    stores::{TestDb, World},
};

const MESSAGE_BYTES: usize = 900 * 1024;
/// The messages of a transaction. They are less than a server of MySQL takes in one packet.
const STEP: usize = 5;
/// Half of what the shipped unit of systemd allows. On a busy machine all three destinations hold as much as
/// they may at one moment, about 200 MB.
const MEMORY_KB_MAX: u64 = 256 * 1024;

async fn three_destinations_hold_few_large_messages_at_a_time<DB: TestDb>() {
    let world = World::<DB>::new().await;
    // In all three destinations they are much more than the limit.
    let count = long::or(700, 150);
    for first in (0..count).step_by(STEP) {
        let mut tx = world.begin().await.unwrap();
        let draft = |n| Draft::raw("orders.placed", 1, vec![b'x'; MESSAGE_BYTES]).key(format!("k-{}", n % 7));
        world.outbox().publish_all(&mut tx, (first..first + STEP as u64).map(draft).collect()).await.unwrap();
        tx.commit().await.unwrap();
    }
    let server = NatsServer::start().unwrap();
    let targets = [(); 3].map(|()| Target::at(server.url()));
    let names = ["one", "two", "three"];
    let tables = names.iter().zip(&targets);
    let text: String =
        tables.map(|(name, target)| destination(name, target, "create_stream = true")).collect();
    let url = match DB::MODULE {
        "sqlite" => format!("sqlite:{}", world.url()),
        _ => world.url().to_owned(),
    };
    let program = Program::run(&url, &[], &text).await;
    for target in &targets {
        target.holds_within(5 * PATIENCE, count, async_nats::ConnectOptions::new()).await;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.child.id().unwrap())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim();
    println!("{count} messages to three destinations from {}: {peak}", DB::MODULE);
    assert!(peak.trim_end_matches(" kB").parse::<u64>().unwrap() < MEMORY_KB_MAX, "{peak}");
    program.stop().await;
}

cases! { all: [three_destinations_hold_few_large_messages_at_a_time] }
