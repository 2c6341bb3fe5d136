//! The service that refunds, on a database of its own.
use crate::consumer::support::{TestDb, World, soon};
use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode, request::Builder},
};
use integration_tests::refunds::{Asked, Does, Shop, TABLES, leased_router, router};
use serde_json::Value;
use std::{ops::Deref, sync::Arc, time::Duration};
use tower::ServiceExt as _;
use twinbox::{
    Store,
    http::{Caller, Idempotency},
};

/// How a handler holds its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    Tx,
    Lease,
}

pub(super) const STRATEGIES: [Strategy; 2] = [Strategy::Tx, Strategy::Lease];

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(300);

pub(super) struct Refunds<DB: TestDb> {
    pub(super) world: World<DB>,
    pub(super) shop: Arc<Shop>,
    pub(super) router: Router,
}

impl<DB: TestDb> Deref for Refunds<DB> {
    type Target = World<DB>;

    fn deref(&self) -> &World<DB> {
        &self.world
    }
}

/// What a caller gets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Got {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl Got {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Of what was `stored`, `replayed` or `ignored`.
    pub(super) fn says(&self) -> Option<&str> {
        self.header("idempotency-status")
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The status and the code of a problem.
    pub(super) fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        let status = self.status.as_u16();
        assert_eq!((json["status"].as_u64(), json["retryable"].is_boolean()), (Some(status.into()), true));
        assert_eq!(json["retryable"] == true, self.headers.contains_key("retry-after"), "{self:?}");
        (status, json["error_code"].as_str().unwrap().to_owned())
    }

    /// The same answer, but for what says that it was given before.
    #[track_caller]
    pub(super) fn is_replayed(&self, first: &Self) {
        assert_eq!((first.says(), self.says()), (Some("stored"), Some("replayed")), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
        for kept in ["content-type", "location"] {
            assert_eq!(self.header(kept), first.header(kept));
        }
    }
}

/// `POST path` with a key.
pub(super) fn post(path: &str, key: &str) -> Builder {
    let request = Request::post(path).header("content-type", "application/json");
    if key.is_empty() { request } else { request.header("idempotency-key", key) }
}

pub(super) fn asked(amount: i64, does: Does) -> String {
    serde_json::to_string(&Asked { amount, does }).unwrap()
}

fn of_headers(headers: &HeaderMap) -> Caller {
    let of = |name: &str| headers.get(name).map_or(String::new(), |value| value.to_str().unwrap().to_owned());
    Caller { tenant: of("x-tenant"), principal: of("x-user") }
}

pub(super) async fn send(router: &Router, request: Request<Body>) -> Got {
    let response = soon(router.clone().oneshot(request)).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
    Got { status: parts.status, headers: parts.headers, body }
}

impl<DB: TestDb> Refunds<DB> {
    pub(super) async fn new(strategy: Strategy) -> Self {
        Self::with(strategy, |layer| layer).await
    }

    pub(super) async fn with(
        strategy: Strategy,
        set: impl FnOnce(Idempotency<DB>) -> Idempotency<DB>,
    ) -> Self {
        let world = World::<DB>::new().await;
        world.execute(TABLES).await;
        let shop = Arc::new(Shop::default());
        let router = Self::another(&world, strategy, set, shop.clone());
        Self { world, shop, router }
    }

    /// As another process has it.
    pub(super) fn another(
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

    pub(super) fn router(&self) -> Router {
        self.router.clone()
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Got {
        send(&self.router, request).await
    }

    pub(super) async fn refund(&self, key: &str, amount: i64, does: Does) -> Got {
        self.send(post("/refunds", key).body(asked(amount, does).into()).unwrap()).await
    }

    /// Refunds and entries of the ledger; messages are as many.
    pub(super) async fn made(&self) -> i64 {
        let refunds = self.number("SELECT count(*) FROM refunds").await;
        assert_eq!(self.number("SELECT count(*) FROM ledger").await, refunds);
        assert_eq!(self.rows("outbox").await, refunds);
        refunds
    }
}
