//! What routes may be told about their keys.
use super::shop::{Refunds, STRATEGIES, Strategy, asked, post};
use crate::consumer::{
    logs::Lines,
    support::{TestDb, cases},
};
use integration_tests::refunds::Does::{self, *};
use std::sync::atomic::Ordering::SeqCst;
use twinbox::http::MismatchStatus;

/// D1
async fn t04_a_mismatch_has_the_status_that_the_route_says<DB: TestDb>() {
    for strategy in STRATEGIES {
        for (status, code) in [
            (MismatchStatus::Conflict, 409),
            (MismatchStatus::UnprocessableContent, 422),
            (MismatchStatus::BadRequest, 400),
        ] {
            let app = Refunds::<DB>::with(strategy, |layer| layer.mismatch_status(status)).await;
            app.refund("a", 1, Answers).await;
            let problem = (code, "CONFLICT.idempotency.payload_mismatch".to_owned());
            assert_eq!(app.refund("a", 2, Answers).await.problem(), problem);
            assert_eq!(app.made().await, 1);
        }
    }
}

/// REQUIREMENTS §4.12
async fn a_caller_has_so_many_keys<DB: TestDb>() {
    for strategy in STRATEGIES {
        let app = Refunds::<DB>::with(strategy, |layer| layer.live_keys_max(2)).await;
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
    }
}

async fn no_key_need_be_kept<DB: TestDb>() {
    for strategy in STRATEGIES {
        let app = Refunds::<DB>::with(strategy, |layer| layer.keep_no_keys()).await;
        let first = app.refund("refund:ch_9ab", 1, Answers).await;
        app.refund("refund:ch_9ab", 1, Answers).await.is_replayed(&first);
        let without = format!("SELECT count(*) FROM {} WHERE key = ''", DB::table_of("idempotency_keys"));
        assert_eq!(app.number(without).await, 1);
    }
}

/// D9: the last failure is the answer, and it is in the log
async fn what_fails_as_often_as_it_may_is_not_tried_again<DB: TestDb>() {
    let (lines, _recorded) = Lines::record();
    let app = Refunds::<DB>::with(Strategy::Lease, |layer| layer.attempts_max(3)).await;
    for (does, code) in [(Fails, "TRANSIENT.internal"), (Panics, "INTERNAL.idempotency.attempts_exhausted")] {
        app.shop.has_funds.store(false, SeqCst);
        app.shop.ran.store(0, SeqCst);
        let key = format!("{does:?}");
        let tries = async |said: Option<&str>| {
            let got = app.refund(&key, 1, does).await;
            assert_eq!((got.status.as_u16(), got.says()), (500, said), "{does:?}");
            got
        };
        tries(None).await;
        tries(None).await;
        let last = tries(Some("stored")).await;
        assert_eq!(last.json()["error_code"], code);
        app.shop.has_funds.store(true, SeqCst);
        assert_eq!(tries(Some("replayed")).await.body, last.body);
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (0, 3));
    }
    let failed = format!("SELECT count(*) FROM {} WHERE status = 'failed'", DB::table_of("idempotency_keys"));
    assert_eq!(app.number(failed).await, 2);
    assert_eq!(lines.saying("failed as often as it may").len(), 2);
    // A refusal is no failure, however often.
    app.shop.has_funds.store(false, SeqCst);
    for _ in 0..4 {
        assert_eq!(app.refund("refused", 1, Declines).await.status.as_u16(), 402);
    }
}

/// D9: whoever dies says nothing
async fn what_dies_as_often_as_it_may_is_not_tried_again<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Lease, |layer| layer.attempts_max(2)).await;
    app.refund("a", 1, Does::Fails).await;
    let died = format!("UPDATE {} SET attempts = 2", DB::table_of("idempotency_keys"));
    sqlx::raw_sql(sqlx::AssertSqlSafe(died))
        .execute(&mut *app.pool().acquire().await.unwrap())
        .await
        .unwrap();
    app.shop.has_funds.store(true, SeqCst);
    let last = app.refund("a", 1, Does::Fails).await;
    assert_eq!(last.problem(), (500, "INTERNAL.idempotency.attempts_exhausted".to_owned()));
    app.refund("a", 1, Does::Fails).await.is_replayed(&last);
    assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (0, 1));
}

cases! {
    both: [
        t04_a_mismatch_has_the_status_that_the_route_says,
        a_caller_has_so_many_keys,
        no_key_need_be_kept,
        what_fails_as_often_as_it_may_is_not_tried_again,
        what_dies_as_often_as_it_may_is_not_tried_again,
    ]
}
