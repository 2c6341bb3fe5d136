//! `POST` with an `Idempotency-Key`, as a ratio to a handler that writes the same rows by hand in one
//! transaction.
//!
//! Also: the delay of other requests while requests wait for one key, and while keys are purged.
use crate::{failure::Failure, report::Report, spread::Spread};
use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sqlx::Postgres;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use twinbox::{
    Event, Store,
    http::{Caller, IdemTx, Idempotency, ServerError},
};
use twinbox_testkit::database;
use uuid::Uuid;

const CONNECTIONS: usize = 16;
const REQUESTS: usize = 8_000;
const RUNS: usize = 5;
/// Requests with one key at the same time. One of them runs, the others wait.
const COPIES: usize = 64;
/// Run time of the handler of the request that runs.
const RUNS_FOR: Duration = Duration::from_secs(2);
const PINGS: usize = 200;
/// Keys that the purge deletes.
const EXPIRED: i64 = 1_000_000;

#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    cents: i64,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "payments.made", version = 1, key = payment_id)]
struct PaymentMade {
    payment_id: Uuid,
    cents: i64,
}

const PAYMENT: &str = "INSERT INTO payments (payment_id, cents) VALUES ($1, $2)";

type Answer = Result<(StatusCode, Json<PaymentMade>), ServerError>;

async fn pay(mut idem: IdemTx<Postgres>, Json(asked): Json<Asked>) -> Answer {
    let mut tx = idem.tx();
    let made = PaymentMade { payment_id: tx.message_id().as_uuid(), cents: asked.cents };
    sqlx::query(PAYMENT).bind(made.payment_id).bind(made.cents).execute(&mut *tx).await?;
    tx.publish(&made).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn pay_by_hand(
    State(store): State<Store<Postgres>>,
    headers: HeaderMap,
    Json(asked): Json<Asked>,
) -> Answer {
    let key = headers.get("idempotency-key").ok_or("no key")?.to_str()?.to_owned();
    let (slot, hash) = (Sha256::digest(&key).to_vec(), Sha256::digest(asked.cents.to_be_bytes()).to_vec());
    let mut tx = store.begin().await?;
    let made = PaymentMade { payment_id: Uuid::now_v7(), cents: asked.cents };
    sqlx::query(PAYMENT).bind(made.payment_id).bind(made.cents).execute(&mut *tx).await?;
    store.outbox().publish(&mut tx, &made).await?;
    sqlx::query(
        "INSERT INTO by_hand (slot, tenant, principal, scope, key, request_hash, hash_alg, status, \
        http_code, response_headers, response_body, body_kind, expires_at) \
        VALUES ($1, '', '', 'POST_/by_hand', $2, $3, 'raw', \
        'complete', 201, '', $4, 'inline', now() + interval '1 day')",
    )
    .bind(slot)
    .bind(key)
    .bind(hash)
    .bind(serde_json::to_vec(&made)?)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn slow(mut idem: IdemTx<Postgres>) -> Result<StatusCode, ServerError> {
    tokio::time::sleep(RUNS_FOR).await;
    sqlx::query(PAYMENT).bind(Uuid::now_v7()).bind(0).execute(&mut *idem.tx()).await?;
    Ok(StatusCode::CREATED)
}

async fn ping(State(store): State<Store<Postgres>>) -> Result<&'static str, ServerError> {
    sqlx::query("SELECT 1").execute(store.pool()).await?;
    Ok("pong")
}

pub(crate) async fn run(report: &mut Report) -> Result<(), Failure> {
    let store = database::postgres().await;
    let tables = "CREATE TABLE payments (payment_id uuid PRIMARY KEY, cents bigint NOT NULL);
        CREATE TABLE by_hand (LIKE twinbox.idempotency_keys INCLUDING ALL)";
    sqlx::raw_sql(tables).execute(store.pool()).await?;
    let layer = Idempotency::new((*store).clone(), Caller::single);
    let app = Router::new()
        .route("/payments", post(pay).layer(layer.clone()))
        .route("/slow", post(slow).layer(layer.wait(RUNS_FOR * 2)))
        .route("/by_hand", post(pay_by_hand))
        .route("/ping", get(ping))
        .with_state((*store).clone());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move { axum::serve(listener, app).await });

    println!(
        "{REQUESTS} requests on {CONNECTIONS} connections, {RUNS} interleaved runs, Postgres with fsync"
    );
    throughput(address, "/by_hand").await?;
    throughput(address, "/payments").await?;
    let mut ratios = Vec::new();
    for _ in 0..RUNS {
        let by_hand = throughput(address, "/by_hand").await?;
        let layered = throughput(address, "/payments").await?;
        println!(
            "  by hand {by_hand:>6.0}/s   with the layer {layered:>6.0}/s   ratio {:.2}",
            layered / by_hand
        );
        ratios.push(layered / by_hand);
        for cleaned in
            ["TRUNCATE payments, by_hand", "DELETE FROM twinbox.idempotency_keys", "VACUUM ANALYZE"]
        {
            sqlx::raw_sql(cleaned).execute(store.pool()).await?;
        }
    }
    report.add("HTTP layer / by hand", Spread::of(ratios))?;
    beside_waiters(address).await?;
    beside_purge(address, &store).await?;
    serving.abort();
    Ok(())
}

/// Returns requests per second. Each request has its own key.
async fn throughput(address: SocketAddr, path: &'static str) -> Result<f64, Failure> {
    let started = Instant::now();
    let asking = (0..CONNECTIONS).map(async |_| {
        let mut client = Client::connect(address).await?;
        for _ in 0..REQUESTS / CONNECTIONS {
            match client.post(path, &Uuid::now_v7().to_string()).await? {
                201 => {}
                other => return Err(Failure::from(format!("{path} responded with {other}"))),
            }
        }
        Ok(())
    });
    try_join_all(asking).await?;
    Ok(REQUESTS as f64 / started.elapsed().as_secs_f64())
}

/// Measures another route that uses the same connection pool, while requests wait for a key.
async fn beside_waiters(address: SocketAddr) -> Result<(), Failure> {
    let mut client = Client::connect(address).await?;
    client.pings().await?;
    let idle = client.pings().await?;
    let asking = (0..COPIES).map(async |_| Client::connect(address).await?.post("/slow", "one").await);
    let (statuses, beside) = tokio::try_join!(try_join_all(asking), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        client.pings().await
    })?;
    let refused = statuses.iter().filter(|status| **status == 409).count();
    println!(
        "another route during {COPIES} requests with one key: {:.2} ms, idle {:.2} ms, ratio {:.2} \
         ({refused} of them got status 409)",
        beside.as_secs_f64() * 1000.0,
        idle.as_secs_f64() * 1000.0,
        beside.as_secs_f64() / idle.as_secs_f64(),
    );
    Ok(())
}

/// Measures requests with a key while many expired keys are purged.
async fn beside_purge(address: SocketAddr, store: &Store<Postgres>) -> Result<(), Failure> {
    let mut made = store.begin().await?;
    sqlx::raw_sql("SET LOCAL session_replication_role = replica").execute(&mut *made).await?;
    sqlx::query(
        "INSERT INTO twinbox.idempotency_keys \
        (slot, tenant, principal, scope, key, request_hash, hash_alg, status, expires_at) \
        SELECT sha256(n::text::bytea), '', '', 'POST_/old', n::text, '', 'raw-sha256/1', 'complete', now() \
        FROM generate_series(1, $1) AS n",
    )
    .bind(EXPIRED)
    .execute(&mut *made)
    .await?;
    made.commit().await?;
    let mut client = Client::connect(address).await?;
    let idle = client.payments::<()>(None).await?;
    let started = Instant::now();
    let purging = tokio::spawn({
        let store = store.clone();
        async move { store.idempotency_keys().purge().await }
    });
    let beside = client.payments(Some(&purging)).await?;
    let purged = purging.await??;
    println!(
        "{purged} keys purged in {:.1} s; a request meanwhile takes {beside:.2} ms, idle {idle:.2} ms",
        started.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// An HTTP client with one connection, which stays open.
struct Client(BufReader<TcpStream>);

impl Client {
    async fn connect(address: SocketAddr) -> Result<Self, Failure> {
        let connection = TcpStream::connect(address).await?;
        connection.set_nodelay(true)?;
        Ok(Self(BufReader::new(connection)))
    }

    async fn post(&mut self, path: &str, key: &str) -> Result<u16, Failure> {
        let body = r#"{"cents":4200}"#;
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\nidempotency-key: {key}\r\n\
            content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send(&request).await
    }

    /// Sends payments one after another, until the task has ended. Returns milliseconds of each.
    async fn payments<T>(&mut self, until: Option<&JoinHandle<T>>) -> Result<Spread, Failure> {
        let mut took = Vec::with_capacity(PINGS);
        while until.map_or(took.len() < PINGS, |until| !until.is_finished()) {
            let started = Instant::now();
            self.post("/payments", &Uuid::now_v7().to_string()).await?;
            took.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        Ok(Spread::of(took))
    }

    /// Sends pings one after another. Returns the median.
    async fn pings(&mut self) -> Result<Duration, Failure> {
        let mut took = Vec::with_capacity(PINGS);
        for _ in 0..PINGS {
            let started = Instant::now();
            self.send("GET /ping HTTP/1.1\r\nhost: bench\r\n\r\n").await?;
            took.push(started.elapsed());
        }
        took.sort_unstable();
        Ok(took[PINGS / 2])
    }

    /// Sends a request and reads the response. Returns its status.
    async fn send(&mut self, request: &str) -> Result<u16, Failure> {
        self.0.get_mut().write_all(request.as_bytes()).await?;
        let (mut status, mut length) = (None, 0);
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).await?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            match status {
                None => status = line.split(' ').nth(1).and_then(|status| status.parse().ok()),
                Some(_) => {
                    if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                        length = bytes.parse()?;
                    }
                }
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await?;
        status.ok_or_else(|| "no status".into())
    }
}
