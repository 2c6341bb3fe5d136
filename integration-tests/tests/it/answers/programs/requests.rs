//! A web service: requests with a key, in a transaction and under a lease, and webhooks.
use super::Program;
use crate::support::{
    refunds::{asked, post},
    stores::{TestDb, World},
    wait::{Pause, pause},
    webhooks::now,
};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use futures::future::BoxFuture;
use integration_tests::refunds::{Does, HOOK_SECRET, Shop, TABLES, hooks, leased_router, router};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tower::ServiceExt as _;
use twinbox::{
    CancellationToken, Store,
    http::{
        Caller, Idempotency,
        webhook::{Scheme, Secret},
    },
};

/// A statement of a handler ends with the handler.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(10);
/// How long a client waits before it sends a request again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);

pub(in super::super) struct Web {
    /// The service of the process that runs.
    routers: Arc<Mutex<[Router; 3]>>,
    /// How many of three kinds are done, by number.
    done: Arc<Mutex<HashMap<i64, usize>>>,
}

impl<DB: TestDb> Program<DB> for Web {
    const NAME: &str = "web service";

    async fn new(world: &World<DB>) -> Self {
        world.execute(TABLES).await;
        Self { routers: Arc::default(), done: Arc::default() }
    }

    fn run(&self, store: Store<DB>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        let layer =
            || Idempotency::new(store.clone(), |_| Caller::default()).handler_timeout(HANDLER_TIMEOUT);
        let shop = || Arc::new(Shop::default());
        let all = [
            router(layer(), shop()),
            leased_router(layer().lease(LEASE), shop()),
            hooks(store.clone(), HANDLER_TIMEOUT),
        ];
        *self.routers.lock().unwrap() = all;
        Box::pin(async move { stop.cancelled().await })
    }

    async fn feed(&self, _: &World<DB>, n: i64) {
        for kind in 0..3 {
            let (routers, done) = (self.routers.clone(), self.done.clone());
            tokio::spawn(async move {
                loop {
                    let router = routers.lock().unwrap()[kind].clone();
                    let status = router.oneshot(request(kind, n)).await.unwrap().status();
                    if status.is_success() {
                        *done.lock().unwrap().entry(n).or_default() += 1;
                        return;
                    }
                    let is_for_later = status.is_server_error() || status == StatusCode::CONFLICT;
                    assert!(is_for_later, "{status}");
                    pause(Pause::Pace, AGAIN_AFTER).await;
                }
            });
        }
    }

    async fn is_done(&self, _: &World<DB>, n: i64) -> bool {
        self.done.lock().unwrap().get(&n) == Some(&3)
    }
}

fn request(kind: usize, n: i64) -> Request<Body> {
    let (key, body) = (format!("{kind}-{n}"), asked(100, Does::Answers));
    if kind < 2 {
        return post("/refunds", &key).body(body.into()).unwrap();
    }
    let secret = Secret::from_bytes(HOOK_SECRET).unwrap();
    let headers = secret.sign(Scheme::Standard, &key, now(), body.as_bytes());
    let request = Request::post("/hooks").header("content-type", "application/json");
    headers.into_iter().fold(request, |r, (name, value)| r.header(name, value)).body(body.into()).unwrap()
}
