//! Three processes share the partitions of a stream, and are killed, frozen and joined by others.
use super::*;
use crate::support::wait::{self, Pause};
use std::{collections::HashSet, time::Instant};
use tokio::task::JoinHandle;
use uuid::Uuid;

const KEYS: i64 = 50;
const PARTITIONS: i64 = 16;
/// How long the partitions may be shared otherwise than evenly: a lease of 5 s, and what a busy machine adds.
const REBALANCED: Duration = Duration::from_secs(60);
const PROCESSES: usize = 3;

/// What happens.
#[derive(Clone, Copy)]
enum Event {
    Killed,
    Frozen,
    /// One more, or one less.
    Resized,
}

/// Processes by what they are to the others.
struct Group {
    programs: Programs,
    database: TestDatabase<Postgres>,
    processes: Vec<Child>,
    random: u64,
}

impl Group {
    fn join(&mut self) {
        let mut command = self.programs.command(Program::Consumer);
        self.processes.push(command.env("ORDER", "key").spawn().expect("a program just built starts"));
    }

    fn random(&mut self, below: usize) -> usize {
        // xorshift64, so that a seed tells the events.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % 1000).unwrap() % below
    }

    /// Who has partitions now.
    async fn owners(&self) -> Vec<(Uuid, i64)> {
        let owners =
            "SELECT owner, count(*) FROM twinbox.partition_leases WHERE lease_until > now() GROUP BY owner";
        sqlx::query_as(owners).fetch_all(self.database.pool()).await.unwrap()
    }

    /// Waits until as many processes have all partitions between them, evenly, and none of these is among
    /// them.
    async fn rebalanced(&self, begun: Instant, processes: usize, gone: &HashSet<Uuid>) -> HashSet<Uuid> {
        let fair = PARTITIONS.unsigned_abs().div_ceil(processes as u64);
        loop {
            let owners = self.owners().await;
            let all: i64 = owners.iter().map(|(_, count)| count).sum();
            let even = owners.iter().all(|(_, count)| count.unsigned_abs() <= fair);
            let who = owners.iter().map(|(owner, _)| *owner).collect::<HashSet<_>>();
            if all == PARTITIONS && even && who.len() == processes && who.is_disjoint(gone) {
                return who;
            }
            assert!(begun.elapsed() < REBALANCED, "{processes} processes share as {owners:?}");
            wait::pause(Pause::Look, Duration::from_millis(20)).await;
        }
    }

    /// Returns the processes that lost their partitions, also one that lives on and missed its lease.
    async fn survived_by(&self, begun: Instant, before: &HashSet<Uuid>) -> HashSet<Uuid> {
        loop {
            let who = self.owners().await.into_iter().map(|(owner, _)| owner).collect::<HashSet<_>>();
            if who.len() + 1 == before.len() && who.is_subset(before) {
                return before.difference(&who).copied().collect();
            }
            assert!(begun.elapsed() < REBALANCED, "nobody takes over: {who:?} of {before:?}");
            wait::pause(Pause::Look, Duration::from_millis(20)).await;
        }
    }

    async fn suffer(&mut self, event: Event) {
        let before = self.rebalanced(Instant::now(), self.processes.len(), &HashSet::new()).await;
        let victim = self.random(self.processes.len());
        let begun = Instant::now();
        match event {
            Event::Killed => {
                self.kill(victim).await;
                let gone = self.survived_by(begun, &before).await;
                self.rebalanced(begun, self.processes.len(), &gone).await;
                self.join();
            }
            Event::Frozen => {
                signal(&self.processes[victim], "STOP").await;
                let gone = self.survived_by(begun, &before).await;
                self.rebalanced(begun, self.processes.len() - 1, &gone).await;
                signal(&self.processes[victim], "CONT").await;
            }
            Event::Resized if self.processes.len() > PROCESSES => {
                self.kill(victim).await;
                self.survived_by(begun, &before).await;
            }
            Event::Resized => self.join(),
        }
    }

    async fn kill(&mut self, victim: usize) {
        self.processes.swap_remove(victim).kill().await.unwrap();
    }
}

pub(super) async fn signal(process: &Child, signal: &str) {
    let pid = process.id().expect("it runs").to_string();
    let sent = Command::new("sh").args(["-c", "kill -s \"$0\" \"$1\"", signal, &pid]).status().await;
    assert!(sent.unwrap().success());
}

/// At a steady pace, until nothing happens to a process any more. Answers with how many.
fn publish(store: Store<Postgres>, over: CancellationToken) -> JoinHandle<i64> {
    let (min, at_a_time) = long::or((20_000, 200), (2000, 100));
    tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(500));
        let mut messages = 0;
        while messages < min || !over.is_cancelled() {
            pace.tick().await;
            let mut tx = store.begin().await.unwrap();
            let drafts = (messages..messages + at_a_time)
                .map(|order_id| Draft::of(&OrderPlaced { order_id, customer: order_id % KEYS }).unwrap());
            store.outbox().publish_all(&mut tx, drafts.collect()).await.unwrap();
            tx.commit().await.unwrap();
            messages += at_a_time;
        }
        messages
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_stay_in_order_while_processes_die_freeze_and_join() {
    let database = database::postgres().await;
    let ledger =
        "CREATE TABLE ledger (id bigserial PRIMARY KEY, customer bigint NOT NULL, order_id bigint NOT NULL)";
    sqlx::raw_sql(ledger).execute(database.pool()).await.unwrap();
    let programs = Programs::at(database.url().to_owned());
    let mut relay = programs.start(Program::Relay, None);
    let mut group = Group { programs, database, processes: Vec::new(), random: seed() };
    (0..PROCESSES).for_each(|_| group.join());
    let over = CancellationToken::new();
    let publishing = publish((*group.database).clone(), over.clone());
    let all = timeout(PATIENCE, async {
        // One more process, and one less.
        let (times, resized) = long::or((4, 4), (1, 2));
        let mut events = [Event::Killed, Event::Frozen].repeat(times);
        events.extend([Event::Resized].repeat(resized));
        while !events.is_empty() {
            let event = events.swap_remove(group.random(events.len()));
            group.suffer(event).await;
        }
        over.cancel();
        let messages = publishing.await.unwrap();
        while count(&group.database, "SELECT count(*) FROM twinbox.inbox").await < messages {
            wait::pause(Pause::Look, Duration::from_millis(50)).await;
        }
        messages
    });
    let messages = all.await.expect("everything is handled in time");
    for process in &mut group.processes {
        process.kill().await.unwrap();
    }
    relay.kill().await.unwrap();

    let rows = |sql| count(&group.database, sql);
    assert_eq!(rows("SELECT count(*) FROM ledger").await, messages);
    assert_eq!(rows("SELECT count(DISTINCT order_id) FROM ledger").await, messages);
    let overtaken = "SELECT count(*) FROM (SELECT order_id < max(order_id) OVER (PARTITION BY customer ORDER \
                     BY id) \
        AS late FROM ledger) entries WHERE late";
    assert_eq!(rows(overtaken).await, 0);
    assert_eq!(rows("SELECT count(*) FROM twinbox.dead_letters").await, 0);
}
