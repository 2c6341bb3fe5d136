//! The fault matrix of the relay, a test for each row.
#[cfg(feature = "programs")]
mod broker;
mod cancelled;
pub(crate) mod cluster;
mod data;
mod database;
#[cfg(feature = "programs")]
mod eventbridge;
#[cfg(feature = "programs")]
mod machine;
#[cfg(feature = "programs")]
mod process;

use crate::support::{
    broker_users::host_of,
    database::{SERVICE, empty_postgres, postgres},
    postgres::{lacks, own, postgres_address, proxied, standby_of, store_at, through, waits_for_a_lock},
    relay::{
        LEASE, PATIENCE, PUBLISH_TIMEOUT, Running, Target, assert_whole_and_ordered, free_leases, n_payload,
        publish, publish_as,
    },
    stores::TestDb,
    wait::{self, Pause, eventually},
};
use sqlx::{AssertSqlSafe, Pool, Postgres};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{task::JoinHandle, time::timeout};
use twinbox::{
    CancellationToken, Dialect, Draft, Store, Timestamp,
    nats::Nats,
    relay::{Relay, RelayOptions},
};
use twinbox_testkit::{proxy::Proxy, servers::NatsServer};

/// What a busy machine may add; a connection that nobody gives up takes minutes.
const BUSY: Duration = Duration::from_secs(10);

/// Publishes at a steady pace, whatever happens to the database, until it is asked to end.
struct Traffic {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Traffic {
    fn start(store: &Store<Postgres>) -> Self {
        let (store, stop) = (store.clone(), CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            for n in (0..).step_by(10) {
                let drafts = (n..n + 10).map(|n| {
                    Draft::raw("orders.placed", 1, n_payload(n))
                        .id(format!("t-{n}"))
                        .key(format!("k-{}", n % 7))
                });
                // What becomes of a COMMIT in an outage is for the log to say.
                if let Ok(mut tx) = store.begin().await
                    && store.outbox().publish_all(&mut tx, drafts.collect()).await.is_ok()
                {
                    let _ = tx.commit().await;
                }
                tokio::select! {
                    () = wait::pause(Pause::Pace, Duration::from_millis(10)) => {}
                    () = stopped.cancelled() => break,
                }
            }
        });
        Self { stop, task }
    }

    async fn stop(self) {
        self.stop.cancel();
        timeout(PATIENCE, self.task).await.expect("it ends with the outage").unwrap();
    }
}

async fn number<DB: Dialect>(pool: &Pool<DB>, sql: &str) -> i64 {
    let number = sqlx::query_scalar::<DB, i64>(AssertSqlSafe(sql.to_owned()));
    number.fetch_one(&mut *pool.acquire().await.unwrap()).await.unwrap()
}

/// Messages of the log.
async fn committed(store: &Store<Postgres>) -> usize {
    usize::try_from(number(store.pool(), "SELECT count(*) FROM twinbox.outbox").await).unwrap()
}

/// No message was blamed for the outage.
async fn nothing_is_parked<DB: TestDb>(store: &Store<DB>) {
    let parked = format!("SELECT count(*) FROM {}", DB::table_of("parked_messages"));
    assert_eq!(number(store.pool(), &parked).await, 0);
}

fn nats_address(url: &str) -> SocketAddr {
    host_of(url).parse().unwrap()
}
