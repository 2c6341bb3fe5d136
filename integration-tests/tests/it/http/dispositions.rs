//! What becomes of what a handler wrote, by what it answers.
use super::both::with_both;
use crate::support::{
    cases::cases,
    refunds::{Refunds, STRATEGIES, Strategy, asked, post, send},
    stores::{TestDb, sql},
};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderName, Response, StatusCode},
    middleware::{Next, from_fn},
    response::IntoResponse as _,
};
use integration_tests::refunds::Does::{self, *};
use std::{
    convert::identity,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use twinbox::http::{Idempotency, ResultRef};

/// t18: R50, R60, D7, D10
async fn t18_what_is_refused_or_fails_leaves_its_key_free<DB: TestDb>() {
    with_both::<DB>(identity, async |app, strategy| {
        for (does, status) in [(Declines, 402), (Fails, 500), (Panics, 500)] {
            app.shop.has_funds.store(false, SeqCst);
            let key = format!("{does:?}");
            for _ in 0..2 {
                let got = app.refund(&key, 1, does).await;
                assert_eq!((got.status.as_u16(), got.says()), (status, None), "{does:?}");
            }
            app.shop.has_funds.store(true, SeqCst);
            let made = app.refund(&key, 1, does).await;
            assert_eq!(made.status.as_u16(), 201, "{strategy:?} {does:?}");
            app.refund(&key, 1, does).await.is_replayed(&made);
        }
        assert_eq!(app.made().await, 3);
        // A vendor is called again by none of them: how far it had come was saved.
        assert_eq!(app.shop.calls.load(SeqCst), if strategy == Strategy::Lease { 3 } else { 0 });
    })
    .await;
}

/// t15
async fn t15_a_panic_leaves_its_key_free<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let failed = app.refund("a", 1, Panics).await;
        assert_eq!(failed.problem(), (500, "TRANSIENT.internal".to_owned()));
        assert_eq!(app.made().await, 0);
        app.shop.has_funds.store(true, SeqCst);
        assert_eq!(app.refund("a", 1, Panics).await.says(), Some("stored"));
    })
    .await;
}

/// R61: whoever mends its request may send it again with the key.
async fn what_an_extractor_refuses_is_not_kept<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.store_errors();
    with_both::<DB>(set, async |app, strategy| {
        for (body, status) in [("{\"amount\":\"much\"}", 422), ("{", 400)] {
            let refused = app.send(post("/refunds", "a").body(body.into()).unwrap()).await;
            assert_eq!((refused.status.as_u16(), refused.says()), (status, None), "{strategy:?} {body}");
        }
        assert_eq!(app.rows("idempotency_keys").await, 0);
        assert_eq!(app.refund("a", 1, Does::Answers).await.says(), Some("stored"));
        assert_eq!(app.refund("b", 1, Declines).await.says(), Some("stored"), "the handler decides that");
    })
    .await;
}

/// t18: D7, D8, R61
async fn t18_errors_that_are_final_are_given_again<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.store_errors();
    with_both::<DB>(set, async |app, _| {
        let first = app.refund("a", 1, Declines).await;
        assert_eq!((first.status.as_u16(), first.says()), (402, Some("stored")));
        app.shop.has_funds.store(true, SeqCst);
        app.refund("a", 1, Declines).await.is_replayed(&first);
        assert_eq!(app.refund("a", 2, Declines).await.status.as_u16(), 409);
        let failed = "SELECT count(*) FROM {idempotency_keys} WHERE status = 'failed' AND http_code = 402";
        let failed = failed.replace("{idempotency_keys}", &DB::table_of("idempotency_keys"));
        assert_eq!((app.made().await, app.number(failed).await), (0, 1));
        // A 500 is never kept.
        app.shop.has_funds.store(false, SeqCst);
        assert_eq!(app.refund("b", 1, Fails).await.status.as_u16(), 500);
        app.shop.has_funds.store(true, SeqCst);
        assert_eq!(app.refund("b", 1, Fails).await.status.as_u16(), 201);
    })
    .await;
}

/// D7: a single answer says what becomes of it
async fn t18_an_answer_may_say_that_it_is_final<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let first = app.refund("a", 1, DeclinesForGood).await;
        assert_eq!((first.status.as_u16(), &*first.body), (402, &b"never"[..]));
        app.refund("a", 1, DeclinesForGood).await.is_replayed(&first);
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (0, 1));
    })
    .await;
}

/// t20: D13
async fn t20_whatever_an_answer_is_it_is_never_made_again<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let does = [
            AnswersMuch,
            AnswersMuchWithoutReference,
            Streams,
            AnswersWithTrailers,
            AnswersNothing,
            Redirects,
            SetsCookies,
        ];
        let mut answers = Vec::new();
        for does in does {
            let first = app.refund(&format!("{does:?}"), 1, does).await;
            let again = app.refund(&format!("{does:?}"), 1, does).await;
            assert_eq!((first.says(), again.says()), (Some("stored"), Some("replayed")), "{does:?}");
            assert_eq!(first.has_trailers, does == AnswersWithTrailers, "{does:?}");
            assert_eq!(first.status, again.status);
            assert_eq!(first.header("location"), again.header("location"));
            answers.push((first, again));
        }
        for (first, again) in &answers[..4] {
            assert!(!first.body.is_empty() && again.body.is_empty());
            assert_eq!(
                (again.header("idempotency-body"), again.header("content-type")),
                (Some("omitted"), None)
            );
        }
        for (first, again) in &answers[4..] {
            assert_eq!((&first.body, again.header("idempotency-body")), (&again.body, None));
        }
        let (first, again) = &answers[6];
        assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2);
        assert_eq!(again.headers.get_all("set-cookie").iter().count(), 0);
        assert_eq!(again.headers.get_all("link"), first.headers.get_all("link"));
        let all = i64::try_from(does.len()).unwrap();
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (all, does.len()));
    })
    .await;
}

/// D13: a body that was not kept is made again from what it is called
async fn t20_what_was_too_large_is_rendered_again<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Tx, |layer| {
        layer.render(async |ResultRef(id), asking| {
            (StatusCode::OK, [("content-type", "text/html")], format!("{id} {}", asking.uri.path()))
                .into_response()
        })
    })
    .await;
    let first = app.refund("a", 1, AnswersMuch).await;
    let again = app.refund("a", 1, AnswersMuch).await;
    let id = first.header("location").unwrap().strip_prefix("/refunds/").unwrap();
    assert_eq!((again.says(), again.status.as_u16(), first.status.as_u16()), (Some("replayed"), 201, 201));
    assert_eq!(again.header("location"), first.header("location"), "it was kept, and is not rendered");
    assert_eq!(again.header("content-type"), Some("text/html"), "that of what is rendered");
    assert_eq!(again.body, format!("{id} /refunds").into_bytes());
    assert_eq!(app.shop.ran.load(SeqCst), 1);
}

/// D13: no body of a route with secrets is kept
async fn t20_a_route_may_keep_no_bodies<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Tx, |layer| layer.omit_bodies()).await;
    app.refund("a", 1, Answers).await;
    let again = app.refund("a", 1, Answers).await;
    assert_eq!((again.header("idempotency-body"), again.status.as_u16()), (Some("omitted"), 201));
    let kept =
        format!("SELECT count(*) FROM {} WHERE response_body IS NOT NULL", DB::table_of("idempotency_keys"));
    assert_eq!(app.number(kept).await, 0);
}

/// Whoever can write the row sets no cookie of a caller, and an earlier build may have stored more.
async fn a_row_gives_out_no_header_that_the_route_does_not_store<DB: TestDb>() {
    let stores = |layer: Idempotency<DB>| layer.store_header(HeaderName::from_static("x-payment"));
    let app = Refunds::<DB>::with(Strategy::Tx, stores).await;
    let first = app.refund("a", 1, Answers).await;
    let legit = [("location", "/refunds/7"), ("x-payment", "7")];
    let forged = [
        ("set-cookie", "session=eve"),
        ("authorization", "Bearer eve"),
        ("www-authenticate", "Basic"),
        ("proxy-authenticate", "Basic"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("x-accel-redirect", "/etc/passwd"),
        ("content-length", "1"),
    ];
    let mut row = Vec::<u8>::new();
    for part in legit.iter().chain(&forged).flat_map(|(name, value)| [name, value]) {
        row.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        row.extend_from_slice(part.as_bytes());
    }
    let table = DB::table_of("idempotency_keys");
    let forge = sql::<DB>(&format!("UPDATE {table} SET response_headers = $1"));
    let mut conn = app.pool().acquire().await.unwrap();
    sqlx::query::<DB>(forge).bind(row).execute(&mut *conn).await.unwrap();
    drop(conn);
    let again = app.refund("a", 1, Answers).await;
    assert_eq!((again.says(), &again.body), (Some("replayed"), &first.body));
    for (name, value) in legit {
        assert_eq!(again.header(name), Some(value));
    }
    for (name, value) in forged {
        assert_ne!(again.header(name), Some(value));
    }
}

/// R17: what is written outside of the key's transaction
async fn a_route_that_never_uses_its_transaction_fails<DB: TestDb>() {
    with_both::<DB>(identity, async |app, strategy| {
        let send = async |router: &Router| send(router, post("/unused", "a").body("".into()).unwrap()).await;
        for path in ["/unused", "/taken", "/unused", "/taken"] {
            let got = app.send(post(path, "a").body("".into()).unwrap()).await;
            assert_eq!(got.problem(), (500, "INTERNAL.idempotency.not_used".to_owned()), "{path}");
        }
        let kept =
            Refunds::another(&app.world, strategy, |layer| layer.refuse_unused(false), app.shop.clone());
        let first = send(&kept).await;
        send(&kept).await.is_replayed(&first);
    })
    .await;
}

/// R5, R51: what a handler does to its transaction is no success
async fn a_handler_that_keeps_or_ends_its_transaction_fails<DB: TestDb>() {
    for strategy in STRATEGIES {
        let app = Refunds::<DB>::new(strategy).await;
        for _ in 0..2 {
            // The second is not told that the first is running: a commit that failed lets its key go.
            let lost = app.refund("b", 1, LosesItsTransaction).await;
            let code = match DB::CAPABILITIES.refuses_commit {
                true => "TRANSIENT.internal",
                false => "INTERNAL.idempotency.unknown_outcome",
            };
            assert_eq!(lost.problem(), (500, code.to_owned()));
        }
        let kept = app.refund("a", 1, KeepsItsTransaction).await;
        assert_eq!(kept.status.as_u16(), 500);
    }
}

/// t22: an outer layer decides each time who may
async fn t22_who_may_no_longer_ask_gets_no_stored_answer<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let may = Arc::new(AtomicBool::new(true));
        let allowed = may.clone();
        let authorized = app.router().layer(from_fn(move |request: Request, next: Next| {
            let may = allowed.load(SeqCst);
            async move { if may { next.run(request).await } else { forbidden() } }
        }));
        let refund = || post("/refunds", "a").body(asked(1, Does::Answers).into()).unwrap();
        let first = send(&authorized, refund()).await;
        send(&authorized, refund()).await.is_replayed(&first);
        may.store(false, SeqCst);
        assert_eq!(send(&authorized, refund()).await.status.as_u16(), 403);
    })
    .await;
}

fn forbidden() -> Response<Body> {
    StatusCode::FORBIDDEN.into_response()
}

cases! {
    all: [
        t15_a_panic_leaves_its_key_free,
        t18_what_is_refused_or_fails_leaves_its_key_free,
        t18_errors_that_are_final_are_given_again,
        what_an_extractor_refuses_is_not_kept,
        t18_an_answer_may_say_that_it_is_final,
        t20_whatever_an_answer_is_it_is_never_made_again,
        t20_what_was_too_large_is_rendered_again,
        t20_a_route_may_keep_no_bodies,
        a_row_gives_out_no_header_that_the_route_does_not_store,
        a_route_that_never_uses_its_transaction_fails,
        t22_who_may_no_longer_ask_gets_no_stored_answer,
        a_handler_that_keeps_or_ends_its_transaction_fails,
    ]
}
