//! A service that refunds, for the tests of the request path.
use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use http_body_util::{BodyExt as _, Full};
use serde::{Deserialize, Serialize};
use sqlx::AssertSqlSafe;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::sync::Semaphore;
use twinbox::{
    Dialect, Event, Tx,
    http::{
        Decision, IdemLease, IdemTx, Idempotency, ResultRef, ServerError,
        webhook::{Inbound, Scheme, Secret, Verifier},
    },
    transition::{RowInsert, insert_or_existing},
};
use twinbox_core::crash;

/// What is refunded, and what the handler does after it has written that.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    /// In cents.
    pub amount: i64,
    /// By default it answers `201`.
    #[serde(default)]
    pub does: Does,
}

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "their names say it")]
pub enum Does {
    #[default]
    Answers,
    /// Until somebody adds a permit.
    Waits,
    /// For a fifth of a second, with its transaction open.
    Works,
    /// `402`, without funds.
    Declines,
    /// `402`, and says that this is final.
    DeclinesForGood,
    Fails,
    /// As if the database had gone away.
    LosesTheDatabase,
    Panics,
    /// Of all that run.
    PanicsFirst,
    AnswersMuch,
    AnswersMuchWithoutReference,
    Streams,
    /// A short body, and trailers behind it.
    AnswersWithTrailers,
    AnswersNothing,
    Redirects,
    SetsCookies,
    /// And answers as if it had not.
    KeepsItsTransaction,
    LosesItsTransaction,
}

/// What the tests look at and decide.
#[derive(Debug)]
pub struct Shop {
    /// Handlers that have run.
    pub ran: AtomicUsize,
    /// Calls of the vendor.
    pub calls: AtomicUsize,
    /// What is declined otherwise.
    pub has_funds: AtomicBool,
    /// One permit for each handler that waits.
    pub waiting: Semaphore,
    /// Lets one of them go on.
    pub may_go_on: Semaphore,
}

impl Default for Shop {
    fn default() -> Self {
        let [waiting, may_go_on] = [(); 2].map(|()| Semaphore::new(0));
        Self {
            ran: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
            has_funds: AtomicBool::new(false),
            waiting,
            may_go_on,
        }
    }
}

/// A refund was made.
#[derive(Debug, Clone, Serialize, Deserialize, Event)]
#[event(type = "refunds.made", version = 1, key = id)]
pub struct RefundMade {
    /// Which.
    pub id: String,
}

/// Makes a refund, reads it, and enters it into the ledger.
fn statements<DB: Dialect>() -> [&'static str; 3] {
    match DB::NAME {
        "MySQL" => [
            "INSERT IGNORE INTO refunds (id, amount) VALUES (?, ?)",
            "SELECT amount FROM refunds WHERE id = ?",
            "INSERT INTO ledger (refund, amount) VALUES (?, ?)",
        ],
        _ => [
            "INSERT INTO refunds (id, amount) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
            "SELECT amount FROM refunds WHERE id = $1",
            "INSERT INTO ledger (refund, amount) VALUES ($1, $2)",
        ],
    }
}

/// Tables of refunds and of the ledger.
pub const TABLES: &str = "CREATE TABLE refunds (id VARCHAR(64) PRIMARY KEY, amount BIGINT NOT NULL);
    CREATE TABLE ledger (refund TEXT NOT NULL, amount BIGINT NOT NULL);";

/// `POST /refunds` writes with the key, as does `POST /charges/{id}/refunds`; `POST /unused` does not
/// take its transaction, and `POST /taken` takes it alone. `GET /refunds` counts.
pub fn router<DB: Dialect>(layer: Idempotency<DB>, shop: Arc<Shop>) -> Router {
    let both = || post(refund::<DB>).layer(layer.clone());
    Router::new()
        .route("/refunds", both().get(async || "here"))
        .route("/charges/{id}/refunds", both())
        .route("/unused", post(async || StatusCode::CREATED).layer(layer.clone()))
        .route("/taken", post(async |_: IdemTx<DB>| StatusCode::CREATED).layer(layer.clone()))
        .with_state(shop)
}

/// The same with the key held by a lease: a vendor is called before anything is written.
pub fn leased_router<DB: Dialect>(layer: Idempotency<DB>, shop: Arc<Shop>) -> Router {
    let both = || post(leased_refund::<DB>).layer(layer.clone());
    Router::new()
        .route("/refunds", both().get(async || "here"))
        .route("/charges/{id}/refunds", both())
        .route("/unused", post(async || StatusCode::CREATED).layer(layer.clone()))
        .route("/taken", post(async |_: IdemLease<DB>| StatusCode::CREATED).layer(layer.clone()))
        .with_state(shop)
}

/// `GET /ping` asks the database.
pub fn ping<DB: Dialect>(store: twinbox::Store<DB>) -> Router {
    Router::new().route(
        "/ping",
        get(async move || -> Result<&'static str, ServerError> {
            let mut conn = store.pool().acquire().await?;
            sqlx::raw_sql(AssertSqlSafe("SELECT 1")).execute(&mut *conn).await?;
            Ok("pong")
        }),
    )
}

/// The secret of the webhooks.
pub const HOOK_SECRET: [u8; 32] = [7; 32];

/// `POST /hooks` refunds what it is told by a webhook.
pub fn hooks<DB: Dialect>(store: twinbox::Store<DB>, handler_timeout: Duration) -> Router {
    let secret = Secret::from_bytes(HOOK_SECRET).expect("it is long enough");
    let layer = Inbound::new(store, "tests", "hooks", Verifier::new(Scheme::Standard, [secret]));
    let layer = layer.handler_timeout(handler_timeout);
    Router::new().route("/hooks", post(hook::<DB>).layer(layer)).with_state(Arc::new(Shop::default()))
}

async fn hook<DB: Dialect>(
    State(shop): State<Arc<Shop>>,
    mut idem: IdemTx<DB>,
    Json(asked): Json<Asked>,
) -> Result<(), ServerError> {
    write(&mut idem.tx(), &asked, &shop).await
}

async fn refund<DB: Dialect>(
    State(shop): State<Arc<Shop>>,
    mut idem: IdemTx<DB>,
    Json(asked): Json<Asked>,
) -> Result<Response, ServerError> {
    write(&mut idem.tx(), &asked, &shop).await?;
    if asked.does == Does::Waits {
        wait(&shop).await;
    }
    end(idem, &asked, &shop).await
}

async fn leased_refund<DB: Dialect>(
    State(shop): State<Arc<Shop>>,
    mut lease: IdemLease<DB>,
    Json(asked): Json<Asked>,
) -> Result<Response, ServerError> {
    if lease.recovery_point().is_none() {
        shop.calls.fetch_add(1, SeqCst);
        crash::point("test.after_call");
        let token = lease.token_within("refund", 0, Duration::MAX).await?;
        lease.save(&token.ok_or("a vendor that remembers for ever knows it")?).await?;
    }
    if asked.does == Does::Waits {
        wait(&shop).await;
    }
    let mut idem = lease.begin().await?;
    write(&mut idem.tx(), &asked, &shop).await?;
    end(idem, &asked, &shop).await
}

async fn wait(shop: &Shop) {
    shop.waiting.add_permits(1);
    shop.may_go_on.acquire().await.expect("nobody closes it").forget();
}

async fn write<DB: Dialect>(tx: &mut Tx<'_, DB>, asked: &Asked, shop: &Shop) -> Result<(), ServerError> {
    shop.ran.fetch_add(1, SeqCst);
    let id = tx.message_id().to_string();
    let [insert, existing, enter] = statements::<DB>();
    let insert = sqlx::query(insert);
    let existing = sqlx::query_as::<DB, (i64,)>(existing).bind(id.clone());
    let made = insert_or_existing(tx, insert.bind(id.clone()).bind(asked.amount), existing).await?;
    crash::point("test.after_effect");
    if asked.does == Does::Works {
        // The work itself takes time: other requests with the key come meanwhile.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    if made == RowInsert::Inserted {
        sqlx::query::<DB>(enter).bind(id.clone()).bind(asked.amount).execute(&mut **tx).await?;
        tx.publish(&RefundMade { id }).await?;
        crash::point("test.after_outbox");
    }
    Ok(())
}

async fn end<DB: Dialect>(mut idem: IdemTx<DB>, asked: &Asked, shop: &Shop) -> Result<Response, ServerError> {
    let id = idem.tx().message_id().to_string();
    let made = serde_json::json!({ "id": id, "amount": asked.amount });
    let much = || Json(vec!["refund"; 20_000]);
    Ok(match asked.does {
        Does::PanicsFirst if shop.ran.load(SeqCst) == 1 => panic!("it panics"),
        Does::LosesTheDatabase if !shop.has_funds.load(SeqCst) => {
            return Err(ServerError::from(sqlx::Error::PoolTimedOut));
        }
        Does::Answers | Does::Waits | Does::Works | Does::PanicsFirst | Does::LosesTheDatabase => {
            (StatusCode::CREATED, [("location", format!("/refunds/{id}"))], Json(made)).into_response()
        }
        Does::Declines if shop.has_funds.load(SeqCst) => (StatusCode::CREATED, Json(made)).into_response(),
        Does::Declines => (StatusCode::PAYMENT_REQUIRED, "no funds").into_response(),
        Does::DeclinesForGood => {
            (StatusCode::PAYMENT_REQUIRED, Decision::RejectAndStore, "never").into_response()
        }
        Does::Fails if shop.has_funds.load(SeqCst) => (StatusCode::CREATED, Json(made)).into_response(),
        Does::Fails => return Err(ServerError::from("it does not work")),
        Does::Panics if shop.has_funds.load(SeqCst) => (StatusCode::CREATED, Json(made)).into_response(),
        Does::Panics => panic!("it panics"),
        Does::AnswersMuch => {
            let mut response =
                (StatusCode::CREATED, [("location", format!("/refunds/{id}"))], much()).into_response();
            response.extensions_mut().insert(ResultRef(id));
            response
        }
        Does::AnswersMuchWithoutReference => (StatusCode::CREATED, much()).into_response(),
        Does::Streams => {
            let chunks = futures::stream::iter(["data: 1\n\n", "data: 2\n\n"].map(Ok::<_, std::io::Error>));
            ([("content-type", "text/event-stream")], Body::from_stream(chunks)).into_response()
        }
        Does::AnswersWithTrailers => {
            let trailers = HeaderMap::from_iter([(HeaderName::from_static("digest"), HeaderValue::from(1))]);
            let body = Full::from("1").with_trailers(async { Some(Ok(trailers)) });
            Response::new(Body::new(body))
        }
        Does::AnswersNothing => StatusCode::NO_CONTENT.into_response(),
        Does::Redirects => Redirect::to("/refunds/1").into_response(),
        Does::SetsCookies => {
            let mut headers = HeaderMap::new();
            for (name, value) in
                [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("link", "</a>"), ("link", "</b>")]
            {
                headers.append(name, value.parse().expect("a header"));
            }
            (StatusCode::CREATED, headers, Json(made)).into_response()
        }
        Does::KeepsItsTransaction => {
            tokio::spawn(async move {
                futures::future::pending::<()>().await;
                drop(idem);
            });
            (StatusCode::CREATED, Json(made)).into_response()
        }
        Does::LosesItsTransaction => {
            let _ = sqlx::raw_sql("COMMIT").execute(&mut *idem.tx()).await;
            (StatusCode::CREATED, Json(made)).into_response()
        }
    })
}
