//! Webhooks that come in. t28: R52, D25
use crate::support::{
    cases::cases,
    databases::{MySql, Postgres},
    logged::Lines,
    operations::SHORT,
    refunds::{Got, send},
    stores::{Confirmed, TestDb, World, effect},
    wait::{eventually, in_time},
    webhooks::{now, secret},
};
use axum::{Router, body::Body, extract::State, http::Request, routing::post};
use futures::{StreamExt as _, stream};
use sqlx::AssertSqlSafe;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use twinbox::{
    ErrorKind,
    http::{
        IdemTx, ServerError,
        webhook::{CustomScheme, Inbound, Scheme, Verifier},
    },
    webhook::{WebhookClaim, WebhookReceipt},
};

const STRIPE_EVENT: &str = r#"{"id":"evt_1","type":"refund.succeeded"}"#;

struct Hooks<DB: TestDb> {
    world: World<DB>,
    router: Router,
    fails: Arc<AtomicBool>,
}

/// Writes and publishes what came, and fails if it was told to.
async fn note<DB: TestDb>(
    State(fails): State<Arc<AtomicBool>>,
    mut idem: IdemTx<DB>,
    body: String,
) -> Result<(), ServerError> {
    let n = i64::try_from(body.len())?;
    effect::<DB>(&mut idem.tx(), n).await?;
    idem.tx().publish(&Confirmed { n }).await?;
    if fails.load(SeqCst) { Err("not now".into()) } else { Ok(()) }
}

impl<DB: TestDb> Hooks<DB> {
    async fn new(scheme: Scheme, set: impl FnOnce(Inbound<DB>) -> Inbound<DB>) -> Self {
        let world = World::<DB>::new().await;
        let verifier = Verifier::new(scheme, [secret(1), secret(2)]);
        let fails = Arc::new(AtomicBool::new(false));
        let layer = |endpoint| Inbound::new((*world).clone(), "tests", endpoint, verifier.clone());
        let router = Router::new()
            .route("/hooks", post(note::<DB>).layer(set(layer("hooks"))))
            .route("/others", post(note::<DB>).layer(layer("others")))
            .with_state(fails.clone());
        Self { world, router, fails }
    }

    async fn send(&self, headers: Vec<(&'static str, String)>, body: &str) -> Got {
        self.send_to("/hooks", headers, body).await
    }

    async fn send_to(&self, path: &str, headers: Vec<(&'static str, String)>, body: &str) -> Got {
        let request = headers.into_iter().fold(Request::post(path), |r, (name, value)| r.header(name, value));
        send(&self.router, request.body(body.to_owned().into()).unwrap()).await
    }

    async fn standard(&self, id: &str, body: &str) -> u16 {
        let headers = secret(1).sign(Scheme::Standard, id, now(), body.as_bytes());
        self.send(headers, body).await.status.as_u16()
    }

    /// Effects, messages and receipts.
    async fn left(&self) -> (usize, i64, i64) {
        let rows = (self.world.rows("outbox").await, self.world.rows("webhook_receipts").await);
        (self.world.effects().await.len(), rows.0, rows.1)
    }
}

async fn t28_what_comes_again_does_nothing_again<DB: TestDb>() {
    let hooks = Hooks::<DB>::new(Scheme::Standard, |layer| layer).await;
    assert_eq!(hooks.standard("msg_1", "a").await, 200);
    assert_eq!(hooks.standard("msg_1", "a").await, 200);
    // Another signature, as a sender makes for each try.
    let again = secret(2).sign(Scheme::Standard, "msg_1", now() - 60, b"a");
    assert_eq!(hooks.send(again, "a").await.status.as_u16(), 200);
    // The same id with another payload: nothing runs.
    assert_eq!(hooks.standard("msg_1", "other").await, 200);
    assert_eq!(hooks.left().await, (1, 1, 1));
    assert_eq!(hooks.standard("msg_2", "bb").await, 200);
    assert_eq!(hooks.left().await, (2, 2, 2));
}

/// The sender is a stranger, who sends a part of a body and then nothing.
async fn a_body_that_does_not_end_holds_neither_memory_nor_connection<DB: TestDb>() {
    let hooks =
        Hooks::<DB>::new(Scheme::Standard, |layer| layer.body_timeout(SHORT).arriving_bytes_max(2000)).await;
    let ask = async |headers: Vec<(&'static str, String)>| {
        let part = stream::iter([Ok::<_, Infallible>("a".repeat(900))]);
        let body = Body::from_stream(part.chain(stream::pending()));
        let request =
            headers.into_iter().fold(Request::post("/hooks"), |r, (name, value)| r.header(name, value));
        in_time(send(&hooks.router, request.body(body).unwrap())).await.problem()
    };
    let signed = |id: &str| secret(1).sign(Scheme::Standard, id, now(), b"a");
    assert_eq!(ask(vec![]).await.0, 401, "without a signature its body is not read");
    assert_eq!(ask(signed("msg_1")).await, (408, "TRANSIENT.idempotency.body_slow".to_owned()));
    let (a, b, c) = tokio::join!(ask(signed("msg_1")), ask(signed("msg_2")), ask(signed("msg_3")));
    let mut got = [a, b, c].map(|(status, _)| status);
    got.sort_unstable();
    assert_eq!(got, [408, 408, 503], "together they have a memory");
    assert_eq!(hooks.standard("msg_4", "a").await, 200);
}

async fn t28_what_is_not_signed_is_refused<DB: TestDb>() {
    let hooks = Hooks::<DB>::new(Scheme::Standard, |layer| layer.request_bytes_max(1000)).await;
    let signed = |id: &str, at: u64| secret(1).sign(Scheme::Standard, id, at, b"a");
    let mut wrong = vec![
        vec![],
        signed("msg.1", now()),
        signed("msg_1", now() - 301),
        // Later than a machine takes to send it: 300 s are allowed.
        signed("msg_1", now() + 3600),
        secret(3).sign(Scheme::Standard, "msg_1", now(), b"a"),
    ];
    for gone in 0..3 {
        let mut headers = signed("msg_1", now());
        headers.remove(gone);
        wrong.push(headers);
    }
    for (header, value) in [(0, "msg_2"), (1, "1"), (2, "v1,"), (2, "v1"), (2, "")] {
        let mut headers = signed("msg_1", now());
        headers[header].1 = value.to_owned();
        wrong.push(headers);
    }
    let mut cut = signed("msg_1", now());
    cut[2].1.truncate(20);
    wrong.push(cut);
    for headers in wrong {
        let got = hooks.send(headers.clone(), "a").await;
        assert_eq!(got.problem(), (401, "AUTH.webhook.not_signed".to_owned()), "{headers:?}");
        assert!(!got.json().as_object().unwrap().contains_key("instance"), "RFC 9457 has no null there");
    }
    assert_eq!(hooks.send(signed("msg_1", now()), "b").await.status.as_u16(), 401);
    assert_eq!(hooks.standard("msg_1", &"a".repeat(1001)).await, 413);
    assert_eq!(hooks.left().await, (0, 0, 0));
}

/// Only what is signed tells webhooks apart: Stripe signs its body.
async fn t28_an_id_may_be_in_the_body<DB: TestDb>() {
    let (lines, _recorded) = Lines::record();
    let hooks = Hooks::<DB>::new(Scheme::Stripe, |layer| layer).await;
    let stripe = async |body: &str, at: u64| {
        hooks.send(secret(1).sign(Scheme::Stripe, "", at, body.as_bytes()), body).await.status.as_u16()
    };
    for at in [now(), now() - 100] {
        assert_eq!(stripe(STRIPE_EVENT, at).await, 200);
    }
    // Tries of one event differ.
    assert_eq!(stripe(r#"{"pending_webhooks":1,"id":"evt_1"}"#, now()).await, 200);
    assert_eq!(hooks.left().await, (1, 1, 1));
    let without = || lines.saying("has no id at this pointer").len();
    assert_eq!(without(), 0);
    // Without an id it is told apart by what it says.
    for _ in 0..2 {
        assert_eq!(stripe("{}", now()).await, 200);
        assert_eq!(stripe("not json", now()).await, 200);
    }
    assert_eq!(without(), 4, "whoever set it up is told");
    assert_eq!(hooks.left().await, (3, 3, 3));
    let basis = format!("SELECT count(*) FROM {} WHERE dedup_basis = ", DB::table_of("webhook_receipts"));
    assert_eq!(hooks.world.number(format!("{basis}'body'")).await, 1);
    assert_eq!(hooks.world.number(format!("{basis}'digest'")).await, 2);
}

/// The id of a delivery that is not signed tells nothing apart: anybody can change it in a recorded copy.
async fn t28_an_unsigned_id_counts_for_nothing<DB: TestDb>() {
    const OWN: CustomScheme = CustomScheme::base64("x-signature").timestamp("x-time", "", ".");
    for (scheme, header) in [
        (Scheme::GitHub, "x-github-delivery"),
        (Scheme::Shopify, "x-shopify-event-id"),
        (Scheme::Custom(OWN), "x-id"),
    ] {
        let hooks = Hooks::<DB>::new(scheme, |layer| layer).await;
        let deliver = async |n: u8, id: &str, body: &str| {
            let mut headers = secret(n).sign(scheme, "", now(), body.as_bytes());
            headers.push((header, id.to_owned()));
            hooks.send(headers, body).await.status.as_u16()
        };
        // The second secret is in force too.
        for (n, id) in [(1, "a"), (1, "a"), (1, "b"), (2, "c")] {
            assert_eq!(deliver(n, id, r#"{"n":1}"#).await, 200);
        }
        assert_eq!(hooks.left().await, (1, 1, 1), "{scheme:?}");
        assert_eq!(deliver(1, "a", r#"{"n":22}"#).await, 200);
        assert_eq!(hooks.left().await, (2, 2, 2), "{scheme:?}");
        assert_eq!(deliver(3, "d", r#"{"n":333}"#).await, 401);
        let without = vec![(header, "d".to_owned())];
        assert_eq!(hooks.send(without, r#"{"n":333}"#).await.status.as_u16(), 401);
        let mut cut = secret(1).sign(scheme, "", now(), b"{}");
        let shorter = cut[0].1.len() - 4;
        cut[0].1.truncate(shorter);
        assert_eq!(hooks.send(cut, "{}").await.status.as_u16(), 401);
        assert_eq!(hooks.left().await, (2, 2, 2), "{scheme:?}");
    }
}

async fn t28_a_custom_scheme_may_have_its_id_in_the_body<DB: TestDb>() {
    const OWN: CustomScheme = CustomScheme::hex("x-signature").prefix("v1=").id_in_body("/event/id");
    let hooks = Hooks::<DB>::new(Scheme::Custom(OWN), |layer| layer).await;
    for (body, runs) in [
        (r#"{"event":{"id":"e1"}}"#, 1),
        (r#"{"event":{"id":"e1"}}"#, 1),
        (r#"{"event":{"id":"e1"},"try":2}"#, 1),
        (r#"{"event":{"id":"e22"}}"#, 2),
    ] {
        let headers = secret(1).sign(Scheme::Custom(OWN), "", now(), body.as_bytes());
        assert_eq!(hooks.send(headers, body).await.status.as_u16(), 200);
        assert_eq!(hooks.left().await, (usize::from(runs == 2) + 1, runs, runs), "{body}");
    }
}

async fn two_endpoints_of_one_provider_get_an_event_each<DB: TestDb>() {
    for (scheme, id) in [(Scheme::Standard, "msg_1"), (Scheme::Stripe, "")] {
        let hooks = Hooks::<DB>::new(scheme, |layer| layer).await;
        for _ in 0..2 {
            // What one has received is new to the other, whose handler does something else.
            for (path, body) in [("/hooks", STRIPE_EVENT), ("/others", r#"{"id":"evt_1"}"#)] {
                let headers = secret(1).sign(scheme, id, now(), body.as_bytes());
                assert_eq!(hooks.send_to(path, headers, body).await.status.as_u16(), 200);
            }
        }
        assert_eq!((hooks.world.rows("outbox").await, hooks.left().await.2), (2, 2));
    }
}

async fn t28_what_failed_may_come_again<DB: TestDb>() {
    let hooks = Hooks::<DB>::new(Scheme::Standard, |layer| layer).await;
    hooks.fails.store(true, SeqCst);
    assert_eq!(hooks.standard("msg_1", "a").await, 500);
    assert_eq!(hooks.left().await, (0, 0, 0));
    hooks.fails.store(false, SeqCst);
    assert_eq!(hooks.standard("msg_1", "a").await, 200);
    assert_eq!(hooks.left().await, (1, 1, 1));
}

async fn t28_of_many_at_once_one_is_received<DB: TestDb>() {
    let hooks = Hooks::<DB>::new(Scheme::Standard, |layer| layer).await;
    let all = futures::future::join_all((0..8).map(|_| hooks.standard("msg_1", "a"))).await;
    assert_eq!(all, [200; 8]);
    assert_eq!(hooks.left().await, (1, 1, 1));
}

async fn receipts_expire_and_are_purged<DB: TestDb>() {
    let hooks = Hooks::<DB>::new(Scheme::Standard, |layer| layer).await;
    assert_eq!(hooks.standard("msg_1", "a").await, 200);
    assert_eq!(hooks.standard("msg_2", "bb").await, 200);
    assert_eq!(hooks.world.idempotency_keys().purge_webhooks().await.unwrap(), 0);
    let expires = format!(
        "UPDATE {} SET expires_at = received_at WHERE dedup_id = 'msg_1'",
        DB::table_of("webhook_receipts")
    );
    let mut conn = hooks.world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(expires)).execute(&mut *conn).await.unwrap();
    drop(conn);
    // As good as purged.
    assert_eq!(hooks.standard("msg_1", "ccc").await, 200);
    assert_eq!(hooks.left().await, (3, 3, 2));
    let receipt =
        WebhookReceipt { provider: "tests", endpoint: "", id: None, payload: b"once", secret_index: 0 };
    let WebhookClaim::Open(operation) = hooks.world.receive_webhook(&receipt, Duration::ZERO).await.unwrap()
    else {
        panic!("it is new");
    };
    operation.commit(&Default::default()).await.unwrap();
    eventually(async || (hooks.world.idempotency_keys().purge_webhooks().await.unwrap() == 1).then_some(()))
        .await;
    assert_eq!(hooks.left().await.2, 2);
}

/// Whoever receives the same for long is not waited for longer than a sender would, and nothing leaks into a
/// handler.
async fn waits_for_a_receipt<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let receipt =
        WebhookReceipt { provider: "tests", endpoint: "", id: None, payload: b"a", secret_index: 0 };
    let WebhookClaim::Open(mut first) = world.receive_webhook(&receipt, SHORT).await.unwrap() else {
        panic!("it is new")
    };
    let is_unbound = match DB::MODULE {
        "postgres" => "SELECT setting = '0' FROM pg_settings WHERE name = 'lock_timeout'",
        _ => "SELECT @@innodb_lock_wait_timeout = 50",
    };
    let is_unbound: bool = sqlx::query_scalar(is_unbound).fetch_one(&mut *first.tx()).await.unwrap();
    assert!(is_unbound);
    let began = Instant::now();
    let error = in_time(world.receive_webhook(&receipt, SHORT)).await.err().unwrap();
    assert!(error.is_contention(), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(45), "MySQL itself waits for 50 s");
    drop(first);
    assert!(matches!(world.receive_webhook(&receipt, SHORT).await.unwrap(), WebhookClaim::Open(_)));
}

async fn a_receipt_that_is_being_written_is_waited_for() {
    waits_for_a_receipt::<Postgres>().await;
}

async fn a_receipt_that_is_being_written_on_mysql_is_waited_for() {
    waits_for_a_receipt::<MySql>().await;
}

/// The effect before the COMMIT is not written again, and the webhook is not taken for received. R52
async fn a_webhook_whose_handler_has_committed_by_itself_is_refused() {
    let world = World::<MySql>::new().await;
    let receipt =
        WebhookReceipt { provider: "tests", endpoint: "", id: None, payload: b"a", secret_index: 0 };
    let WebhookClaim::Open(mut first) = world.receive_webhook(&receipt, SHORT).await.unwrap() else {
        panic!("it is new")
    };
    effect::<MySql>(&mut first.tx(), 1).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *first.tx()).await.unwrap();
    effect::<MySql>(&mut first.tx(), 2).await.unwrap();
    let error = first.commit(&Default::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TransactionEnded);
    let again = world.receive_webhook(&receipt, SHORT).await.err().unwrap();
    assert_eq!(again.kind(), ErrorKind::PartlyCommitted);
    assert_eq!(world.effects().await, [1]);
}

cases! {
    all: [
        t28_what_comes_again_does_nothing_again,
        a_body_that_does_not_end_holds_neither_memory_nor_connection,
        t28_what_is_not_signed_is_refused,
        t28_a_custom_scheme_may_have_its_id_in_the_body,
        t28_an_id_may_be_in_the_body,
        t28_an_unsigned_id_counts_for_nothing,
        t28_what_failed_may_come_again,
        two_endpoints_of_one_provider_get_an_event_each,
        t28_of_many_at_once_one_is_received,
        receipts_expire_and_are_purged,
    ]
    postgres: [a_receipt_that_is_being_written_is_waited_for]
    mysql: [
        a_receipt_that_is_being_written_on_mysql_is_waited_for,
        a_webhook_whose_handler_has_committed_by_itself_is_refused,
    ]
}
