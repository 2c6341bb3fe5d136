//! Requests that called somebody outside and never ended, and handlers that end half-way.
use crate::support::{
    cases::cases,
    operations::{LONG, end, expire, key, lease, open_lease as open, runs_out},
    refunds::{Refunds, Strategy, post, send},
    stores::{TestDb, World, effect},
    tool::Tool,
};
use axum::{Router, extract::State, http::StatusCode, routing};
use integration_tests::refunds::Does::{DeclinesForGood, Fails};
use sqlx::AssertSqlSafe;
use std::{sync::atomic::Ordering::SeqCst, time::Duration};
use twinbox::{
    http::{Caller, IdemLease, Idempotency, ServerError},
    operation::OperationStart,
};

/// It called somebody, and died: nothing forgets that.
async fn what_may_have_been_charged_is_never_purged<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut saved = open(&world, &key("saved"), "1").await;
    saved.save("charged ch_1").await.unwrap();
    let called = open(&world, &key("called"), "1").await;
    called.token_within("charge", 0, Duration::MAX).await.unwrap();
    let idle = open(&world, &key("idle"), "1").await;
    drop((saved, called, idle));
    runs_out(&world).await;
    expire(&world).await;
    assert_eq!(world.idempotency_keys().purge().await.unwrap(), 1);
    assert_eq!(world.rows("idempotency_keys").await, 2);
    // Nor by whoever uses the key next.
    for name in ["saved", "called"] {
        assert!(matches!(lease(&world, &key(name), "2").await, OperationStart::Mismatch));
    }
    let again = open(&world, &key("saved"), "1").await;
    assert_eq!((again.attempt(), again.recovery_point()), (2, Some("charged ch_1")));
    end(&again, 1).await;
    expire(&world).await;
    assert_eq!(world.idempotency_keys().purge().await.unwrap(), 1, "what has ended is forgotten");
    assert_eq!(world.effects().await, [1]);
}

async fn what_never_ended_is_listed_counted_and_forgotten_by_hand<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    let list = ["operations", "list"];
    assert_eq!(tool.ok(&list).await, "No request is unfinished.\n");
    let doctor = async || {
        let ran = tool.run(&["doctor"]).await;
        let line = ran.out.lines().find(|line| line.contains("unfinished operations: ")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{ran:?}"))
    };
    assert_eq!(doctor().await, "ok      unfinished operations: none");
    let mut first = open(&world, &key("a"), "1").await;
    first.token_within("charge", 0, Duration::MAX).await.unwrap();
    first.save("charged ch_1").await.unwrap();
    let idle = open(&world, &key("idle"), "1").await;
    assert_eq!(world.idempotency_keys().count_unfinished().await.unwrap(), 0, "somebody works on it");
    let slot = key("a").slot().map(|byte| format!("{byte:02x}")).concat();
    tool.ends(3, &["operations", "forget", &slot, "--yes"]).await;
    drop((first, idle));
    runs_out(&world).await;
    assert_eq!(world.idempotency_keys().count_unfinished().await.unwrap(), 1);
    let listed = tool.json(&list).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(tool.json(&["keys", "list", "--unfinished"]).await, listed);
    tool.ends(2, &["keys", "list"]).await;
    let one = &listed[0];
    assert_eq!((&one["slot"], &one["scope"]), (&slot[..16].into(), &"POST_/refunds".into()));
    assert_eq!((&one["recovery_point"], &one["has_expired"]), (&"charged ch_1".into(), &false.into()));
    assert!(one["tokens"]["charge/0"].is_string(), "{one}");
    assert!(doctor().await.starts_with("ok      unfinished operations: 1 request: "));
    let table = DB::table_of("idempotency_keys");
    let mut conn = world.pool().acquire().await.unwrap();
    let long_ago = DB::earlier("updated_at", 7200);
    let rests = format!("UPDATE {table} SET updated_at = {long_ago}");
    sqlx::raw_sql(AssertSqlSafe(rests)).execute(&mut *conn).await.unwrap();
    drop(conn);
    assert!(doctor().await.starts_with("warning unfinished operations: 1 request: "));
    expire(&world).await;
    let wrong = doctor().await;
    assert!(wrong.starts_with("wrong   unfinished operations: 1 request: "), "{wrong}");
    assert!(wrong.contains(&slot[..16]) && wrong.contains("POST_/refunds"), "{wrong}");
    assert_eq!(tool.run(&["doctor"]).await.code, 7);

    for (code, slot) in [(2, "abc"), (2, "not hexadecimal"), (3, "0000000000000000")] {
        tool.ends(code, &["operations", "forget", slot, "--yes"]).await;
    }
    tool.ends(2, &["operations", "forget", &slot[..16]]).await;
    tool.ok(&["operations", "forget", &slot[..16], "--dry-run"]).await;
    assert_eq!(world.idempotency_keys().count_unfinished().await.unwrap(), 1);
    tool.ok(&["operations", "forget", &slot[..8], "--yes", "--reason", "ch_1 was refunded by hand"]).await;
    assert_eq!(
        (world.idempotency_keys().count_unfinished().await.unwrap(), world.rows("idempotency_keys").await),
        (0, 1)
    );
    let audit = tool.json(&["audit", "list"]).await;
    assert_eq!(
        (&audit[0]["command"], &audit[0]["target"]),
        (&"operations forget".into(), &slot.into()),
        "{audit}"
    );
    assert_eq!((&audit[0]["operator"], &audit[0]["count"]), (&"ada".into(), &1.into()));
    assert_eq!(open(&world, &key("a"), "2").await.attempt(), 1, "the key is free");
}

/// Asked again it gets the same refusal, and somebody has to look.
async fn what_was_given_up_half_way_is_listed_too<DB: TestDb>() {
    let app = Refunds::<DB>::with(Strategy::Lease, |layer| layer.attempts_max(1)).await;
    let last = app.refund("a", 1, Fails).await;
    assert_eq!(last.status, 500);
    app.refund("b", 1, DeclinesForGood).await;
    expire(&app.world).await;
    assert_eq!(app.idempotency_keys().purge().await.unwrap(), 1, "what the handler has decided is over");
    app.refund("a", 1, Fails).await.is_replayed(&last);
    let listed = app.idempotency_keys().unfinished(10).await.unwrap();
    assert_eq!((listed.len(), listed[0].has_expired), (1, true));
    assert!(listed[0].recovery_point.is_some() && listed[0].tokens.contains_key("refund/0"));
    assert_eq!(
        app.idempotency_keys().erase("", None).await.unwrap(),
        0,
        "it is needed to find out what was done"
    );
    Tool::of(&app.world).ok(&["operations", "forget", &listed[0].slot, "--yes"]).await;
    app.shop.has_funds.store(true, SeqCst);
    assert_eq!(app.refund("a", 1, Fails).await.says(), Some("stored"));
}

/// What a handler does with its transactions.
#[derive(Clone, Copy)]
enum Does {
    SavesAfterIt,
    SavesAfterItAllTheSame,
    BeginsTwice,
    RollsBackAndBegins,
}

async fn ends_half_way<DB: TestDb>(
    State(does): State<Does>,
    mut lease: IdemLease<DB>,
) -> Result<StatusCode, ServerError> {
    let mut idem = lease.begin().await?;
    effect::<DB>(&mut idem.tx(), 1).await?;
    match does {
        Does::SavesAfterIt => {
            drop(idem);
            lease.save("charged").await?;
        }
        Does::SavesAfterItAllTheSame => {
            drop(idem);
            lease.save("charged").await.unwrap_err();
        }
        Does::BeginsTwice => {
            drop(idem);
            lease.begin().await?;
        }
        Does::RollsBackAndBegins => {
            idem.roll_back().await;
            lease.save("charged").await?;
            effect::<DB>(&mut lease.begin().await?.tx(), 2).await?;
        }
    }
    Ok(StatusCode::CREATED)
}

/// No answer says that something was written that was not.
async fn what_was_written_is_never_thrown_away_behind_a_success<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for (key, does, status, effects) in [
        ("a", Does::SavesAfterIt, 500, vec![]),
        ("b", Does::SavesAfterItAllTheSame, 201, vec![1]),
        ("c", Does::BeginsTwice, 500, vec![]),
        ("d", Does::RollsBackAndBegins, 201, vec![2]),
    ] {
        let layer = Idempotency::new((*world).clone(), Caller::single).lease(LONG);
        let route = routing::post(ends_half_way::<DB>).layer(layer);
        let app = Router::new().route("/pay", route).with_state(does);
        let got = send(&app, post("/pay", key).body("{}".into()).unwrap()).await;
        assert_eq!((got.status.as_u16(), world.effects().await), (status, effects));
        assert_eq!(got.says(), (status == 201).then_some("stored"));
        world.execute("DELETE FROM effects").await;
    }
}

cases! {
    all: [
        what_may_have_been_charged_is_never_purged,
        what_was_given_up_half_way_is_listed_too,
        what_never_ended_is_listed_counted_and_forgotten_by_hand,
        what_was_written_is_never_thrown_away_behind_a_success,
    ]
}
