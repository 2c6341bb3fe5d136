//! Writers that do everything to make positions and commits disagree, on a slow disk, with a server that is
//! killed. Readers that restart are held against a ledger, beside others that lack one rule each: the ledger
//! must find what those lose, or it proves nothing about the first.
use super::{
    disk::SlowDisk,
    naive::{Naive, NaiveReader},
    writers::{LONG, Writers},
};
use crate::support::database;
use crate::{
    log::hostile::{Dice, Ending, Ledger, live},
    support::{
        log::{draft, open_with, publish_all, settle_until, take_over},
        long,
        wait::{self, Pause, eventually, in_time},
    },
};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions};
use std::{
    collections::{BTreeSet, HashSet},
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Draft, Error, ErrorKind, Store,
    log::{Entry, Reader, ReaderOptions},
};
use twinbox_testkit::servers::{MySqlOptions, find};
use uuid::Uuid;

/// How many messages show that the writers got going.
const MESSAGES: usize = 150;

/// The number that the writers gave the message.
fn number(entry: &Entry) -> i64 {
    entry.message.id.parse().unwrap()
}

async fn store_at(url: &str) -> Store<MySql> {
    let pool = MySqlPoolOptions::new().acquire_timeout(Duration::from_secs(2));
    Store::new(pool.connect_lazy(url).unwrap(), database::SERVICE).unwrap()
}

async fn committed(store: &Store<MySql>) -> Result<BTreeSet<i64>, sqlx::Error> {
    let numbers = "SELECT CAST(CAST(id AS CHAR) AS SIGNED) FROM twinbox_outbox WHERE type <> ''";
    let numbers = sqlx::query_scalar(numbers).fetch_all(store.pool()).await?;
    Ok(numbers.into_iter().collect())
}

/// Whether the transaction that is open for long has committed: who gives its position up loses its message.
async fn long_one_is_committed(store: &Store<MySql>) -> bool {
    let of_key = AssertSqlSafe(format!("SELECT count(*) FROM twinbox_outbox WHERE `key` = '{LONG}'"));
    sqlx::query_scalar::<_, i64>(of_key).fetch_one(store.pool()).await.is_ok_and(|count| count > 0)
}

/// Opens one reader after the other until all that is committed is settled, or is clearly not coming.
async fn read(url: String, name: &'static str, ending: Ending, done: CancellationToken) -> Ledger {
    let (store, owner) = (store_at(&url).await, Uuid::now_v7());
    let (mut ledger, mut dice) = (Ledger::new(name), Dice::new(7));
    let mut give_up_at = None;
    loop {
        match read_on(&store, owner, &mut ledger, &mut dice, ending).await {
            Ok(()) => {}
            Err(error) => {
                assert!(error.is_transient(), "{name}: {error:?}");
                wait::pause(Pause::Look, Duration::from_millis(20)).await;
            }
        }
        if done.is_cancelled() {
            let give_up_at = *give_up_at.get_or_insert(Instant::now() + Duration::from_secs(60));
            let has_all = committed(&store).await.is_ok_and(|truth| ledger.lost(&truth).is_empty());
            if has_all || Instant::now() > give_up_at {
                return ledger;
            }
        }
    }
}

async fn read_on(
    store: &Store<MySql>,
    owner: Uuid,
    ledger: &mut Ledger,
    dice: &mut Dice,
    ending: Ending,
) -> Result<(), Error> {
    let Some(mut reader) = Reader::open(store, ledger.name, owner, ReaderOptions::new()).await? else {
        wait::pause(Pause::Look, Duration::from_millis(20)).await;
        return Ok(());
    };
    // A reader writes nothing before its first `next`.
    ledger.record(recorded(store, ledger.name).await?);
    live(&mut reader, ledger, dice, ending, number).await?;
    if ending == Ending::Close {
        reader.close().await?;
    }
    Ok(())
}

/// Returns what the cursor's row says is settled, in the words of the ticks that it points to.
async fn recorded(store: &Store<MySql>, destination: &str) -> Result<HashSet<i64>, sqlx::Error> {
    let is_seen = |tick: &str| {
        format!(
            "o.position <= {tick}.newest AND NOT EXISTS (
                SELECT 1 FROM twinbox_holes h
                WHERE h.opened_by <= {tick}.id AND h.closed_by > {tick}.id
                    AND o.position BETWEEN h.first AND h.last)"
        )
    };
    let sql = format!(
        "SELECT CAST(CAST(o.id AS CHAR) AS SIGNED)
        FROM twinbox_outbox o, twinbox_cursors c, twinbox_ticks p, twinbox_ticks w
        WHERE o.type <> '' AND c.destination = ? AND p.id = c.p AND w.id = c.w
            AND ({} OR {} AND o.position <= c.position)",
        is_seen("p"),
        is_seen("w")
    );
    let recorded = sqlx::query_scalar(AssertSqlSafe(sql)).bind(destination).fetch_all(store.pool()).await?;
    Ok(recorded.into_iter().collect())
}

/// Invariants 1 and 4
async fn hostile_writers_and_kills(autoinc_lock_mode: &str, stalls_percent: u64) {
    let disk = SlowDisk::new();
    let mut server = disk.server(MySqlOptions::default().set("innodb_autoinc_lock_mode", autoinc_lock_mode));
    let store = store_at(&server.url()).await;
    store.migrate().await.unwrap();
    let writers = Writers::start(&server.url(), stalls_percent).await;
    let done = CancellationToken::new();
    let read = |name, ending| tokio::spawn(read(server.url(), name, ending, done.clone()));
    let readers = [read("closes", Ending::Close), read("crashes", Ending::Crash)];
    let naive = |kind, name| tokio::spawn(NaiveReader::new(kind, name).run(server.url(), done.clone()));
    let naive = [naive(Naive::LargestPosition, "largest position"), naive(Naive::AgeAlone, "age alone")];
    eventually(async || long_one_is_committed(&store).await.then_some(())).await;
    for _ in 0..long::or(3, 1) {
        // Meanwhile transactions commit that are never on the disk.
        disk.freeze();
        wait::pause(Pause::Outage, Duration::from_millis(500)).await;
        server.kill().unwrap();
        disk.thaw();
        server.restart().unwrap();
        // The writers write for this long, at least.
        wait::pause(Pause::Pace, Duration::from_secs(long::or(2, 1))).await;
    }
    eventually(async || committed(&store).await.is_ok_and(|all| all.len() > MESSAGES).then_some(())).await;
    writers.stop().await;
    done.cancel();

    let truth = eventually(async || committed(&store).await.ok()).await;
    for reader in readers {
        let ledger = reader.await.unwrap();
        println!("{ledger}, {} committed", truth.len());
        assert_eq!(ledger.lost(&truth), [0i64; 0], "{ledger}");
        assert_eq!(ledger.ghosts(&truth), [0i64; 0], "{ledger}");
        assert_eq!(ledger.order_breaks, 0, "{ledger}");
        assert_eq!(ledger.repeated_though_recorded, 0, "{ledger}");
        assert_eq!(ledger.recorded_though_unsettled, 0, "{ledger}");
    }
    for reader in naive {
        let ledger = reader.await.unwrap().ledger;
        println!("{ledger}, {} lost", ledger.lost(&truth).len());
        assert!(!ledger.lost(&truth).is_empty(), "{ledger}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_writers_lose_nothing_with_consecutive_positions() {
    hostile_writers_and_kills("1", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_writers_lose_nothing_with_interleaved_positions() {
    hostile_writers_and_kills("2", 5).await;
}

/// The server shows a row before it is on the disk. After a crash another message has its position.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_yet_on_the_disk_is_not_handed_out() {
    let disk = SlowDisk::new();
    let mut server = disk.server(MySqlOptions::default());
    let store = Store::new(MySqlPool::connect(&server.url()).await.unwrap(), database::SERVICE).unwrap();
    store.migrate().await.unwrap();
    let options = ReaderOptions::new().lease(Duration::from_secs(1));
    let mut reader = open_with(&store, "d", options.clone()).await;
    let mut conn = MySqlConnection::connect(&server.url()).await.unwrap();
    let mut naive = NaiveReader::new(Naive::NoCommit, "no commit");
    disk.freeze();
    // The server has written this one, and waits for the disk.
    let first = tokio::spawn(publish_one(store.clone(), 1));
    see_one(&mut naive, &mut conn).await;
    disk.is_awaited().await;
    // This one waits in memory.
    let second = tokio::spawn(publish_one(store.clone(), 2));
    see_one(&mut naive, &mut conn).await;
    let handed_out = tokio::time::timeout(Duration::from_secs(1), reader.next(10)).await;
    let is_nothing = match &handed_out {
        Err(_) => true,
        Ok(answer) => answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::LeaseLost),
    };
    assert!(is_nothing, "{handed_out:?}");
    server.kill().unwrap();
    disk.thaw();
    server.restart().unwrap();
    for commit in [first, second] {
        assert!(in_time(commit).await.unwrap().is_err());
    }
    publish_all(&store, vec![numbered(3)]).await;
    let truth = committed(&store).await.unwrap();
    // MySQL hands the system what waits for the disk, so that a kill of its process forgets nothing.
    if find::mysql_bin().unwrap().join("mariadbd").exists() {
        assert!(!naive.ledger.ghosts(&truth).is_empty(), "what was seen is still there: {truth:?}");
        let mut conn = MySqlConnection::connect(&server.url()).await.unwrap();
        naive.page(&mut conn, async {}).await.unwrap();
        assert_eq!(naive.ledger.lost(&truth), [3], "its position was given before");
    }
    drop(reader);
    let mut reader = take_over(&store, "d", options).await;
    let kept: Vec<_> = truth.iter().map(i64::to_string).collect();
    assert_eq!(settle_until(&mut reader, "3").await, kept);
}

async fn publish_one(store: Store<MySql>, number: i64) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    store.outbox().publish_draft(&mut tx, numbered(number)).await?;
    tx.commit().await
}

async fn see_one(naive: &mut NaiveReader, conn: &mut MySqlConnection) {
    in_time(async { while naive.page(conn, async {}).await.unwrap() == 0 {} }).await;
}

fn numbered(number: i64) -> Draft {
    draft(Some("k"), &number.to_string()).id(number.to_string())
}

/// Between the two reads a message fills its hole, and the next one of its key comes after it.
#[tokio::test]
async fn two_reads_would_break_the_order_of_a_key() {
    let database = database::mysql().await;
    let mut conn = MySqlConnection::connect(database.url()).await.unwrap();
    let mut late = database.begin().await.unwrap();
    database.outbox().publish_draft(&mut late, numbered(1)).await.unwrap();
    publish_all(&database, vec![draft(Some("another"), "1").id("100")]).await;
    let mut naive = NaiveReader::new(Naive::TwoReads, "two reads");
    assert_eq!(naive.page(&mut conn, async {}).await.unwrap(), 1);
    let between = async {
        late.commit().await.unwrap();
        publish_all(&database, vec![numbered(2)]).await;
    };
    assert_eq!(naive.page(&mut conn, between).await.unwrap(), 1);
    assert_eq!(naive.page(&mut conn, async {}).await.unwrap(), 1);
    assert!(naive.ledger.order_breaks > 0, "{}", naive.ledger);
    let mut reader = open_with(&database, "d", ReaderOptions::new()).await;
    assert_eq!(settle_until(&mut reader, "2").await, ["1", "1", "2"]);
}
