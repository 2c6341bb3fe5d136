//! A database that forgets: with `synchronous_commit = off` the death of one backend takes the last commits
//! with it, without a new postmaster, and everybody else lives on.
use crate::support::{
    database,
    postgres::store_at,
    relay::{Running, Target},
    stores::{Placed, effect},
    wait::{eventually, in_time},
};
use sqlx::Postgres;
use std::{
    fs,
    ops::Deref,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};
use twinbox::{
    CancellationToken, Consumer, Delivery, Draft, HandlerResult, Store, Tx, event_handler,
    log::{LogTransport, Reader, ReaderOptions},
    nats::Nats,
    operation::{
        OperationKey, OperationPolicy, OperationResponse, OperationStart, RequestDigest, ResponseBody,
    },
};
use twinbox_testkit::servers::{PostgresOptions, PostgresServer};
use uuid::Uuid;

/// A server of which a process is stopped. It dereferences to the server.
pub(crate) struct Forgetful(PostgresServer);

impl Deref for Forgetful {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        &self.0
    }
}

impl Drop for Forgetful {
    /// Continues what is stopped. The server would wait for its end for five seconds.
    fn drop(&mut self) {
        let lock = fs::read_to_string(self.0.data_dir().join("postmaster.pid")).unwrap_or_default();
        let server = lock.lines().next().unwrap_or_default();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            // `pid (name) state parent …`, and the name may hold anything.
            let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            if fields.next() == Some("T") && fields.next() == Some(server) {
                let _ = Command::new("kill").arg("-CONT").arg(process.file_name()).status();
            }
        }
    }
}

/// Commits are answered before they are flushed, and nobody flushes them on the side: whoever writes a page
/// flushes what has changed it.
pub(crate) async fn forgetful() -> (Forgetful, Store<Postgres>) {
    let options = PostgresOptions::default().set("synchronous_commit", "off").set("wal_writer_delay", "10s");
    let options = options.set("bgwriter_lru_maxpages", "0").set("autovacuum", "off");
    let server = tokio::task::spawn_blocking(|| PostgresServer::start_with(options));
    let server = Forgetful(server.await.unwrap().unwrap());
    let store = store_at(&server.url()).await;
    store.migrate().await.unwrap();
    let tables = "CREATE TABLE effects (n bigint NOT NULL); CREATE UNLOGGED TABLE canary (n bigint)";
    sqlx::raw_sql(tables).execute(store.pool()).await.unwrap();
    sqlx::raw_sql("CHECKPOINT").execute(store.pool()).await.unwrap();
    stop_flushing(&store).await;
    (server, store)
}

/// Stops the process that flushes commits afterwards, every ten seconds and when it is woken.
async fn stop_flushing(store: &Store<Postgres>) -> i32 {
    let writer = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let pid = eventually(async || {
        sqlx::query_scalar::<_, i32>(writer).fetch_optional(store.pool()).await.ok().flatten()
    });
    let pid = pid.await;
    signal("-STOP", pid);
    pid
}

fn signal(signal: &str, pid: i32) {
    assert!(Command::new("kill").args([signal, &pid.to_string()]).status().unwrap().success());
}

/// Kills one backend, and waits until the server has recovered.
pub(crate) async fn forget(store: &Store<Postgres>) {
    let started = "SELECT pg_postmaster_start_time()::text";
    let before: String = sqlx::query_scalar(started).fetch_one(store.pool()).await.unwrap();
    // A recovery empties it.
    sqlx::query("INSERT INTO canary VALUES (1)").execute(store.pool()).await.unwrap();
    let writer = stop_flushing(store).await;
    let mut other = store.pool().acquire().await.unwrap();
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(store.pool()).await.unwrap();
    signal("-KILL", pid);
    // The server tells all its processes to end at once: this one hears of it before it can flush.
    eventually(async || sqlx::query("SELECT 1").execute(&mut *other).await.is_err().then_some(())).await;
    signal("-CONT", writer);
    eventually(async || (number(store, "SELECT count(*) FROM canary").await == 0).then_some(())).await;
    let after: String = sqlx::query_scalar(started).fetch_one(store.pool()).await.unwrap();
    assert_eq!(after, before, "the same postmaster");
    stop_flushing(store).await;
}

async fn number(store: &Store<Postgres>, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.unwrap_or(-1)
}

const EFFECTS: &str = "SELECT count(*) FROM effects";
const DISTINCT: &str = "SELECT count(DISTINCT n) FROM effects";

async fn publish(store: &Store<Postgres>, range: std::ops::Range<i64>) {
    for n in range {
        let mut tx = store.begin().await.unwrap();
        let key = if n == WAITS { "another" } else { "k" };
        let draft = Draft::of(&Placed { n }).unwrap().id(format!("o-{n}")).key(key);
        store.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_publishes_nothing_that_is_forgotten() {
    let ((_server, store), target) = (forgetful().await, Target::shared());
    let running = Running::start(&store, &target);
    publish(&store, 0..5).await;
    running.published(5).await;
    forget(&store).await;
    assert_eq!(number(&store, "SELECT count(*) FROM twinbox.outbox").await, 5, "of five that were published");
    publish(&store, 5..10).await;
    running.published(10).await;
    let ids: Vec<String> = sqlx::query_scalar("SELECT id FROM twinbox.outbox ORDER BY position")
        .fetch_all(store.pool())
        .await
        .unwrap();
    assert_eq!(ids.len(), 10);
    running.stop().await;
}

#[event_handler(consumer = "tests.forgetful")]
async fn in_any_order(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// Runs of the handler below.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// Its transactions are not flushed because it says so: what a failover to a replica that lags does to any
/// transaction.
#[event_handler(consumer = "tests.forgetful_in_order", order = "key")]
async fn in_order(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    RUNS.fetch_add(1, SeqCst);
    sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut **tx).await?;
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// Orders in a stream, from a database that forgets nothing.
async fn orders(range: std::ops::Range<i64>) -> (database::TestDatabase<Postgres>, Target, Running) {
    let (source, target) = (database::postgres().await, Target::shared());
    let relay = Running::start(&*source, &target);
    publish(&source, range.clone()).await;
    relay.published(range.end.unsigned_abs()).await;
    (source, target, relay)
}

struct Consuming {
    stop: CancellationToken,
    task: JoinHandle<Result<(), twinbox::consumer::Error>>,
}

impl Consuming {
    async fn stop(self) {
        self.stop.cancel();
        in_time(self.task).await.unwrap().unwrap();
    }
}

fn consume<S: Send + Sync + 'static>(consumer: Consumer<Postgres, S>) -> Consuming {
    let stop = CancellationToken::new();
    Consuming { task: tokio::spawn(consumer.run(stop.clone())), stop }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_consumer_has_acknowledged_is_not_forgotten() {
    let ((source, target, relay), (_server, store)) = (orders(0..5).await, forgetful().await);
    let nats = Nats::with_options(target.existing().ack_wait(Duration::from_secs(30))).unwrap();
    let consuming = consume(Consumer::new(store.clone(), ()).transport(nats).handler::<in_any_order>());
    eventually(async || (number(&store, EFFECTS).await == 5).then_some(())).await;
    eventually(async || (target.settled("tests.forgetful").await == 5).then_some(())).await;
    forget(&store).await;
    publish(&source, 5..6).await;
    eventually(async || (number(&store, "SELECT max(n) FROM effects").await == 5).then_some(())).await;
    assert_eq!((number(&store, EFFECTS).await, number(&store, DISTINCT).await), (6, 6));
    consuming.stop().await;
    relay.stop().await;
}

/// The places, claims and effects of its last five messages are gone, and the process remembers them as
/// settled.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_in_order_does_again_what_was_forgotten() {
    let ((source, target, relay), (_server, store)) = (orders(0..1).await, forgetful().await);
    let nats = Nats::with_options(target.existing()).unwrap();
    // A renewal is flushed, and with it all before it: the next comes when the server has forgotten.
    let lease = Duration::from_secs(400);
    let consumer = Consumer::new(store.clone(), ()).transport(nats).lease(lease).handler::<in_order>();
    let consuming = consume(consumer);
    // To take a partition flushes as well, and a loss of the server makes it lose and take all. If one comes
    // late, nothing is forgotten: then the next five are.
    let taken = "SELECT count(owner) FILTER (WHERE epoch > $1) FROM twinbox.partition_leases";
    let (mut sent, mut crashes) = (1, 0);
    let has_forgotten = async || {
        eventually(async || {
            let taken = sqlx::query_scalar::<_, i64>(taken).bind(crashes).fetch_one(store.pool());
            (taken.await.ok() == Some(16)).then_some(())
        })
        .await;
        publish(&source, sent..sent + 5).await;
        let settled = "SELECT max(sequence) FROM twinbox.partition_leases";
        eventually(async || (number(&store, settled).await == sent + 5).then_some(())).await;
        let runs = RUNS.load(SeqCst);
        forget(&store).await;
        publish(&source, sent + 5..sent + 6).await;
        (sent, crashes) = (sent + 6, crashes + 1);
        let last = "SELECT max(n) FROM effects";
        eventually(async || (number(&store, last).await == sent - 1).then_some(())).await;
        let all = sqlx::query_scalar::<_, i64>("SELECT n FROM effects ORDER BY ctid").fetch_all(store.pool());
        assert_eq!(all.await.unwrap(), Vec::from_iter(0..sent));
        (RUNS.load(SeqCst) >= runs + 6).then_some(())
    };
    eventually(has_forgotten).await;
    consuming.stop().await;
    relay.stop().await;
}

/// Lets the test know that it runs, and waits until that says so.
struct Gate {
    entered: Notify,
    open: Semaphore,
}

/// The message that waits, of another key than the others.
const WAITS: i64 = 1_000_000;

#[event_handler(consumer = "tests.forgetful_log", order = "key", concurrency = 1)]
async fn one_at_a_time(
    gate: &Arc<Gate>,
    tx: &mut Tx<'_, Postgres>,
    order: Delivery<Placed>,
) -> HandlerResult {
    if order.n == WAITS {
        gate.entered.notify_one();
        let _open = gate.open.acquire().await;
    }
    sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut **tx).await?;
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// The first message of a key is handled and forgotten, and the second waits for its turn meanwhile. In one
/// thread they wait for it in the order in which they come.
#[tokio::test]
async fn a_consumer_of_the_log_in_order_handles_nothing_before_what_was_forgotten() {
    let (_server, store) = forgetful().await;
    publish(&store, 0..2).await;
    publish(&store, WAITS..WAITS + 1).await;
    // A tick is there, and the next would be due in an hour: it would be flushed, and with it all before it.
    let mut reader = Reader::open(&store, "d", Uuid::now_v7(), ReaderOptions::new()).await.unwrap().unwrap();
    assert_eq!(in_time(reader.next(3)).await.unwrap().len(), 2);
    drop(reader);
    let later = "UPDATE twinbox.ticks SET taken_at = taken_at + interval '1 hour'";
    sqlx::query(later).execute(store.pool()).await.unwrap();
    sqlx::raw_sql("CHECKPOINT").execute(store.pool()).await.unwrap();

    let gate = Arc::new(Gate { entered: Notify::new(), open: Semaphore::new(0) });
    let consumer = Consumer::new(store.clone(), gate.clone()).transport(LogTransport::new(&store));
    let consuming = consume(consumer.handler::<one_at_a_time>());
    in_time(gate.entered.notified()).await;
    assert_eq!(number(&store, EFFECTS).await, 1);
    forget(&store).await;
    assert_eq!(number(&store, EFFECTS).await, 0, "it is forgotten");
    gate.open.close();
    eventually(async || (number(&store, EFFECTS).await == 3).then_some(())).await;
    let others =
        sqlx::query_scalar::<_, i64>("SELECT n FROM effects WHERE n <> $1 ORDER BY ctid").bind(WAITS);
    assert_eq!(others.fetch_all(store.pool()).await.unwrap(), [0, 1]);
    consuming.stop().await;
}

/// A vendor was called, or a client has its answer.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_operation_has_told_is_not_forgotten() {
    let (_server, store) = forgetful().await;
    let lease = async |name: &str| {
        let key = OperationKey { key: name.into(), ..OperationKey::default() };
        let asked = RequestDigest::default();
        let minute = Duration::from_secs(60);
        let leased = store.idempotency_keys().lease(&key, &asked, &OperationPolicy::default(), minute).await;
        let OperationStart::Open(lease) = leased.unwrap() else { panic!("{name} is taken") };
        lease
    };
    const SAVED: &str = "SELECT count(recovery_point) FROM twinbox.idempotency_keys";
    const GIVEN: &str = "SELECT count(tokens) FROM twinbox.idempotency_keys";
    let mut saved = lease("saved").await;
    saved.save("charged ch_1").await.unwrap();
    forget(&store).await;
    assert_eq!(number(&store, SAVED).await, 1);

    let given = lease("given").await;
    given.token_within("charge", 0, Duration::MAX).await.unwrap().unwrap();
    forget(&store).await;
    assert_eq!(number(&store, GIVEN).await, 1);

    let ended = lease("ended").await;
    let mut operation = ended.begin().await.unwrap();
    effect::<Postgres>(&mut operation.tx(), 1).await.unwrap();
    let answer =
        OperationResponse { code: 201, headers: Vec::new(), body: ResponseBody::Omitted, is_failure: false };
    operation.commit(&answer).await.unwrap();
    forget(&store).await;
    assert_eq!(number(&store, EFFECTS).await, 1);
}
