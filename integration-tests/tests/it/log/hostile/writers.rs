//! Transactions that overlap in every way: ids taken early, locks late, savepoints, rollbacks, long pauses.
use super::*;
use crate::support::{
    database::TestDatabase,
    log::draft,
    wait::{self, Pause, in_time},
};
use sqlx::{Connection as _, PgConnection, postgres::PgPoolOptions};
use std::{collections::BTreeSet, ops::DerefMut, time::Duration};
use tokio::task::JoinSet;
use twinbox::{Error, InTransaction, Store};

const WRITERS: u32 = 16;
const KEYS: usize = 40;

pub(in crate::log) struct Writers {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Writers {
    pub(in crate::log) async fn start(database: &TestDatabase<Postgres>) -> Self {
        let aggregates = "CREATE TABLE IF NOT EXISTS aggregates (key int PRIMARY KEY, n bigint NOT NULL);
            INSERT INTO aggregates SELECT key, 0 FROM generate_series(0, 39) key ON CONFLICT DO NOTHING";
        sqlx::raw_sql(aggregates).execute(database.pool()).await.unwrap();
        let pool = PgPoolOptions::new().max_connections(WRITERS).connect(database.url()).await.unwrap();
        let store = Store::new(pool, database.service()).unwrap();
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for n in 0..WRITERS {
            let (store, stop, mut dice) = (store.clone(), stop.clone(), Dice::new(u64::from(n) + 100));
            tasks.spawn(async move {
                while !stop.is_cancelled() {
                    match write(&store, &mut dice).await {
                        Ok(()) => {}
                        Err(error) if error.is_contention() => {}
                        Err(error) => panic!("a writer failed: {error:?}"),
                    }
                }
            });
        }
        Self { stop, tasks }
    }

    /// Waits until no transaction of theirs is open.
    pub(in crate::log) async fn stop(self) {
        self.stop.cancel();
        in_time(self.tasks.join_all()).await;
    }
}

async fn write(store: &Store<Postgres>, dice: &mut Dice) -> Result<(), Error> {
    let mut tx = store.begin().await?;
    if dice.chance(30) {
        sqlx::query("SELECT pg_current_xact_id()").execute(&mut *tx).await?;
    }
    if dice.chance(50) {
        pause(dice, 10).await;
    }
    let wanted = [1, 1, 1, 2, 3][dice.below(5)];
    let mut keys = BTreeSet::new();
    while keys.len() < wanted {
        keys.insert(dice.below(KEYS));
    }
    for key in keys {
        if !dice.chance(20) {
            publish_next(store, &mut tx, key).await?;
            continue;
        }
        let mut savepoint = tx.begin().await?;
        publish_next(store, &mut savepoint, key).await?;
        if dice.chance(25) {
            savepoint.rollback().await?;
        } else {
            savepoint.commit().await?;
        }
    }
    if dice.chance(30) {
        pause(dice, 20).await;
    }
    if dice.chance(1) {
        pause(dice, 1000).await;
    }
    if dice.chance(10) { tx.rollback().await } else { tx.commit().await }
}

/// Locks the aggregate, as every writer of a key must, and says the how-many-th message of the key this is.
async fn publish_next<T>(store: &Store<Postgres>, tx: &mut T, key: usize) -> Result<(), Error>
where
    T: InTransaction<Postgres> + DerefMut<Target = PgConnection>,
{
    let update = "UPDATE aggregates SET n = n + 1 WHERE key = $1 RETURNING n";
    let n: i64 = sqlx::query_scalar(update).bind(i32::try_from(key).unwrap()).fetch_one(&mut **tx).await?;
    store.outbox().publish_draft(tx, draft(Some(&key.to_string()), &n.to_string())).await?;
    Ok(())
}

/// Stalls a writer for a random time.
async fn pause(dice: &mut Dice, up_to_ms: u64) {
    wait::pause(Pause::Pace, Duration::from_millis(dice.range(0, up_to_ms))).await;
}

/// Numbers that look random and are the same in every run (xorshift).
pub(in crate::log) struct Dice(u64);

impl Dice {
    pub(in crate::log) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Both ends included.
    pub(in crate::log) fn range(&mut self, low: u64, high: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        low + (self.0 >> 11) % (high - low + 1)
    }

    pub(in crate::log) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.range(0, n as u64 - 1)).unwrap()
    }

    pub(in crate::log) fn chance(&mut self, percent: u64) -> bool {
        self.range(0, 99) < percent
    }
}
