//! Requests among failures of callers, processes, connections and clocks.
use super::both::with_both;
use crate::support::{
    cases::cases,
    database::SERVICE,
    databases::{PgPoolOptions, Postgres},
    operations::{asked as asked_for, key, open, policy},
    postgres::{postgres_address, through},
    refunds::{Refunds, STRATEGIES, Strategy, asked, post, send},
    stores::{TestDb, World},
    wait::{eventually, in_time, signal},
};
use axum::{body::Body, http::Request};
use integration_tests::refunds::Does::{Answers, PanicsFirst, Waits};
use sqlx::AssertSqlSafe;
use std::{convert::identity, sync::atomic::Ordering::SeqCst, time::Duration};
use tower::ServiceExt as _;
use twinbox::{Store, http::Idempotency, operation::OperationStart};
use twinbox_testkit::proxy::Proxy;

/// t11: R49. Whoever is at it fails, and one of those who waited succeeds.
async fn t11_of_many_who_wait_for_one_that_fails_one_succeeds<DB: TestDb>() {
    let set = |layer: Idempotency<DB>| layer.wait(Duration::from_secs(300));
    with_both::<DB>(set, async |app, _| {
        let body = || {
            post("/refunds", "a")
                .header("x-request-timeout", "600s")
                .body(asked(1, PanicsFirst).into())
                .unwrap()
        };
        let all = futures::future::join_all((0..8).map(|_| app.send(body()))).await;
        let statuses = Vec::from_iter(all.iter().map(|got| (got.status.as_u16(), got.says())));
        let count =
            |wanted: &[(u16, Option<&str>)]| statuses.iter().filter(|got| wanted.contains(got)).count();
        assert_eq!((count(&[(500, None)]), count(&[(201, Some("stored"))])), (1, 1), "{statuses:?}");
        assert_eq!(count(&[(201, Some("replayed")), (409, None)]), 6, "{statuses:?}");
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (1, 2));
    })
    .await;
}

/// t14: R15. A caller that leaves does not take the request with it.
async fn t14_a_caller_that_leaves_finds_its_answer_later<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let request = || post("/refunds", "a").body(asked(1, Waits).into()).unwrap();
        let leaving = tokio::spawn(app.router().oneshot(request()));
        app.shop.waiting.acquire().await.unwrap().forget();
        leaving.abort();
        assert!(leaving.await.unwrap_err().is_cancelled());
        app.shop.may_go_on.add_permits(1);
        let found = eventually(async || {
            let got = app.send(request()).await;
            (got.status.as_u16() != 409).then_some(got)
        })
        .await;
        assert_eq!((found.says(), found.status.as_u16()), (Some("replayed"), 201));
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (1, 1));
    })
    .await;
}

/// t14: and a server that stops waits for it.
async fn t14_a_drain_waits_for_who_is_at_it<DB: TestDb>() {
    for strategy in STRATEGIES {
        let mut layer = None;
        let app = Refunds::<DB>::with(strategy, |one| layer.insert(one).clone()).await;
        let layer = layer.unwrap();
        let request = post("/refunds", "a").body(Body::from(asked(1, Waits))).unwrap();
        let leaving = tokio::spawn(app.router().oneshot(request));
        app.shop.waiting.acquire().await.unwrap().forget();
        leaving.abort();
        let mut drained = std::pin::pin!(layer.drain());
        assert!(futures::poll!(&mut drained).is_pending());
        assert_eq!(app.made().await, 0);
        app.shop.may_go_on.add_permits(1);
        in_time(drained).await;
        assert_eq!(app.made().await, 1);
    }
}

/// t14: before its handler runs it leaves nothing behind.
async fn t14_a_caller_that_leaves_early_leaves_nothing<DB: TestDb>() {
    for strategy in STRATEGIES {
        let app = Refunds::<DB>::new(strategy).await;
        for millis in 0..20 {
            let request = post("/refunds", "a").body(Body::from(asked(1, Answers))).unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(millis), app.router().oneshot(request)).await;
        }
        let last = eventually(async || {
            let got = app.refund("a", 1, Answers).await;
            (got.status.as_u16() != 409).then_some(got)
        })
        .await;
        assert_eq!(last.status.as_u16(), 201);
        assert_eq!(app.made().await, 1);
    }
}

/// t16: R42. Who stood still for longer than its lease writes nothing.
async fn t16_who_was_too_slow_is_answered_with_what_the_other_did<DB: TestDb>() {
    let app = Refunds::<DB>::new(Strategy::Lease).await;
    let other = Refunds::another(&app.world, Strategy::Lease, |layer| layer, app.shop.clone());
    let request = || post("/refunds", "a").body(asked(1, Waits).into()).unwrap();
    let (slow, quick) = tokio::join!(app.send(request()), async {
        app.shop.waiting.acquire().await.unwrap().forget();
        let runs_out = format!("UPDATE {} SET lease_until = created_at", DB::table_of("idempotency_keys"));
        let mut conn = app.pool().acquire().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(runs_out)).execute(&mut *conn).await.unwrap();
        drop(conn);
        let (quick, ()) = tokio::join!(send(&other, request()), async {
            app.shop.waiting.acquire().await.unwrap().forget();
            app.shop.may_go_on.add_permits(2);
        });
        quick
    });
    assert_eq!(quick.says(), Some("stored"));
    match slow.status.as_u16() {
        409 => assert_eq!(slow.problem().1, "CONFLICT.idempotency.in_progress"),
        _ => slow.is_replayed(&quick),
    }
    app.send(request()).await.is_replayed(&quick);
    assert_eq!(app.made().await, 1);
    assert_eq!(app.shop.calls.load(SeqCst), 1, "the recovery point tells that the vendor was called");
}

/// t19: fail closed
async fn t19_without_the_store_nothing_runs<DB: TestDb>() {
    for strategy in STRATEGIES {
        let app = Refunds::<DB>::with(strategy, |layer| layer.optional()).await;
        app.close().await;
        for key in ["a", ""] {
            if strategy == Strategy::Lease && key.is_empty() {
                continue;
            }
            let got = app.refund(key, 1, Answers).await;
            assert_eq!(got.problem(), (503, "DEPENDENCY.unavailable".to_owned()));
        }
        assert_eq!(app.shop.ran.load(SeqCst), 0);
    }
}

/// t13: R15. Whether it committed is asked again.
async fn t13_the_answer_to_commit_is_lost() {
    for strategy in STRATEGIES {
        let app = Refunds::<Postgres>::new(strategy).await;
        let proxy = Proxy::start(postgres_address(app.url())).await.unwrap();
        let url = through(app.url(), &proxy);
        let store = Store::new(PgPoolOptions::new().connect(&url).await.unwrap(), SERVICE).unwrap();
        let behind = Refunds::another(&store, strategy, |layer| layer, app.shop.clone());
        let request = || post("/refunds", "a").body(asked(1, Waits).into()).unwrap();
        let (first, ()) = tokio::join!(send(&behind, request()), async {
            app.shop.waiting.acquire().await.unwrap().forget();
            proxy.lose_answer_to(b"COMMIT\0"); // and not BEGIN … READ COMMITTED
            app.shop.may_go_on.add_permits(1);
        });
        assert!(proxy.has_lost());
        assert_eq!((first.status.as_u16(), first.says()), (201, Some("stored")), "{strategy:?} {first:?}");
        send(&behind, request()).await.is_replayed(&first);
        assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (1, 1));
    }
}

/// t13: the commit did not come through, and the connection is gone.
async fn t13_the_connection_is_cut_before_the_commit() {
    for strategy in STRATEGIES {
        let app = Refunds::<Postgres>::new(strategy).await;
        let proxy = Proxy::start(postgres_address(app.url())).await.unwrap();
        let url = through(app.url(), &proxy);
        let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(10)).connect(&url).await.unwrap();
        let store = Store::new(pool, SERVICE).unwrap();
        let behind = Refunds::another(&store, strategy, |layer| layer, app.shop.clone());
        let request = || post("/refunds", "a").body(asked(1, Waits).into()).unwrap();
        let (first, ()) = tokio::join!(send(&behind, request()), async {
            app.shop.waiting.acquire().await.unwrap().forget();
            proxy.cut();
            app.shop.may_go_on.add_permits(1);
        });
        assert_eq!(first.status.as_u16() / 100, 5, "{first:?}");
        proxy.restore();
        if strategy == Strategy::Lease {
            let runs_out = "UPDATE twinbox.idempotency_keys SET lease_until = created_at";
            sqlx::query(runs_out).execute(app.pool()).await.unwrap();
        }
        app.shop.may_go_on.add_permits(1);
        let again = eventually(async || {
            let got = send(&behind, request()).await;
            (got.status.as_u16() == 201).then_some(got)
        })
        .await;
        assert_eq!((again.says(), app.made().await), (Some("stored"), 1));
    }
}

/// t13: its other side is gone without a word. Neither the request nor its key waits for it for long, and no
/// other request at all.
async fn t13_the_connection_falls_silent_before_the_commit() {
    futures::future::join_all(STRATEGIES.map(async |strategy| {
        let app = Refunds::<Postgres>::new(strategy).await;
        let proxy = Proxy::start(postgres_address(app.url())).await.unwrap();
        let pool = PgPoolOptions::new().acquire_timeout(Duration::from_secs(10));
        let pool = pool.connect(&through(app.url(), &proxy)).await.unwrap();
        let store = Store::new(pool, SERVICE).unwrap();
        let set = |layer: Idempotency<Postgres>| layer.handler_timeout(Duration::from_secs(5));
        let behind = Refunds::another(&store, strategy, set, app.shop.clone());
        let request = |key, does| post("/refunds", key).body(asked(1, does).into()).unwrap();
        let (router, waiting) = (behind.clone(), request("a", Waits));
        let first = tokio::spawn(async move { send(&router, waiting).await });
        app.shop.waiting.acquire().await.unwrap().forget();
        proxy.freeze_open();
        app.shop.may_go_on.add_permits(1);
        let other = eventually(async || {
            let got = send(&behind, request("b", Answers)).await;
            (got.status.as_u16() == 201).then_some(got)
        });
        assert_eq!(other.await.says(), Some("stored"));
        let first = in_time(first).await.unwrap();
        // Under a lease the handler has no connection while it waits, so it may get one that works.
        let answered = strategy == Strategy::Lease && first.status == 201;
        assert!(answered || first.status.is_server_error(), "{strategy:?} {first:?}");
        if strategy == Strategy::Lease {
            let runs_out =
                "UPDATE twinbox.idempotency_keys SET lease_until = created_at WHERE owner IS NOT NULL";
            sqlx::query(runs_out).execute(app.pool()).await.unwrap();
        }
        app.shop.may_go_on.add_permits(1);
        let again = eventually(async || {
            let got = send(&behind, request("a", Waits)).await;
            (got.status.as_u16() == 201).then_some(got)
        });
        let says = if answered { "replayed" } else { "stored" };
        assert_eq!((again.await.says(), app.made().await), (Some(says), 2));
    }))
    .await;
}

/// t17: time is the database's. That a process's own clock is asked by nothing: there is none to ask.
async fn t17_answers_expire_by_the_clock_of_the_database<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Tx, |layer| layer.retention(Duration::from_secs(3600))).await;
    let first = app.refund("a", 1, Answers).await;
    let table = DB::table_of("idempotency_keys");
    let (early, late) = (3599, 1);
    let passes = async |seconds: i64| {
        let (created, expires) = (DB::earlier("created_at", seconds), DB::earlier("expires_at", seconds));
        let passes = format!("UPDATE {table} SET created_at = {created}, expires_at = {expires}");
        sqlx::raw_sql(AssertSqlSafe(passes))
            .execute(&mut *app.pool().acquire().await.unwrap())
            .await
            .unwrap();
    };
    passes(early).await;
    app.refund("a", 1, Answers).await.is_replayed(&first);
    passes(late).await;
    let again = app.refund("a", 1, Answers).await;
    // The id of the refund follows from the key, so what is made is what was made.
    assert_eq!((again.says(), again.json()["id"].clone()), (Some("stored"), first.json()["id"].clone()));
    assert_eq!((app.made().await, app.shop.ran.load(SeqCst)), (1, 2));
}

/// D3: those who wait take no connection from others.
async fn t09_many_who_wait_leave_the_pool_to_others() {
    let app = Refunds::<Postgres>::new(Strategy::Tx).await;
    let pool = PgPoolOptions::new().max_connections(3).connect(app.url()).await.unwrap();
    let store = Store::new(pool, SERVICE).unwrap();
    let app =
        Refunds { router: Refunds::another(&store, Strategy::Tx, |layer| layer, app.shop.clone()), ..app };
    let body =
        || post("/refunds", "a").header("x-request-timeout", "600s").body(asked(1, Waits).into()).unwrap();
    let (all, got) = tokio::join!(futures::future::join_all((0..32).map(|_| app.send(body()))), async {
        app.shop.waiting.acquire().await.unwrap().forget();
        let got = app.refund("b", 2, Answers).await;
        let mine = app.send(Request::get("/refunds").body("".into()).unwrap()).await;
        app.shop.may_go_on.add_permits(1);
        (got, mine)
    });
    assert_eq!((got.0.says(), &*got.1.body), (Some("stored"), &b"here"[..]));
    let stored = all.iter().find(|got| got.says() == Some("stored")).unwrap();
    for got in all.iter().filter(|got| got.says() != Some("stored")) {
        match got.status.as_u16() {
            409 => assert_eq!(got.header("retry-after"), Some("1")),
            _ => got.is_replayed(stored),
        }
    }
    assert_eq!(app.made().await, 2);
}

/// Advisory locks of this database.
async fn locks(world: &World<Postgres>, body: &str) -> Vec<i64> {
    let operation = open(world, &key("a"), body).await;
    let locks = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE locktype = 'advisory' \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let locks = sqlx::query_scalar(locks).fetch_all(world.pool()).await.unwrap();
    operation.abandon().await;
    locks
}

/// A server gives the locks of a transaction up one by one, and is interrupted between two: who asks the same
/// has the first lock already.
async fn a_key_that_is_being_let_go_is_no_mismatch() {
    let world = World::<Postgres>::new().await;
    let (one, other) = (locks(&world, "1").await, locks(&world, "2").await);
    let both = Vec::from_iter(one.iter().filter(|lock| other.contains(lock)));
    let [of_key] = both[..] else { panic!("{one:?} {other:?}") };
    let mut lets_go = world.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(of_key).execute(&mut *lets_go).await.unwrap();
    let (key, request, policy) = (key("a"), asked_for("1"), policy(Duration::ZERO));
    let keys = world.idempotency_keys();
    let mut beginning = std::pin::pin!(keys.begin(&key, &request, &policy));
    tokio::select! {
        () = signal("operation.looks_again") => {}
        begun = &mut beginning => panic!("{:?}", begun.map(|_| "it does not look again")),
    }
    lets_go.rollback().await.unwrap();
    assert!(matches!(beginning.await.unwrap(), OperationStart::Open(_)));
}

cases! {
    all: [
        t11_of_many_who_wait_for_one_that_fails_one_succeeds,
        t14_a_caller_that_leaves_finds_its_answer_later,
        t14_a_caller_that_leaves_early_leaves_nothing,
        t14_a_drain_waits_for_who_is_at_it,
        t16_who_was_too_slow_is_answered_with_what_the_other_did,
        t17_answers_expire_by_the_clock_of_the_database,
        t19_without_the_store_nothing_runs,
    ]
    postgres: [
        a_key_that_is_being_let_go_is_no_mismatch,
        t09_many_who_wait_leave_the_pool_to_others,
        t13_the_answer_to_commit_is_lost,
        t13_the_connection_falls_silent_before_the_commit,
        t13_the_connection_is_cut_before_the_commit,
    ]
}
