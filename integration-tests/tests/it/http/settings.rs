//! What routes may be told about their keys.
use super::both::with_both;
use crate::support::{
    cases::cases,
    databases::Postgres,
    logged::Lines,
    refunds::{Refunds, Strategy, asked, post, send},
    stores::TestDb,
};
use integration_tests::refunds::Does::*;
use sqlx::AssertSqlSafe;
use std::{convert::identity, sync::atomic::Ordering::SeqCst};
use twinbox::http::{CodeStyle, Idempotency, MismatchStatus};

/// D1
async fn t04_a_mismatch_has_the_status_that_the_route_says<DB: TestDb>() {
    with_both::<DB>(identity, async |app, strategy| {
        for (made, status, code) in [
            (1, MismatchStatus::Conflict, 409_u16),
            (2, MismatchStatus::UnprocessableContent, 422),
            (3, MismatchStatus::BadRequest, 400),
        ] {
            let set = |layer: Idempotency<DB>| layer.mismatch_status(status);
            let router = Refunds::another(&app.world, strategy, set, app.shop.clone());
            let refund = async |amount| {
                let request = post("/refunds", &code.to_string()).body(asked(amount, Answers).into());
                send(&router, request.unwrap()).await
            };
            refund(1).await;
            let problem = (code, "CONFLICT.idempotency.payload_mismatch".to_owned());
            assert_eq!(refund(2).await.problem(), problem);
            assert_eq!(app.made().await, made);
        }
    })
    .await;
}

/// R17
async fn a_caller_has_so_many_keys<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.live_keys_max(2);
    with_both::<DB>(set, async |app, _| {
        let of = async |user: &str, key: &str| {
            app.send(post("/refunds", key).header("x-user", user).body(asked(1, Answers).into()).unwrap())
                .await
        };
        let first = of("ada", "a").await;
        assert_eq!(of("ada", "b").await.says(), Some("stored"));
        let refused = of("ada", "c").await;
        assert_eq!(refused.problem(), (429, "RATE_LIMIT.exceeded".to_owned()));
        assert_eq!(refused.header("retry-after"), Some("60"));
        of("ada", "a").await.is_replayed(&first);
        assert_eq!(of("bob", "c").await.says(), Some("stored"));
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (3, 3));
    })
    .await;
}

async fn no_key_need_be_kept<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.omit_key_text();
    with_both::<DB>(set, async |app, _| {
        let first = app.refund("refund:ch_9ab", 1, Answers).await;
        app.refund("refund:ch_9ab", 1, Answers).await.is_replayed(&first);
        let without = format!("SELECT count(*) FROM {} WHERE key = ''", DB::table_of("idempotency_keys"));
        assert_eq!(app.number(without).await, 1);
    })
    .await;
}

const EXHAUSTED: &str = "INTERNAL.idempotency.attempts_exhausted";

/// D9: it is in the log, and whoever asks again gets the same
async fn what_fails_as_often_as_it_may_is_not_tried_again<DB: TestDb>() {
    let (lines, _recorded) = Lines::record();
    let app = Refunds::<DB>::with(Strategy::Lease, |layer| layer.attempts_max(3)).await;
    for does in [Fails, Panics] {
        app.shop.has_funds.store(false, SeqCst);
        app.shop.ran.store(0, SeqCst);
        let key = format!("{does:?}");
        let tries = async |said: Option<&str>, code: &str| {
            let got = app.refund(&key, 1, does).await;
            assert_eq!((got.problem(), got.says()), ((500, code.to_owned()), said), "{does:?}");
            got
        };
        tries(None, "TRANSIENT.internal").await;
        tries(None, "TRANSIENT.internal").await;
        let last = tries(Some("stored"), EXHAUSTED).await;
        app.shop.has_funds.store(true, SeqCst);
        assert_eq!(tries(Some("replayed"), EXHAUSTED).await.body, last.body);
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (0, 3));
    }
    let failed = format!("SELECT count(*) FROM {} WHERE status = 'failed'", DB::table_of("idempotency_keys"));
    assert_eq!(app.number(failed).await, 2);
    let alarms = || lines.saying("has used all its attempts").len();
    assert_eq!(alarms(), 2);
    // A refusal is no failure, however often, nor an answer that is kept.
    app.shop.has_funds.store(false, SeqCst);
    for _ in 0..4 {
        assert_eq!(app.refund("refused", 1, Declines).await.status.as_u16(), 402);
    }
    assert_eq!(app.refund("kept", 1, DeclinesForGood).await.says(), Some("stored"));
    assert_eq!(alarms(), 2);
}

/// D9: whoever dies says nothing
async fn what_dies_as_often_as_it_may_is_not_tried_again<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Lease, |layer| layer.attempts_max(2)).await;
    app.refund("a", 1, Fails).await;
    let died = format!("UPDATE {} SET attempts = 2", DB::table_of("idempotency_keys"));
    sqlx::raw_sql(AssertSqlSafe(died)).execute(&mut *app.pool().acquire().await.unwrap()).await.unwrap();
    app.shop.has_funds.store(true, SeqCst);
    let last = app.refund("a", 1, Fails).await;
    assert_eq!(last.problem(), (500, EXHAUSTED.to_owned()));
    app.refund("a", 1, Fails).await.is_replayed(&last);
    assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (0, 1));
}

/// D9, R61: what is nobody's fault does not condemn a request whose vendor was called
async fn an_outage_is_no_failure_of_a_request<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Lease, |layer| layer.attempts_max(1)).await;
    for _ in 0..3 {
        let away = app.refund("a", 1, LosesTheDatabase).await;
        assert_eq!(away.problem(), (503, "DEPENDENCY.unavailable".to_owned()));
    }
    app.shop.has_funds.store(true, SeqCst);
    assert_eq!(app.refund("a", 1, LosesTheDatabase).await.says(), Some("stored"));
    assert_eq!((app.made().await, app.shop.calls.load(SeqCst)), (1, 1));
}

/// The same when it is the commit that the database cannot do now.
async fn a_commit_that_collides_is_no_failure_of_a_request() {
    let app = Refunds::<Postgres>::with(Strategy::Lease, |layer| layer.attempts_max(1)).await;
    app.execute(
        "CREATE FUNCTION collide() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'collides' USING ERRCODE = '40001'; END $$;
        CREATE CONSTRAINT TRIGGER collides AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION collide()",
    )
    .await;
    for _ in 0..2 {
        assert_eq!(app.refund("a", 1, Answers).await.problem(), (503, "DEPENDENCY.unavailable".to_owned()));
    }
    app.execute("DROP TRIGGER collides ON ledger").await;
    assert_eq!(app.refund("a", 1, Answers).await.says(), Some("stored"));
    assert_eq!((app.made().await, app.shop.calls.load(SeqCst)), (1, 1));
}

/// D2: what a handler says with `ServerError`, too
async fn the_route_says_how_codes_are_spelled<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.code_style(CodeStyle::Flat);
    with_both::<DB>(set, async |app, _| {
        let failed = app.refund("a", 1, Fails).await;
        assert_eq!(failed.problem(), (500, "internal_error".to_owned()));
        assert_eq!(failed.json()["instance"], "/refunds");
        let away = app.refund("b", 1, LosesTheDatabase).await;
        assert_eq!(away.problem(), (503, "service_unavailable".to_owned()));
    })
    .await;
}

/// RFC 9457: a type that somebody can look up
async fn a_problem_leads_to_its_page<DB: TestDb>() {
    const PAGE: &str = "https://developer.example.com/idempotency";
    let set = |layer: Idempotency<DB>| layer.docs_url(PAGE);
    with_both::<DB>(set, async |app, strategy| {
        let problems = [(app.refund("", 1, Answers).await, "missing_idempotency_key")];
        let faults = [(app.refund("a", 1, Fails).await, "internal_error")];
        for (got, name) in problems.into_iter().chain(faults) {
            assert_eq!(got.json()["type"], format!("{PAGE}#{name}"));
            let link = format!("<{PAGE}#{name}>; rel=\"describedby\"");
            assert_eq!(got.header("link"), Some(&*link), "{strategy:?}");
        }
        let plain = Refunds::another(&app.world, strategy, |layer| layer, app.shop.clone());
        let without = send(&plain, post("/refunds", "").body(asked(1, Answers).into()).unwrap()).await;
        assert_eq!(without.json()["type"], "urn:twinbox:problem:missing_idempotency_key");
        assert_eq!(without.header("link"), None);
    })
    .await;
}

/// A deployment that leaves out more, or less, of what is compared
async fn a_stored_request_is_compared_by_what_was_excluded_then<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.exclude("/at").exclude("/note");
    with_both::<DB>(set, async |app, strategy| {
        let refund = async |router: &axum::Router, key: &str, body: &str| {
            send(router, post("/refunds", key).body(body.to_owned().into()).unwrap()).await
        };
        let later = Refunds::another(&app.world, strategy, |layer| layer.exclude("/note"), app.shop.clone());
        let first = refund(&app.router, "a", r#"{"amount":1,"at":1}"#).await;
        refund(&later, "a", r#"{"amount":1,"at":1}"#).await.is_replayed(&first);
        refund(&later, "a", r#"{"amount":1,"at":2,"note":"x"}"#).await.is_replayed(&first);
        assert_eq!(refund(&later, "a", r#"{"amount":2,"at":1}"#).await.status.as_u16(), 409);
        let second = refund(&later, "b", r#"{"amount":1,"at":1}"#).await;
        refund(&app.router, "b", r#"{"amount":1,"at":1}"#).await.is_replayed(&second);
        assert_eq!(refund(&app.router, "b", r#"{"amount":1,"at":2}"#).await.status.as_u16(), 409);
        assert_eq!(app.made().await, 2);
        if strategy == Strategy::Lease {
            // One that has not ended goes on.
            app.shop.has_funds.store(false, SeqCst);
            assert_eq!(refund(&app.router, "c", r#"{"amount":1,"at":1,"does":"fails"}"#).await.status, 500);
            app.shop.has_funds.store(true, SeqCst);
            let ended = refund(&later, "c", r#"{"amount":1,"at":2,"does":"fails"}"#).await;
            assert_eq!(ended.says(), Some("stored"));
        }
    })
    .await;
}

/// A name that is too long, and an answer that nobody can read: trying again does not help.
async fn what_only_the_service_can_mend_is_not_tried_again<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let long = post("/refunds", "a").header("x-user", "u".repeat(256));
        let refused = app.send(long.body(asked(1, Answers).into()).unwrap()).await;
        let problem = (500, "INTERNAL.idempotency.misconfigured".to_owned());
        assert_eq!(refused.problem(), problem);
        app.refund("a", 1, Answers).await;
        let sealed = format!("UPDATE {} SET codec_headers = '{{}}'", DB::table_of("idempotency_keys"));
        let mut conn = app.pool().acquire().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sealed)).execute(&mut *conn).await.unwrap();
        drop(conn);
        assert_eq!(app.refund("a", 1, Answers).await.problem(), problem);
        assert_eq!(app.refund("a", 2, Answers).await.status.as_u16(), 409);
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (1, 1));
    })
    .await;
}

cases! {
    all: [
        t04_a_mismatch_has_the_status_that_the_route_says,
        a_caller_has_so_many_keys,
        no_key_need_be_kept,
        what_fails_as_often_as_it_may_is_not_tried_again,
        what_dies_as_often_as_it_may_is_not_tried_again,
        an_outage_is_no_failure_of_a_request,
        the_route_says_how_codes_are_spelled,
        a_problem_leads_to_its_page,
        a_stored_request_is_compared_by_what_was_excluded_then,
        what_only_the_service_can_mend_is_not_tried_again,
    ]
    postgres: [a_commit_that_collides_is_no_failure_of_a_request]
}
