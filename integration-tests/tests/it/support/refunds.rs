//! The web service of refunds, on a new database.
use super::{
    stores::{TestDb, World},
    wait::in_time,
};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request, StatusCode, request::Builder},
};
use http_body_util::BodyExt as _;
use integration_tests::refunds::{Asked, Does, Shop, TABLES, leased_router, router};
use serde_json::Value;
use std::{ops::Deref, sync::Arc, time::Duration};
use tower::ServiceExt as _;
use twinbox::{
    Store,
    http::{Caller, Idempotency},
};

/// The way in which a handler keeps its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    Tx,
    Lease,
}

pub(crate) const STRATEGIES: [Strategy; 2] = [Strategy::Tx, Strategy::Lease];

/// A lease that does not end within a test.
const LEASE: Duration = Duration::from_secs(300);

pub(crate) struct Refunds<DB: TestDb> {
    pub(crate) world: World<DB>,
    pub(crate) shop: Arc<Shop>,
    pub(crate) router: Router,
}

impl<DB: TestDb> Deref for Refunds<DB> {
    type Target = World<DB>;

    fn deref(&self) -> &World<DB> {
        &self.world
    }
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Got {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) has_trailers: bool,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Returns the header `idempotency-status`: `stored`, `replayed` or `ignored`.
    pub(crate) fn says(&self) -> Option<&str> {
        self.header("idempotency-status")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns the status and the code of a problem.
    pub(crate) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        let status = self.status.as_u16();
        assert_eq!((json["status"].as_u64(), json["retryable"].is_boolean()), (Some(status.into()), true));
        assert_eq!(json["retryable"] == true, self.headers.contains_key("retry-after"), "{self:?}");
        (status, json["error_code"].as_str().unwrap().to_owned())
    }

    /// Asserts that this is the response `first`, sent again.
    #[track_caller]
    pub(crate) fn is_replayed(&self, first: &Self) {
        assert_eq!((first.says(), self.says()), (Some("stored"), Some("replayed")), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        for kept in ["content-type", "location"] {
            assert_eq!(self.header(kept), first.header(kept));
        }
    }
}

/// Builds `POST path` with a key.
pub(crate) fn post(path: &str, key: &str) -> Builder {
    let request = Request::post(path).header("content-type", "application/json");
    if key.is_empty() { request } else { request.header("idempotency-key", key) }
}

pub(crate) fn asked(amount: i64, does: Does) -> String {
    serde_json::to_string(&Asked { amount, does }).unwrap()
}

fn of_headers(headers: &HeaderMap) -> Caller {
    let of = |name: &str| headers.get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned());
    Caller { tenant: of("x-tenant"), principal: of("x-user") }
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Got {
    let response = in_time(router.clone().oneshot(request)).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let has_trailers = body.trailers().is_some();
    Got { status: parts.status, headers: parts.headers, body: body.to_bytes().to_vec(), has_trailers }
}

impl<DB: TestDb> Refunds<DB> {
    pub(crate) async fn new(strategy: Strategy) -> Self {
        Self::with(strategy, |layer| layer).await
    }

    pub(crate) async fn with(
        strategy: Strategy,
        set: impl FnOnce(Idempotency<DB>) -> Idempotency<DB>,
    ) -> Self {
        let world = World::<DB>::new().await;
        world.execute(TABLES).await;
        let shop = Arc::new(Shop::default());
        let router = Self::another(&world, strategy, set, shop.clone());
        Self { world, shop, router }
    }

    /// Returns a router as another process has it.
    pub(crate) fn another(
        store: &Store<DB>,
        strategy: Strategy,
        set: impl FnOnce(Idempotency<DB>) -> Idempotency<DB>,
        shop: Arc<Shop>,
    ) -> Router {
        let layer = set(Idempotency::new(store.clone(), |parts| of_headers(&parts.headers)));
        match strategy {
            Strategy::Tx => router(layer, shop),
            Strategy::Lease => leased_router(layer.lease(LEASE), shop),
        }
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Got {
        send(&self.router, request).await
    }

    pub(crate) async fn refund(&self, key: &str, amount: i64, does: Does) -> Got {
        self.send(post("/refunds", key).body(asked(amount, does).into()).unwrap()).await
    }

    /// Returns the number of refunds. The ledger and the outbox have as many rows.
    pub(crate) async fn made(&self) -> i64 {
        let refunds = self.number("SELECT count(*) FROM refunds").await;
        assert_eq!(self.number("SELECT count(*) FROM ledger").await, refunds);
        assert_eq!(self.rows("outbox").await, refunds);
        refunds
    }
}
