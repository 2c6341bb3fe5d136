//! Handlers and bodies that never end.
use crate::support::{
    cases::cases,
    database::SERVICE,
    databases::{MySql, Postgres},
    refunds::{Refunds, STRATEGIES, asked, post, send},
    stores::{Placed, TestDb, World, effect},
    webhooks::{now, secret},
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{Request, Response, StatusCode},
    routing,
};
use futures::future::join_all;
use http_body_util::{BodyExt as _, Full};
use integration_tests::refunds::Does::{Answers, Waits};
use sqlx::PgPool;
use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::sync::Semaphore;
use twinbox::{
    Store,
    http::{
        Caller, IdemLease, IdemTx, Idempotency, ServerError,
        webhook::{Inbound, Scheme, Verifier},
    },
};

/// The time of what hangs.
const LIMIT: Duration = Duration::from_millis(300);

fn timed_out() -> (u16, String) {
    (504, "TRANSIENT.timeout".to_owned())
}

async fn a_handler_that_hangs_holds_neither_its_key_nor_the_others<DB: TestDb>() {
    for strategy in STRATEGIES {
        let mut layer = None;
        let set = |one: Idempotency<DB>| layer.insert(one).clone().handler_timeout(LIMIT);
        let app = Refunds::<DB>::with(strategy, set).await;
        // The same process without the limit, for what a busy machine may take longer to do.
        let patient = Refunds::another(&app.world, strategy, |_| layer.unwrap(), app.shop.clone());
        let request =
            |key: &str, amount, does| post("/refunds", key).body(Body::from(asked(amount, does))).unwrap();
        let (hung, other) = tokio::join!(
            async {
                let hung = app.send(request("a", 1, Waits)).await;
                // It may have been given up before it came to its wait.
                app.shop.waiting.add_permits(1);
                hung
            },
            async {
                app.shop.waiting.acquire().await.unwrap().forget();
                // It waits for the permit of SQLite meanwhile, and gets it.
                send(&patient, request("b", 2, Answers)).await
            }
        );
        assert_eq!((hung.problem(), other.says()), (timed_out(), Some("stored")), "{strategy:?}");
        assert_eq!(app.made().await, 1);
        app.shop.may_go_on.add_permits(1);
        let again = send(&patient, request("a", 1, Waits)).await;
        assert_eq!(again.says(), Some("stored"), "the same request may go on");
        assert_eq!(app.made().await, 2);
    }
}

async fn a_handler_without_a_key_is_given_up_too<DB: TestDb>() {
    let app = Refunds::<DB>::with(STRATEGIES[0], |layer| layer.handler_timeout(LIMIT).optional()).await;
    assert_eq!(app.refund("", 1, Waits).await.problem(), timed_out());
    let patient = Refunds::another(&app.world, STRATEGIES[0], |layer| layer.optional(), app.shop.clone());
    let request = post("/refunds", "").body(asked(1, Answers).into()).unwrap();
    assert_eq!(send(&patient, request).await.says(), Some("ignored"));
    assert_eq!(app.made().await, 1);
}

async fn a_time_out_may_be_without_an_end<DB: TestDb>() {
    for strategy in STRATEGIES {
        let set = |layer: Idempotency<DB>| layer.handler_timeout(Duration::MAX).optional();
        let app = Refunds::<DB>::with(strategy, set).await;
        assert_eq!(app.refund("a", 1, Answers).await.says(), Some("stored"));
        if strategy == STRATEGIES[0] {
            assert_eq!(app.refund("", 1, Answers).await.says(), Some("ignored"));
        }
    }
}

/// The server ends what a process without power leaves behind, and a little later than the handler's own
/// time-out: the key of a slow handler would be free while it still runs.
async fn the_server_ends_a_handler_a_little_after_its_time_out() {
    ends_a_handler::<Postgres>(["60500ms 60500ms", "300500ms 300500ms"]).await;
}

/// It counts in whole seconds.
async fn the_server_ends_a_handler_a_little_after_its_time_out_on_mysql() {
    ends_a_handler::<MySql>(["61", "301"]).await;
}

async fn ends_a_handler<DB: TestDb>([usual_bounds, slow_bounds]: [&str; 2]) {
    async fn shown<DB: TestDb>(mut idem: IdemTx<DB>) -> Result<String, ServerError> {
        let shown = match DB::MODULE {
            "postgres" => {
                "SELECT current_setting('statement_timeout') || ' ' || \
                    current_setting('idle_in_transaction_session_timeout')"
            }
            _ => "SELECT CAST(@@SESSION.wait_timeout AS CHAR)",
        };
        Ok(sqlx::query_scalar(shown).fetch_one(&mut *idem.tx()).await?)
    }
    const SLOW: Duration = Duration::from_secs(300);
    let world = World::<DB>::new().await;
    let layer = Idempotency::new((*world).clone(), Caller::single);
    let verifier = Verifier::new(Scheme::Standard, [secret(1)]);
    let hooks = Inbound::new((*world).clone(), "tests", "slow", verifier);
    let router = |layer: Idempotency<DB>, hooks: Inbound<DB>| {
        Router::new()
            .route("/shown", routing::post(shown::<DB>).layer(layer.optional()))
            .route("/hook", routing::post(shown::<DB>).layer(hooks))
    };
    let usual = router(layer.clone(), hooks.clone());
    let slow = router(layer.handler_timeout(SLOW), hooks.handler_timeout(SLOW));
    for (router, key, expected) in [(usual, "a", usual_bounds), (slow, "b", slow_bounds)] {
        let headers = secret(1).sign(Scheme::Standard, key, now(), b"a");
        let hook = headers.into_iter().fold(Request::post("/hook"), |r, (name, value)| r.header(name, value));
        let hook = hook.body(Body::from("a")).unwrap();
        let asked = |key| post("/shown", key).body(Body::empty()).unwrap();
        for request in [asked(key), asked(""), hook] {
            let got = send(&router, request).await;
            assert_eq!((got.status.as_u16(), got.body), (200, expected.as_bytes().to_vec()));
        }
    }
}

/// It counts as a failure.
async fn a_handler_that_hangs_as_often_as_it_may_is_not_tried_again<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.handler_timeout(LIMIT).attempts_max(1);
    let app = Refunds::<DB>::with(STRATEGIES[1], set).await;
    let last = app.refund("a", 1, Waits).await;
    assert_eq!(last.problem(), (500, "INTERNAL.idempotency.attempts_exhausted".to_owned()));
    app.refund("a", 1, Waits).await.is_replayed(&last);
    assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (0, 0));
}

/// Its trailers never come.
async fn an_answer_that_never_ends_is_given_up<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let layer = Idempotency::new((*world).clone(), Caller::single).handler_timeout(LIMIT);
    let route = routing::post(async |mut idem: IdemTx<DB>| {
        effect::<DB>(&mut idem.tx(), 1).await.unwrap();
        let body =
            Full::new(Bytes::from_static(b"whole")).with_trailers(pending::<Option<Result<_, Infallible>>>());
        Response::new(Body::new(body))
    });
    let app = Router::new().route("/pay", route.layer(layer));
    for _ in 0..2 {
        let got = send(&app, post("/pay", "a").body("{}".into()).unwrap()).await;
        assert_eq!(got.problem(), timed_out());
        assert_eq!(world.effects().await, [0; 0]);
    }
}

async fn a_webhook_whose_handler_hangs_may_come_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let layer =
        Inbound::new((*world).clone(), "tests", "hooks", Verifier::new(Scheme::Standard, [secret(1)]));
    let route = routing::post(async |mut idem: IdemTx<DB>, body: String| {
        effect::<DB>(&mut idem.tx(), 1).await.unwrap();
        if body == "hangs" { pending().await } else { StatusCode::OK }
    });
    let app = Router::new()
        .route("/hooks", route.clone().layer(layer.clone().handler_timeout(LIMIT)))
        .route("/patient", route.layer(layer));
    let hook = async |path: &'static str, body: &'static str| {
        let headers = secret(1).sign(Scheme::Standard, "msg_1", now(), body.as_bytes());
        let request = headers.into_iter().fold(Request::post(path), |r, (name, value)| r.header(name, value));
        send(&app, request.body(body.into()).unwrap()).await
    };
    assert_eq!(hook("/hooks", "hangs").await.problem(), timed_out());
    assert_eq!((world.effects().await.len(), world.rows("webhook_receipts").await), (0, 0));
    assert_eq!(hook("/patient", "goes on").await.status.as_u16(), 200);
    assert_eq!((world.effects().await.len(), world.rows("webhook_receipts").await), (1, 1));
}

/// Handlers that run and wait, and the pool that they read with.
#[derive(Clone)]
struct Readers {
    running: Arc<Semaphore>,
    may_read: Arc<Semaphore>,
    pool: PgPool,
}

impl Readers {
    async fn read(&self, mut idem: IdemTx<Postgres>) -> Result<StatusCode, ServerError> {
        idem.tx().publish(&Placed { n: 1 }).await?;
        self.running.add_permits(1);
        self.may_read.acquire().await.expect("nobody closes it").forget();
        sqlx::query("SELECT 1").execute(&self.pool).await?;
        Ok(StatusCode::CREATED)
    }
}

/// Else all connections are held by handlers that wait for one more.
async fn a_handler_gets_another_connection_however_many_requests_come() {
    const CONNECTIONS: u32 = 5;
    const LEFT: usize = 2;
    let world = World::<Postgres>::new().await;
    let pool = world.twin(CONNECTIONS).await;
    let store = Store::new(pool.clone(), SERVICE).unwrap();
    let [running, may_read] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let readers = Readers { running, may_read, pool };
    let layer = Idempotency::new(store.clone(), Caller::single);
    let reads = async |State(readers): State<Readers>, idem| readers.read(idem).await;
    let leased = async |State(readers): State<Readers>, lease: IdemLease<Postgres>| {
        readers.read(lease.begin().await?).await
    };
    let hooks = Inbound::new(store, "tests", "hooks", Verifier::new(Scheme::Standard, [secret(1)]));
    let app = Router::new()
        .route("/tx", routing::post(reads).layer(layer.clone().optional()))
        .route("/lease", routing::post(leased).layer(layer.lease(Duration::from_secs(60))))
        .route("/hooks", routing::post(reads).layer(hooks))
        .with_state(readers.clone());
    for (path, has_key) in [("/tx", true), ("/tx", false), ("/lease", true), ("/hooks", false)] {
        let requests = (0..2 * CONNECTIONS).map(async |n| {
            let key = if has_key { n.to_string() } else { String::new() };
            let headers = secret(1).sign(Scheme::Standard, &n.to_string(), now(), b"a");
            let request =
                headers.into_iter().fold(post(path, &key), |r, (name, value)| r.header(name, value));
            send(&app, request.body("a".into()).unwrap()).await.status
        });
        let reading = async {
            let handlers = CONNECTIONS as usize - LEFT;
            readers.running.acquire_many(handlers as u32).await.unwrap().forget();
            // Another that may run would do so meanwhile.
            for _ in 0..20 {
                sqlx::query("SELECT 1").execute(&readers.pool).await.unwrap();
            }
            let more = readers.running.available_permits();
            readers.may_read.add_permits(2 * CONNECTIONS as usize);
            more
        };
        let (statuses, more) = tokio::join!(join_all(requests), reading);
        assert!(statuses.iter().all(|status| *status == 201), "{path}: {statuses:?}");
        assert_eq!(more, 0, "{path}");
        readers.running.forget_permits(usize::MAX);
    }
}

cases! {
    all: [
        a_handler_that_hangs_holds_neither_its_key_nor_the_others,
        a_handler_without_a_key_is_given_up_too,
        a_handler_that_hangs_as_often_as_it_may_is_not_tried_again,
        an_answer_that_never_ends_is_given_up,
        a_webhook_whose_handler_hangs_may_come_again,
        a_time_out_may_be_without_an_end,
    ]
    postgres: [
        the_server_ends_a_handler_a_little_after_its_time_out,
        a_handler_gets_another_connection_however_many_requests_come,
    ]
    mysql: [the_server_ends_a_handler_a_little_after_its_time_out_on_mysql]
}
