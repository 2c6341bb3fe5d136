//! A request that comes again, on both databases and with both ways to hold a key.
use super::both::with_both;
use crate::support::{
    cases::cases,
    databases::Postgres,
    refunds::{Refunds, STRATEGIES, Strategy, asked, post, send},
    stores::TestDb,
};
use axum::{Router, http::Request};
use integration_tests::refunds::Does::{self, Answers, Waits};
use std::{convert::identity, sync::atomic::Ordering::SeqCst, time::Duration};
use twinbox::http::{CodeStyle, Idempotency};

const MISMATCH: &str = "CONFLICT.idempotency.payload_mismatch";
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(300);

/// t02: R24, R37, R38, R39
async fn t02_the_same_key_twice_is_one_refund<DB: TestDb>() {
    with_both::<DB>(identity, async |app, strategy| {
        let first = app.refund("refund:ch_9ab:1000:6f6c", 1000, Answers).await;
        assert_eq!((first.status.as_u16(), first.json()["amount"].as_i64()), (201, Some(1000)));
        for _ in 0..2 {
            app.refund("refund:ch_9ab:1000:6f6c", 1000, Answers).await.is_replayed(&first);
        }
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (1, 1));
        let calls = app.shop.calls.load(SeqCst);
        assert_eq!(calls, usize::from(strategy == Strategy::Lease));
    })
    .await;
}

/// t03
async fn t03_another_key_is_another_refund<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let (one, two) = (app.refund("a", 1, Answers).await, app.refund("b", 1, Answers).await);
        assert_eq!((one.says(), two.says()), (Some("stored"), Some("stored")));
        assert_ne!(one.json()["id"], two.json()["id"]);
        assert_eq!(app.made().await, 2);
    })
    .await;
}

/// t04: R4, R25, D1
async fn t04_another_amount_with_the_key_is_a_mismatch<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        app.refund("a", 1, Answers).await;
        assert_eq!(app.refund("a", 2, Answers).await.problem(), (409, MISMATCH.to_owned()));
        let (first, other) = tokio::join!(app.refund("b", 1, Waits), async {
            app.shop.waiting.acquire().await.unwrap().forget();
            let other = app.refund("b", 2, Answers).await;
            app.shop.may_go_on.add_permits(1);
            other
        });
        assert_eq!((first.status.as_u16(), other.problem()), (201, (409, MISMATCH.to_owned())));
        assert_eq!(app.made().await, 2);
    })
    .await;
}

/// t04, while another process has the key
async fn t04_another_amount_is_a_mismatch_in_another_process_too() {
    with_both::<Postgres>(identity, async |app, strategy| {
        let process = Refunds::another(&app.world, strategy, |layer| layer, app.shop.clone());
        let (first, other) = tokio::join!(app.refund("b", 1, Waits), async {
            app.shop.waiting.acquire().await.unwrap().forget();
            let request = post("/refunds", "b").body(asked(2, Answers).into()).unwrap();
            let other = send(&process, request).await;
            app.shop.may_go_on.add_permits(1);
            other
        });
        assert_eq!((first.status.as_u16(), other.problem()), (201, (409, MISMATCH.to_owned())));
    })
    .await;
}

/// D3: who asks the same meanwhile waits, and is told to come again
async fn who_asks_the_same_meanwhile_waits_or_comes_again<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.wait(LONG);
    with_both::<DB>(set, async |app, _| {
        let request = |budget: &str| {
            post("/refunds", "a").header("x-request-timeout", budget).body(asked(1, Waits).into()).unwrap()
        };
        let (first, (brief, waited)) = tokio::join!(app.send(request("600s")), async {
            app.shop.waiting.acquire().await.unwrap().forget();
            let brief = app.send(request("1ms")).await;
            let waited = app.send(request("600s"));
            let goes_on = async { app.shop.may_go_on.add_permits(1) };
            (brief, tokio::join!(waited, goes_on).0)
        });
        assert_eq!(brief.problem(), (409, "CONFLICT.idempotency.in_progress".to_owned()));
        assert_eq!(brief.header("retry-after"), Some("1"));
        waited.is_replayed(&first);
        assert_eq!(app.made().await, 1);
    })
    .await;
}

/// t05: R29
async fn t05_the_payload_counts_and_not_its_spelling<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let again = async |key: &str, body: &[u8]| {
            app.send(post("/refunds", key).body(body.to_vec().into()).unwrap()).await
        };
        let large = |n: u64| format!("{{\"amount\":{n}}}").into_bytes();
        let first = again("large", &large((1 << 53) + 1)).await;
        assert_eq!(again("large", &large(1 << 53)).await.problem(), (409, MISMATCH.to_owned()));
        again("large", &large((1 << 53) + 1)).await.is_replayed(&first);
        let first = again("spelling", br#"{"amount":1,"does":"answers"}"#).await;
        again("spelling", b" { \"does\" : \"answers\", \"amount\" : 1.0e0 } ").await.is_replayed(&first);
        for (key, body) in [
            ("twice", br#"{"amount":1,"amount":2}"#.to_vec()),
            ("deep", format!("{}{}", "[".repeat(200), "]".repeat(200)).into_bytes()),
            ("bytes", b"\xff\xfe".to_vec()),
        ] {
            let got = again(key, &body).await;
            assert!(got.status.is_client_error() && got.says().is_none(), "{key}: {got:?}");
        }
        assert_eq!(app.made().await, 2);
    })
    .await;
}

/// t06: R3, R9, R27, D2, D16
async fn t06_a_key_is_asked_for_and_must_be_one<DB: TestDb>() {
    for strategy in STRATEGIES {
        let app = Refunds::<DB>::new(strategy).await;
        let flat = Refunds::another(
            &app.world,
            strategy,
            |layer| layer.code_style(CodeStyle::Flat),
            app.shop.clone(),
        );
        // Nothing below asks the database.
        app.close().await;
        let missing = app.refund("", 1, Answers).await;
        assert_eq!(missing.problem(), (400, "VALIDATION.idempotency.missing_key".to_owned()));
        assert_eq!(missing.json()["instance"], "/refunds");
        let got = send(&flat, post("/refunds", "").body(asked(1, Answers).into()).unwrap()).await;
        assert_eq!(got.problem(), (400, "missing_idempotency_key".to_owned()));
        assert_eq!(got.json()["type"], missing.json()["type"]);
        for key in ["\"\"", &"k".repeat(129), "a\tb", "a b", &"k".repeat(1_000_000)] {
            let got = app.send(post("/refunds", key).body(asked(1, Answers).into()).unwrap()).await;
            assert_eq!(got.problem(), (400, "VALIDATION.idempotency.invalid_key".to_owned()), "{key}");
        }
        let twice =
            post("/refunds", "a").header("idempotency-key", "a").body(asked(1, Answers).into()).unwrap();
        assert_eq!(app.send(twice).await.status.as_u16(), 400);
        assert_eq!(app.send(Request::get("/refunds").body("".into()).unwrap()).await.body, b"here");
        assert_eq!(app.shop.ran.load(SeqCst), 0);
    }
}

/// t06: quoted and plain are one key
async fn t06_a_quoted_key_is_the_key<DB: TestDb>() {
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    let first = app.refund("\"a\"", 1, Answers).await;
    app.refund("a", 1, Answers).await.is_replayed(&first);
}

/// t07 and t08: R22, R58, D11, D12
async fn t07_t08_keys_are_of_a_tenant_a_principal_and_a_route<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let send = async |path: &str, tenant: &str, user: &str, token: &str| {
            let request = post(path, "a").header("x-tenant", tenant).header("x-user", user);
            app.send(request.header("authorization", token).body(asked(1, Answers).into()).unwrap()).await
        };
        let first = send("/refunds", "t1", "u1", "Bearer 1").await;
        send("/refunds", "t1", "u1", "Bearer 2").await.is_replayed(&first);
        for (path, tenant, user) in
            [("/refunds", "t2", "u1"), ("/refunds", "t1", "u2"), ("/charges/1/refunds", "t1", "u1")]
        {
            assert_eq!(send(path, tenant, user, "").await.says(), Some("stored"), "{path} {tenant} {user}");
        }
        let other = send("/charges/2/refunds", "t1", "u1", "").await;
        assert_eq!(other.problem(), (409, MISMATCH.to_owned()));
        assert_eq!(app.made().await, 4);
    })
    .await;
}

/// D12: a router that is nested sees a part of the path, and all of it counts
async fn a_nested_route_is_compared_by_its_whole_path<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let nested = Router::new().nest("/accounts/{id}", app.router());
        let refund =
            async |path: &str| send(&nested, post(path, "a").body(asked(1, Answers).into()).unwrap()).await;
        let first = refund("/accounts/1/refunds").await;
        refund("/accounts/1/refunds").await.is_replayed(&first);
        let other = refund("/accounts/2/refunds").await;
        assert_eq!(other.problem(), (409, MISMATCH.to_owned()));
        assert_eq!(other.json()["instance"], "/accounts/2/refunds");
    })
    .await;
}

/// D15
async fn a_key_may_be_left_to_the_caller<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Tx, |layer| layer.optional()).await;
    for _ in 0..2 {
        assert_eq!(app.refund("", 1, Answers).await.says(), Some("ignored"));
    }
    assert_eq!(app.refund("", 1, Does::Declines).await.status.as_u16(), 402);
    let first = app.refund("a", 1, Answers).await;
    app.refund("a", 1, Answers).await.is_replayed(&first);
    assert_eq!(app.made().await, 3);
    let leased = Refunds::<DB>::with(Strategy::Lease, |layer| layer.optional()).await;
    assert_eq!(leased.refund("", 1, Answers).await.status.as_u16(), 400);
}

/// R17: a handler must not trust a caller's copy of the layer's headers.
async fn response_headers_are_removed_from_requests<DB: TestDb>() {
    let app = Refunds::<DB>::new(Strategy::Tx).await;
    let request = post("/refunds", "a").header("idempotency-status", "replayed");
    let got = app.send(request.body(asked(1, Answers).into()).unwrap()).await;
    assert_eq!(got.headers.get_all("idempotency-status").iter().collect::<Vec<_>>(), ["stored"]);
}

/// R39
async fn what_a_request_publishes_belongs_to_its_trace<DB: TestDb>() {
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    with_both::<DB>(identity, async |app, _| {
        let traced = post("/refunds", "a").header("traceparent", trace).header("tracestate", "vendor=1");
        app.send(traced.body(asked(1, Answers).into()).unwrap()).await;
        let made = app.published("refunds.made", 10).await.unwrap().remove(0);
        assert_eq!((made.traceparent.as_deref(), made.tracestate()), (Some(trace), Some("vendor=1")));
    })
    .await;
}

cases! {
    all: [
        what_a_request_publishes_belongs_to_its_trace,
        t02_the_same_key_twice_is_one_refund,
        t03_another_key_is_another_refund,
        t04_another_amount_with_the_key_is_a_mismatch,
        who_asks_the_same_meanwhile_waits_or_comes_again,
        t05_the_payload_counts_and_not_its_spelling,
        t06_a_key_is_asked_for_and_must_be_one,
        t06_a_quoted_key_is_the_key,
        t07_t08_keys_are_of_a_tenant_a_principal_and_a_route,
        a_key_may_be_left_to_the_caller,
        a_nested_route_is_compared_by_its_whole_path,
        response_headers_are_removed_from_requests,
    ]
    postgres: [t04_another_amount_is_a_mismatch_in_another_process_too]
}
