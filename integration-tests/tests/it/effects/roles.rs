//! The documented rights are enough for side effects, and no more than that.
use crate::support::{
    cases::cases,
    database::SERVICE,
    effects::{Dispatching, WELCOME, mail, plan, reaches},
    roles::Roles,
    stores::World,
};
use sqlx::{PgPool, Postgres, postgres::PgPoolOptions};
use std::time::Duration;
use twinbox::{
    Store,
    effects::{EffectState, Effects, Planned, Recovery, profiles},
    ops::{
        Ops, Role,
        effects::{Change, EffectFilter, Resolution},
    },
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

async fn store_of(world: &World<Postgres>, role: &str) -> Store<Postgres> {
    let options = (*world.pool().connect_options()).clone().username(role);
    Store::new(PgPoolOptions::new().connect_with(options).await.unwrap(), SERVICE).unwrap()
}

async fn forbidden(pool: &PgPool, sql: &'static str) {
    let refused = sqlx::raw_sql(sql).execute(pool).await.expect_err(sql);
    assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("42501"), "{sql}: {refused}");
}

async fn each_role_does_its_part_and_no_more() {
    let (world, vendor) = (World::<Postgres>::new().await, FakeVendor::start().await.unwrap());
    let roles = Roles::create(&world, "effects").await;
    let producer = store_of(&world, &roles.producer).await;
    let web = store_of(&world, &roles.web).await;
    let runtime = store_of(&world, &roles.runtime).await;
    let operator = store_of(&world, &roles.operator).await;

    vendor.answer_next([VendorAnswer::ActThenCut, VendorAnswer::RetryAfter(429, 1)]);
    let first = plan(&web, mail("first").key("a")).await;
    // It may not read, so it does not hear that the effect has another request.
    for (request, is_new) in [("{}", true), ("[]", false)] {
        let planned = "SELECT twinbox.plan_effect($1, 'a', 'other', $2)";
        let planned = sqlx::query_scalar::<_, bool>(planned).bind(Uuid::from_u128(7)).bind(request);
        assert_eq!(planned.fetch_one(producer.pool()).await.unwrap(), is_new);
    }
    let recovery = profiles::RESEND.recovery(Recovery::Operator);
    let dispatching = Dispatching::to(&runtime, &vendor, recovery);
    let unknown = reaches(&web, first, EffectState::Unknown).await;

    let ops = Ops::new(&operator);
    let vendors = Vec::from_iter(ops.vendors().await.unwrap().into_iter().map(|one| one.vendor));
    assert_eq!(vendors, ["mail", "other"]);
    ops.pause_vendor("other", "test").await.unwrap();
    ops.pause_vendor("other", "test again").await.unwrap();
    ops.resume_vendor("other").await.unwrap();
    assert_eq!(ops.effects(&EffectFilter::default(), None, 10).await.unwrap().effects.len(), 2);
    assert_eq!(ops.effect_problems(Duration::from_secs(60)).await.unwrap().unknown, 1);
    ops.effect(unknown.position.into()).await.unwrap();
    let resolved = Change::Resolve(Resolution::Applied);
    ops.change_effect(unknown.position.into(), resolved, "there").await.unwrap();
    let mut tx = web.begin().await.unwrap();
    let sorry = Effects::new(&web).compensate(&mut tx, unknown.position, WELCOME, mail("sorry")).await;
    assert!(matches!(sorry.unwrap(), Planned::New(_)));
    tx.commit().await.unwrap();
    reaches(&web, first, EffectState::Compensated).await;
    dispatching.stop().await;

    for sql in [
        "UPDATE twinbox.side_effects SET state = 'pending'",
        "UPDATE twinbox.side_effects SET request = ''",
        "INSERT INTO twinbox.side_effects (source_id, kind, vendor, request, state)
            VALUES (gen_random_uuid(), 'a', 'b', '', 'confirmed')",
        "DELETE FROM twinbox.side_effects",
        "UPDATE twinbox.vendors SET pause_reason = NULL",
        "SELECT * FROM twinbox.vendors",
    ] {
        forbidden(producer.pool(), sql).await;
        forbidden(web.pool(), sql).await;
    }
    forbidden(producer.pool(), "SELECT request FROM twinbox.side_effects").await;
    for sql in [
        "UPDATE twinbox.side_effects SET request = ''",
        "UPDATE twinbox.side_effects SET attempts = 0",
        "DELETE FROM twinbox.side_effects",
        "DELETE FROM twinbox.vendors",
        "UPDATE twinbox.vendors SET vendor = 'x'",
    ] {
        forbidden(operator.pool(), sql).await;
    }
    forbidden(runtime.pool(), "DELETE FROM twinbox.side_effects").await;
    for (name, role) in [
        (&roles.producer, Role::Producer),
        (&roles.web, Role::Web),
        (&roles.runtime, Role::Runtime),
        (&roles.operator, Role::Operator),
    ] {
        let missing = Ops::new(&world).missing_rights(Some(name), role).await.unwrap();
        assert_eq!(missing, Some(Vec::new()), "{role:?}");
    }
    for store in [producer, web, runtime, operator] {
        store.pool().close().await;
    }
    roles.drop(&world).await;
}

cases! { postgres: [each_role_does_its_part_and_no_more] }
