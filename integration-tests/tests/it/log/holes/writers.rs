//! Writers whose positions and commits disagree in every way, on a server that is killed.
use crate::support::database;
use crate::{
    log::hostile::Dice,
    support::{
        log::draft,
        wait::{self, Pause, in_time},
    },
};
use sqlx::{Connection as _, MySql, MySqlConnection, mysql::MySqlPoolOptions};
use std::{
    ops::DerefMut,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::Duration,
};
use tokio::task::JoinSet;
use twinbox::{CancellationToken, Error, InTransaction, Store};

const WRITERS: u32 = 16;
const KEYS: usize = 24;
/// The key of a transaction that is open for long.
pub(super) const LONG: usize = KEYS;

/// The number of the newest message. It is its event id.
static NEWEST: AtomicI64 = AtomicI64::new(0);

pub(super) struct Writers {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Writers {
    /// Starts writers, some of whose statements stall. While one does, a server that gives consecutive
    /// positions lets nobody else write.
    pub(super) async fn start(url: &str, stalls_percent: u64) -> Self {
        let pool = MySqlPoolOptions::new().max_connections(WRITERS + 1).connect(url).await.unwrap();
        let setup = "CREATE TABLE aggregates (id INT PRIMARY KEY, n BIGINT NOT NULL);
            INSERT INTO aggregates
                WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 24)
                SELECT n, 0 FROM numbers;
            CREATE TABLE digits (d INT PRIMARY KEY);
            INSERT INTO digits VALUES (1), (2), (3)";
        sqlx::raw_sql(setup).execute(&pool).await.unwrap();
        let store = Store::new(pool, database::SERVICE).unwrap();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for n in 0..WRITERS {
            let (store, stop, mut dice) = (store.clone(), stop.clone(), Dice::new(u64::from(n) + 100));
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    tolerate(write(&store, &mut dice, stalls_percent).await).await;
                }
            });
        }
        let held = stop.clone();
        tasks.spawn(async move {
            tolerate(write_for_long(&store, &held).await).await;
        });
        Self { stop, tasks }
    }

    /// Waits until no transaction of theirs is open.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        in_time(self.tasks.join_all()).await;
    }
}

/// The server is killed now and then. Each other error is a fault of the test.
async fn tolerate(written: Result<(), Error>) {
    if let Err(error) = written {
        assert!(error.is_transient(), "a writer failed: {error:?}");
        wait::pause(Pause::Pace, Duration::from_millis(20)).await;
    }
}

async fn write(store: &Store<MySql>, dice: &mut Dice, stalls_percent: u64) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    let first = dice.below(KEYS);
    match dice.below(10) {
        _ if dice.chance(stalls_percent) => {
            publish_slowly(&mut tx, first, dice.range(300, 2500)).await?;
        }
        0 | 1 => {
            let mut savepoint = tx.begin().await?;
            publish_next(store, &mut savepoint, first).await?;
            if dice.chance(50) {
                savepoint.rollback().await?;
            } else {
                savepoint.commit().await?;
            }
        }
        2 | 3 => {
            let n = count(&mut tx, first, 2).await?;
            let drafts = [n - 1, n].map(|n| numbered(first, n)).to_vec();
            store.outbox().publish_all(&mut tx, drafts).await?;
        }
        _ => publish_next(store, &mut tx, first).await?,
    }
    // In the order of the keys, so that no two writers wait for each other.
    let second = first + 1 + dice.below(KEYS);
    if second < KEYS && dice.chance(30) {
        publish_next(store, &mut tx, second).await?;
    }
    if dice.chance(30) {
        pause(dice, 20).await;
    }
    if dice.chance(2) {
        pause(dice, 1500).await;
    }
    if dice.chance(15) {
        tx.rollback().await?
    } else {
        tx.commit().await?
    }
    pause(dice, 40).await;
    Ok(())
}

/// Holds one message for four seconds.
async fn write_for_long(store: &Store<MySql>, stop: &CancellationToken) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    publish_next(store, &mut tx, LONG).await?;
    tokio::time::timeout(Duration::from_secs(4), stop.cancelled()).await.ok();
    tx.commit().await
}

/// Locks the aggregate, as every writer of a key must. Returns how many messages the key has with these.
async fn count(conn: &mut MySqlConnection, key: usize, messages: i64) -> Result<i64, Error> {
    let key = i64::try_from(key).unwrap();
    let update = sqlx::query("UPDATE aggregates SET n = n + ? WHERE id = ?").bind(messages).bind(key);
    update.execute(&mut *conn).await?;
    let read = sqlx::query_scalar("SELECT n FROM aggregates WHERE id = ?").bind(key);
    Ok(read.fetch_one(conn).await?)
}

fn numbered(key: usize, n: i64) -> twinbox::Draft {
    let number = NEWEST.fetch_add(1, Relaxed) + 1;
    draft(Some(&key.to_string()), &n.to_string()).id(number.to_string())
}

async fn publish_next<T>(store: &Store<MySql>, tx: &mut T, key: usize) -> Result<(), Error>
where
    T: InTransaction<MySql> + DerefMut<Target = MySqlConnection>,
{
    let n = count(tx, key, 1).await?;
    store.outbox().publish_draft(tx, numbered(key, n)).await.map(drop)
}

/// Publishes three messages in one statement, which stalls before the last one. A tombstone may take one of
/// their positions meanwhile.
async fn publish_slowly(conn: &mut MySqlConnection, key: usize, stall_ms: u64) -> Result<(), Error> {
    let n = count(conn, key, 3).await?;
    loop {
        let number = NEWEST.fetch_add(3, Relaxed);
        let insert = sqlx::query(
            "INSERT INTO twinbox_outbox (id, type, `key`, payload)
            SELECT ? + d, 'test.happened', ?, ? + d FROM digits
            WHERE SLEEP(IF(d = 3, ?, 0) / 1000) = 0 ORDER BY d",
        );
        let insert = insert.bind(number).bind(key.to_string()).bind(n - 3).bind(stall_ms);
        match insert.execute(&mut *conn).await {
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
            inserted => return Ok(inserted.map(drop)?),
        }
    }
}

async fn pause(dice: &mut Dice, up_to_ms: u64) {
    wait::pause(Pause::Pace, Duration::from_millis(dice.range(0, up_to_ms))).await;
}
