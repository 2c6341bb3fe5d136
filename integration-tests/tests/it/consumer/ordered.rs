//! `order = "key"` over a broker: processes share the partitions, and no key overtakes itself.
mod lost_end;
mod refused;
mod stuck;

use crate::support::{
    broker_users::host_of,
    cases::cases,
    consumer::run_until,
    relay::{PATIENCE, Running, Target},
    stores::{Confirmed, TestDb, World, chain, sql},
    wait::{eventually, in_time},
};
use futures::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Postgres};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Consumer, Delivery, Dialect, Draft, ErrorKind, Event, HandlerResult, Policy, Tx,
    consumer::{DeliveryOrder, ErrorKind as ConsumerErrorKind},
    event_handler, handler_fn,
    inbox::InboxClaim,
    nats::{Nats, StreamOptions},
    relay::Relay,
};
use twinbox_testkit::park_deliveries;
use twinbox_testkit::proxy::{Proxy, Side};
use uuid::Uuid;

const CONSUMER: &str = "tests.ordered";

#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "accounts.moved", version = 1, key = account)]
struct Moved {
    account: i64,
    nth: i64,
}

/// What the handlers of one test share.
#[derive(Default)]
struct Bank {
    /// This account cannot be moved now; 0: all can.
    frozen: AtomicI64,
    /// Moves of this account fail with a serialization failure, in Postgres; 0: none do.
    contended: AtomicI64,
}

#[event_handler(consumer = "tests.ordered", order = "key", retry = RETRY, max_attempts = 1000)]
async fn book<DB: Dialect>(bank: &Arc<Bank>, tx: &mut Tx<'_, DB>, moved: Delivery<Moved>) -> HandlerResult {
    if bank.frozen.load(SeqCst) == moved.account {
        return Err("the account is frozen".into());
    }
    if bank.contended.load(SeqCst) == moved.account {
        let fail = "DO $$ BEGIN RAISE EXCEPTION 'somebody was faster' USING ERRCODE = '40001'; END $$";
        sqlx::query::<DB>(fail).execute(&mut **tx).await?;
    }
    sqlx::query::<DB>(sql::<DB>("INSERT INTO moves (account, nth) VALUES ($1, $2)"))
        .bind(moved.account)
        .bind(moved.nth)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

const RETRY: twinbox::RetryPolicy =
    twinbox::RetryPolicy::exponential(Duration::from_millis(50), Duration::from_secs(1));

struct Rig<DB: Dialect> {
    world: World<DB>,
    target: Target,
    relay: Running,
    bank: Arc<Bank>,
    partitions: u32,
}

impl<DB: TestDb> Rig<DB> {
    async fn new() -> Self {
        Self::at(Target::shared(), 16).await
    }

    async fn at(target: Target, partitions: u32) -> Self {
        let world = World::<DB>::new().await;
        let key = match DB::NAME {
            "PostgreSQL" => "bigserial PRIMARY KEY",
            "MySQL" => "BIGINT AUTO_INCREMENT PRIMARY KEY",
            _ => "INTEGER PRIMARY KEY",
        };
        let mut conn = world.pool().acquire().await.unwrap();
        let table = format!("CREATE TABLE moves (id {key}, account BIGINT NOT NULL, nth BIGINT NOT NULL)");
        sqlx::raw_sql(AssertSqlSafe(table)).execute(&mut *conn).await.unwrap();
        drop(conn);
        let destination = Nats::with_options(target.options().partitions(partitions)).unwrap();
        let relay = Running::run(Relay::new((*world).clone(), destination));
        Self { world, target, relay, bank: Arc::default(), partitions }
    }

    fn consumer(&self) -> Consumer<DB, Arc<Bank>> {
        let nats = Nats::with_options(self.target.existing().partitions(self.partitions)).unwrap();
        Consumer::new((*self.world).clone(), self.bank.clone()).transport(nats).handler::<book>()
    }

    /// Commits the moves of these numbers of each account, and waits until they are in the stream.
    async fn publish(&self, accounts: std::ops::Range<i64>, numbers: std::ops::Range<i64>, all: u64) {
        self.commit(accounts, numbers).await;
        self.relay.published(all).await;
    }

    async fn commit(&self, accounts: std::ops::Range<i64>, numbers: std::ops::Range<i64>) {
        let mut tx = self.world.begin().await.unwrap();
        let drafts = numbers.flat_map(|nth| accounts.clone().map(move |account| Moved { account, nth }));
        let drafts = drafts.map(|moved| Draft::of(&moved).unwrap()).collect();
        self.world.outbox().publish_all(&mut tx, drafts).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn moves(&self) -> Vec<(i64, i64)> {
        let mut conn = self.world.pool().acquire().await.unwrap();
        let all = sqlx::query_as::<DB, (i64, i64)>("SELECT account, nth FROM moves ORDER BY id");
        all.fetch_all(&mut *conn).await.unwrap()
    }

    async fn of_each(&self) -> BTreeMap<i64, Vec<i64>> {
        let mut each = BTreeMap::<_, Vec<_>>::new();
        self.moves().await.into_iter().for_each(|(account, nth)| each.entry(account).or_default().push(nth));
        each
    }

    /// Up to where in the stream the partition that is furthest is settled.
    async fn place(&self) -> i64 {
        let mut conn = self.world.pool().acquire().await.unwrap();
        let place = format!("SELECT max(sequence) FROM {}", DB::table_of("partition_leases"));
        sqlx::query_scalar::<DB, i64>(AssertSqlSafe(place)).fetch_one(&mut *conn).await.unwrap()
    }

    /// Partitions of each process that has any.
    async fn owners(&self) -> HashMap<Uuid, usize> {
        let mut conn = self.world.pool().acquire().await.unwrap();
        let owners =
            format!("SELECT owner FROM {} WHERE owner IS NOT NULL", DB::table_of("partition_leases"));
        let owners =
            sqlx::query_scalar::<DB, Uuid>(AssertSqlSafe(owners)).fetch_all(&mut *conn).await.unwrap();
        owners.into_iter().fold(HashMap::new(), |mut all, owner| {
            *all.entry(owner).or_default() += 1;
            all
        })
    }
}

fn in_order(accounts: std::ops::Range<i64>, numbers: std::ops::Range<i64>) -> BTreeMap<i64, Vec<i64>> {
    accounts.map(|account| (account, Vec::from_iter(numbers.clone()))).collect()
}

async fn each_key_in_its_order_and_on_from_its_place<DB: TestDb>() {
    let rig = Rig::<DB>::new().await;
    rig.publish(1..21, 0..20, 400).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 400).await;
    assert_eq!(rig.of_each().await, in_order(1..21, 0..20));
    assert_eq!(rig.place().await, 400);
    rig.publish(1..21, 20..25, 500).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 500).await;
    assert_eq!(rig.of_each().await, in_order(1..21, 0..25));
    assert_eq!((rig.owners().await.len(), rig.world.rows("partition_members").await), (0, 0));
    rig.relay.stop().await;
}

/// What is put aside keeps its order, across a restart as well, and what comes behind it waits.
async fn a_failing_key_is_put_aside_and_the_others_go_on<DB: TestDb>() {
    let rig = Rig::<DB>::new().await;
    rig.bank.frozen.store(3, SeqCst);
    rig.publish(1..6, 0..10, 50).await;
    let aside = async || rig.world.rows("parked_deliveries").await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 40 && aside().await == 10).await;
    rig.publish(1..6, 10..12, 60).await;
    let running = CancellationToken::new();
    let consumer = tokio::spawn(rig.consumer().run(running.clone()));
    eventually(async || (rig.world.rows("inbox").await == 48 && aside().await == 12).then_some(())).await;
    assert_eq!(rig.world.inbox(CONSUMER).parked_deliveries().await.unwrap(), 12);
    rig.bank.frozen.store(0, SeqCst);
    // Before what is put aside is due.
    rig.publish(1..6, 12..14, 70).await;
    eventually(async || (rig.world.rows("inbox").await == 70 && aside().await == 0).then_some(())).await;
    running.cancel();
    in_time(consumer).await.unwrap().unwrap();
    assert_eq!(rig.of_each().await, in_order(1..6, 0..14));
    assert_eq!(rig.world.rows("attempts").await, 0);
    rig.relay.stop().await;
}

/// On Postgres; the processes of one SQLite file take turns in the same way.
async fn processes_share_the_partitions_evenly() {
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..21, 0..1, 20).await;
    let start = || {
        let stop = CancellationToken::new();
        (stop.clone(), tokio::spawn(rig.consumer().run(stop)))
    };
    let shared = async |expected: &[usize]| {
        let begun = Instant::now();
        eventually(async || {
            let mut owned = Vec::from_iter(rig.owners().await.into_values());
            owned.sort_unstable();
            (owned == expected).then_some(())
        })
        .await;
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    };
    let first = start();
    shared(&[16]).await;
    let second = start();
    shared(&[8, 8]).await;
    let third = start();
    shared(&[5, 5, 6]).await;
    rig.publish(1..21, 1..5, 100).await;
    for (stop, running) in [first, second] {
        stop.cancel();
        in_time(running).await.unwrap().unwrap();
    }
    shared(&[16]).await;
    rig.publish(1..21, 5..10, 200).await;
    eventually(async || (rig.world.rows("inbox").await == 200).then_some(())).await;
    third.0.cancel();
    in_time(third.1).await.unwrap().unwrap();
    assert_eq!(rig.of_each().await, in_order(1..21, 0..10));
    rig.relay.stop().await;
}

async fn a_partition_is_one_owners_until_its_transactions_end<DB: TestDb>() {
    const LEASE: Duration = Duration::from_secs(5);
    let world = World::<DB>::new().await;
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    world.partition_leases(CONSUMER).create(1, &["accounts.moved".to_owned()]).await.unwrap();
    let take = async |who| world.partition_leases(CONSUMER).take(0, who, LEASE).await.unwrap();
    let (old, place) = take(first).await.expect("nobody has it");
    assert_eq!((place.sequence, old.epoch), (0, 1));
    assert!(take(second).await.is_none());
    let message = super::placed(1);
    let InboxClaim::Open(attempt) =
        world.inbox(CONSUMER).claim_on(old.into(), &message, false).await.unwrap()
    else {
        panic!("it is new")
    };
    let begun = Instant::now();
    let (new, _) = if DB::NAME == "SQLite" {
        // Its transaction is the only one there is.
        attempt.commit().await.unwrap();
        eventually(async || take(second).await).await
    } else {
        // Whoever stands still in its transaction is thrown out by the database.
        let taken = eventually(async || take(second).await).await;
        assert!(attempt.commit().await.is_err());
        taken
    };
    assert!((LEASE / 2..PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    assert_eq!(new.epoch, 2);
    let refused = world.inbox(CONSUMER).claim_on(old.into(), &super::placed(2), false).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::LeaseLost);
    let refused = park_deliveries(&world, CONSUMER, old, &[(super::placed(3), LEASE)]).await.unwrap_err();
    assert_eq!((refused.kind(), world.rows("parked_deliveries").await), (ErrorKind::LeaseLost, 0));
    assert!(!world.partition_leases(CONSUMER).settle(old, &place).await.unwrap());
    assert!(world.partition_leases(CONSUMER).settle(new, &place).await.unwrap());
    world.partition_leases(CONSUMER).release(old).await.unwrap();
    assert!(take(first).await.is_none(), "what it lost is not its to release");
    let share = world.partition_leases(CONSUMER).share(second, 1, LEASE).await.unwrap();
    assert_eq!((share.owned, share.free, share.fair), (vec![(0, 2)], vec![], 1));
    assert_eq!(world.partition_leases(CONSUMER).share(first, 1, LEASE).await.unwrap().owned, []);
}

/// Its transaction would keep a successor out.
async fn an_attempt_takes_no_longer_than_the_lease() {
    #[event_handler(consumer = "tests.ordered", order = "key", max_attempts = 1)]
    async fn slow(tx: &mut Tx<'_, Postgres>, _: Delivery<Moved>) -> HandlerResult {
        sqlx::query("SELECT 1").execute(&mut **tx).await?;
        std::future::pending().await
    }
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..2, 0..1, 1).await;
    let nats = Nats::with_options(rig.target.existing()).unwrap();
    let consumer = Consumer::new((*rig.world).clone(), ()).transport(nats).handler::<slow>();
    let consumer = consumer.lease(Duration::from_secs(1));
    run_until(consumer, async || rig.world.rows("dead_letters").await == 1).await;
    let dead_letters = rig.world.inbox(CONSUMER).dead_letters(10).await.unwrap();
    assert_eq!(dead_letters[0].error, "the handler took longer than 1s");
    rig.relay.stop().await;
}

/// A broker that lost its disk counts from 1 again.
async fn another_stream_is_read_from_its_beginning() {
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..6, 0..10, 50).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 50).await;
    rig.target.jetstream().await.delete_stream(&rig.target.name).await.unwrap();
    rig.target.destination().provision(&StreamOptions::default()).await.unwrap();
    rig.publish(1..6, 10..12, 60).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 60).await;
    assert_eq!(rig.of_each().await, in_order(1..6, 0..12));
    rig.relay.stop().await;
}

/// A gap that nothing comes after.
async fn a_message_that_was_lost_on_its_way_is_read_again() {
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..2, 0..1, 1).await;
    let address = host_of(&rig.target.url).parse().unwrap();
    let proxy = Proxy::start(address).await.unwrap();
    let nats = Nats::with_options(rig.target.through(&proxy).existing()).unwrap();
    let consumer = Consumer::new((*rig.world).clone(), rig.bank.clone()).transport(nats).handler::<book>();
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    eventually(async || (rig.world.rows("inbox").await == 1).then_some(())).await;
    proxy.drop_what_comes_from(Some(Side::Server));
    rig.publish(1..2, 1..2, 2).await;
    let stream = rig.target.jetstream().await.get_stream(&rig.target.name).await.unwrap();
    eventually(async || {
        let delivered =
            stream.consumers().try_fold(0, async |all, info| Ok(all + info.delivered.consumer_sequence));
        (delivered.await.unwrap() == 2).then_some(())
    })
    .await;
    // Only that message and what the server says on the side: the connection lives on.
    proxy.drop_what_comes_from(None);
    eventually(async || (rig.world.rows("inbox").await == 2).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    rig.relay.stop().await;
}

/// A message that cannot be read, and one without a key, are in nobody's way.
async fn what_has_no_key_has_no_order() {
    let rig = Rig::<Postgres>::new().await;
    let mut tx = rig.world.begin().await.unwrap();
    for n in 0..30 {
        let draft = Draft::raw(
            "accounts.moved",
            1,
            if n % 10 == 0 { "no JSON".to_owned() } else { format!("{{\"account\":{n},\"nth\":0}}") },
        );
        rig.world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    }
    tx.commit().await.unwrap();
    rig.relay.published(30).await;
    rig.bank.frozen.store(5, SeqCst);
    let aside = async || rig.world.rows("parked_deliveries").await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 29 && aside().await == 1).await;
    rig.bank.frozen.store(0, SeqCst);
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 30 && aside().await == 0).await;
    let moved: HashSet<_> = rig.moves().await.into_iter().collect();
    assert_eq!((moved.len(), rig.world.rows("dead_letters").await), (27, 3));
    rig.relay.stop().await;
}

cases! {
    all: [
        each_key_in_its_order_and_on_from_its_place,
        a_failing_key_is_put_aside_and_the_others_go_on,
        a_partition_is_one_owners_until_its_transactions_end,
    ]
    postgres: [
        processes_share_the_partitions_evenly,
        an_attempt_takes_no_longer_than_the_lease,
        another_stream_is_read_from_its_beginning,
        a_message_that_was_lost_on_its_way_is_read_again,
        what_has_no_key_has_no_order,
    ]
}
