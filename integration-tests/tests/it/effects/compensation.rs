//! An effect that undoes another: once, and only where something may have been done.
use crate::support::{
    cases::cases,
    effects::{Dispatching, WELCOME, all, found, mail, plan, reaches},
    helper,
    jobs::execute,
    stores::{TestDb, World},
    wait::{eventually, in_time},
};
#[cfg(feature = "postgres")]
use sqlx::AssertSqlSafe;
use std::{os::unix::process::ExitStatusExt as _, process::Stdio};
use tokio::process::Command;
use twinbox::{
    Error, ErrorKind,
    effects::{
        EffectId, EffectState, Effects, Planned, Recovery, SideEffect, VendorProfile, effect_id, profiles,
    },
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

const SORRY: &str = "email.sorry";
const AT_MOST_ONCE: VendorProfile = profiles::RESEND.recovery(Recovery::AtMostOnce);
const OPERATOR: VendorProfile = profiles::RESEND.recovery(Recovery::Operator);

async fn compensate<DB: TestDb>(
    world: &World<DB>,
    original: impl Into<EffectId>,
    text: &str,
) -> Result<Planned, Error> {
    let mut tx = world.begin().await.unwrap();
    let planned = Effects::new(world).compensate(&mut tx, original, SORRY, mail(text)).await?;
    tx.commit().await.unwrap();
    Ok(planned)
}

async fn compensation_of<DB: TestDb>(world: &World<DB>, original: &SideEffect) -> Option<SideEffect> {
    Effects::new(world).find(original.id, SORRY).await.unwrap()
}

/// Moves the time on for all open effects: each is due, and no lease holds it.
async fn all_are_due<DB: TestDb>(world: &World<DB>) {
    let table = DB::table_of("side_effects");
    let due = "SET next_attempt_at = created_at WHERE next_attempt_at IS NOT NULL";
    execute(world, format!("UPDATE {table} {due}")).await;
}

/// R70
async fn a_confirmed_effect_is_undone_once<DB: TestDb>() {
    let (world, vendor, dispatching) = all::<DB>().await;
    let source = plan(&world, mail("hello")).await;
    let original = reaches(&world, source, EffectState::Confirmed).await;
    let id = effect_id(original.id, SORRY);
    assert_eq!(compensate(&world, original.position, "sorry").await.unwrap(), Planned::New(id));
    let again = compensate(&world, original.id, "sorry").await.unwrap();
    assert_eq!(again, Planned::Existing { id, has_same_request: true });
    let undone = reaches(&world, source, EffectState::Compensated).await;
    let again = compensate(&world, original.id, "other").await.unwrap();
    assert_eq!(again, Planned::Existing { id, has_same_request: false });
    // Nor in another way, such as a refund beside a voucher.
    let mut tx = world.begin().await.unwrap();
    let other = Effects::new(&world).compensate(&mut tx, original.id, "email.voucher", mail("5 €")).await;
    assert_eq!(other.unwrap(), Planned::Existing { id, has_same_request: false });
    tx.rollback().await.unwrap();
    dispatching.stop().await;
    assert_eq!(vendor.acts(), [br#"{"text":"hello"}"#.to_vec(), br#"{"text":"sorry"}"#.to_vec()]);
    let compensation = compensation_of(&world, &original).await.unwrap();
    assert_eq!((compensation.state, compensation.attempts), (EffectState::Confirmed, 1));
    assert_eq!(compensation.compensates, Some(original.position));
    assert!(undone.ended_at >= compensation.fired_at && undone.provider_ref == original.provider_ref);
    assert_eq!(world.rows("side_effects").await, 2);
}

#[cfg(feature = "postgres")]
async fn a_compensation_that_is_being_confirmed_is_not_waited_for() {
    asked_again_while_it_is_confirmed::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
async fn a_compensation_that_is_being_confirmed_is_not_waited_for_either() {
    asked_again_while_it_is_confirmed::<sqlx::MySql>().await;
}

/// A dispatcher that confirms a compensation locks it, and then the original. Whoever asks for the former
/// again has locked the latter. On SQLite one transaction writes at a time.
#[cfg(feature = "postgres")]
async fn asked_again_while_it_is_confirmed<DB: TestDb>() {
    let (world, _vendor, dispatching) = all::<DB>().await;
    let source = plan(&world, mail("hello")).await;
    let original = reaches(&world, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    let Planned::New(id) = compensate(&world, original.id, "sorry").await.unwrap() else { panic!("planned") };
    let mut confirming = world.begin().await.unwrap();
    let position = compensation_of(&world, &original).await.unwrap().position;
    let table = DB::table_of("side_effects");
    let confirm = format!("UPDATE {table} SET attempts = 1 WHERE position = {position}");
    sqlx::raw_sql(AssertSqlSafe(confirm)).execute(&mut *confirming).await.unwrap();
    let again = compensate(&world, original.id, "sorry").await.unwrap();
    assert_eq!(again, Planned::Existing { id, has_same_request: true });
    confirming.rollback().await.unwrap();
}

/// R70: an act that was not done is not undone, and one that may still be done is not undone yet.
async fn only_what_may_have_been_done_is_undone<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let refused = async |original: &SideEffect, says: &str| {
        let error = compensate(&world, original.position, "sorry").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(compensation_of(&world, original).await.map(|found| found.position), None);
    };
    let source = plan(&world, mail("refused")).await;
    refused(&found(&world, source).await, "is pending and cannot be compensated: its vendor may still").await;
    vendor.answer_next([VendorAnswer::Status(422)]);
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    let failed = reaches(&world, source, EffectState::Failed).await;
    refused(&failed, "its vendor did nothing").await;
    dispatching.stop().await;
    for unknown in [EffectId::Position(4711), EffectId::Id(Uuid::now_v7())] {
        let error = compensate(&world, unknown, "sorry").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    // A send that had no answer, of a vendor that must not be called twice.
    vendor.answer_next([VendorAnswer::ActThenCut]);
    let source = plan(&world, mail("maybe")).await;
    let dispatching = Dispatching::to(&world, &vendor, AT_MOST_ONCE);
    let maybe = reaches(&world, source, EffectState::Failed).await;
    assert!(matches!(compensate(&world, maybe.position, "sorry").await.unwrap(), Planned::New(_)));
    reaches(&world, source, EffectState::Compensated).await;
    dispatching.stop().await;
    assert_eq!(vendor.acts(), [br#"{"text":"maybe"}"#.to_vec(), br#"{"text":"sorry"}"#.to_vec()]);
}

/// R70: of an effect that holds up its key, neither the compensation nor what comes after it waits for ever.
async fn a_key_goes_on_when_its_unknown_effect_is_undone<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::ActThenCut]);
    let keyed = |text: &str| mail(text).key("ada");
    let first = plan(&world, keyed("first")).await;
    let second = plan(&world, keyed("second")).await;
    let dispatching = Dispatching::to(&world, &vendor, OPERATOR);
    let unknown = reaches(&world, first, EffectState::Unknown).await;
    eventually(async || found(&world, second).await.next_attempt_at.is_none().then_some(())).await;
    let mut tx = world.begin().await.unwrap();
    Effects::new(&world).compensate(&mut tx, unknown.id, SORRY, keyed("sorry")).await.unwrap();
    tx.commit().await.unwrap();
    reaches(&world, first, EffectState::Compensated).await;
    reaches(&world, second, EffectState::Confirmed).await;
    dispatching.stop().await;
    let acts = ["first", "sorry", "second"].map(|text| format!(r#"{{"text":"{text}"}}"#).into_bytes());
    assert_eq!(vendor.acts(), acts);
}

/// A compensation of a confirmed effect waits for its turn among the effects of its key.
async fn a_compensation_keeps_the_order_of_its_key<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let keyed = |text: &str| mail(text).key("ada");
    let first = plan(&world, keyed("first")).await;
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    let original = reaches(&world, first, EffectState::Confirmed).await;
    dispatching.stop().await;
    let second = plan(&world, keyed("second")).await;
    let mut tx = world.begin().await.unwrap();
    Effects::new(&world).compensate(&mut tx, original.id, SORRY, keyed("sorry")).await.unwrap();
    tx.commit().await.unwrap();
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    reaches(&world, second, EffectState::Confirmed).await;
    // It was claimed with the second, found it in its way, and is looked at again after a minute.
    all_are_due(&world).await;
    reaches(&world, first, EffectState::Compensated).await;
    dispatching.stop().await;
    assert_eq!(found(&world, second).await.state, EffectState::Confirmed);
    let acts = ["first", "second", "sorry"].map(|text| format!(r#"{{"text":"{text}"}}"#).into_bytes());
    assert_eq!(vendor.acts(), acts);
}

/// R70, D28: the process is killed before the compensation is sent, and after it.
async fn a_compensation_runs_once_over_a_crash<DB: TestDb>() {
    let world = World::<DB>::new().await;
    for at in ["effects.before_commit", "effects.fired", "effects.answered"] {
        let vendor = FakeVendor::start().await.unwrap();
        let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
        let source = plan(&world, mail("hello")).await;
        let original = reaches(&world, source, EffectState::Confirmed).await;
        dispatching.stop().await;
        compensate(&world, original.position, "sorry").await.unwrap();
        let dies = Command::new(helper::program("dispatcher"))
            .env("DATABASE_URL", world.url())
            .env("VENDOR_URL", vendor.url())
            .env("PROFILE", profiles::RESEND.name)
            .env("TWINBOX_CRASH_AT", at)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let died = in_time(dies).await.unwrap();
        assert_eq!(died.status.signal(), Some(9), "at {at}: {died:?}");
        let state = compensation_of(&world, &original).await.unwrap().state;
        let expected = if at == "effects.before_commit" { EffectState::Pending } else { EffectState::Fired };
        assert_eq!(state, expected, "at {at}");
        assert_eq!(found(&world, source).await.state, EffectState::Confirmed, "at {at}");
        // Its lease is longer than a test: somebody's word that it is over.
        all_are_due(&world).await;
        let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
        reaches(&world, source, EffectState::Compensated).await;
        dispatching.stop().await;
        assert_eq!(vendor.acts().len(), 2, "at {at}");
        let sends = if at == "effects.answered" { 3 } else { 2 };
        assert_eq!(vendor.calls().len(), sends, "at {at}");
        let keys: Vec<_> = vendor.calls()[1..].iter().map(|call| call.key.clone()).collect();
        assert!(keys.iter().all(|key| *key == keys[0] && key.is_some()), "at {at}: {keys:?}");
    }
}

async fn a_compensation_that_is_rolled_back_was_never_planned<DB: TestDb>() {
    let (world, _vendor, dispatching) = all::<DB>().await;
    let source = plan(&world, mail("hello")).await;
    let original = reaches(&world, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    let mut tx = world.begin().await.unwrap();
    Effects::new(&world).compensate(&mut tx, original.id, SORRY, mail("sorry")).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(Effects::new(&world).find(original.id, SORRY).await.unwrap().is_none());
    assert!(matches!(compensate(&world, original.id, "sorry").await.unwrap(), Planned::New(_)));
    assert_eq!(Effects::new(&world).find(source, WELCOME).await.unwrap().unwrap().state, original.state);
}

/// An unknown original has another key, so it lets nothing pass. I4
async fn a_compensation_waits_for_the_effects_of_its_own_key<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let dispatching = Dispatching::to(&world, &vendor, OPERATOR);
    vendor.answer_next([VendorAnswer::ActThenCut, VendorAnswer::ActThenCut]);
    let original = plan(&world, mail("1").key("a")).await;
    let original = reaches(&world, original, EffectState::Unknown).await;
    let earlier = plan(&world, mail("2").key("b")).await;
    reaches(&world, earlier, EffectState::Unknown).await;
    let mut tx = world.begin().await.unwrap();
    let request = mail("sorry").key("b");
    Effects::new(&world).compensate(&mut tx, original.position, SORRY, request).await.unwrap();
    tx.commit().await.unwrap();
    // Planned later, and claimed no earlier.
    let last = plan(&world, mail("3")).await;
    reaches(&world, last, EffectState::Confirmed).await;
    let compensation = compensation_of(&world, &original).await.unwrap();
    assert_eq!((compensation.state, compensation.attempts), (EffectState::Pending, 0));
    dispatching.stop().await;
    assert_eq!(vendor.calls().len(), 3);
}

cases! {
    all: [
        a_compensation_waits_for_the_effects_of_its_own_key,
        a_compensation_keeps_the_order_of_its_key,
        a_compensation_runs_once_over_a_crash,
        a_compensation_that_is_rolled_back_was_never_planned,
        a_confirmed_effect_is_undone_once,
        a_key_goes_on_when_its_unknown_effect_is_undone,
        only_what_may_have_been_done_is_undone,
    ]
    postgres: [a_compensation_that_is_being_confirmed_is_not_waited_for]
    mysql: [a_compensation_that_is_being_confirmed_is_not_waited_for_either]
}
