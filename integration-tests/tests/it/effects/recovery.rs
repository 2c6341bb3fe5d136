//! Dispatchers that are killed before and after a send, for every profile of a vendor.
//!
//! The table in the book is the test: it must say what is seen.
use crate::support::helper;
use crate::{
    forgetful::{forget, forgetful},
    support::{
        cases::cases,
        effects::{Dispatching, WELCOME, found, plan, plan_at, reaches},
        stores::{TestDb, World},
        wait::{eventually, in_time},
    },
};
use integration_tests::vendors::{AT_MOST_ONCE, VENDOR};
use sqlx::{AssertSqlSafe, Postgres};
use std::process::Stdio;
use tokio::process::Command;
use twinbox::{
    Store,
    effects::{EffectRequest, EffectState, KeyPlace, Recovery, VendorProfile, effect_id, profiles},
};
use twinbox_testkit::vendor::FakeVendor;
use uuid::Uuid;

const BOOK: &str = include_str!("../../../../docs/src/effects.md");

/// Where a dispatcher is killed: after the commit that precedes the send, and after the response.
const BEFORE: &str = "effects.fired";
const AFTER: &str = "effects.answered";

/// An effect whose dispatcher was killed.
struct Left<'p> {
    vendor: FakeVendor,
    source: Uuid,
    profile: &'p VendorProfile,
    died_at: &'static str,
}

impl<'p> Left<'p> {
    /// Plans one effect, and kills the dispatcher that sends it.
    async fn behind<DB: TestDb>(
        store: &Store<DB>,
        url: &str,
        profile: &'p VendorProfile,
        died_at: &'static str,
    ) -> Self {
        let (vendor, source) = (like(profile).await, Uuid::now_v7());
        let reference = effect_id(source, WELCOME).to_string();
        let request = EffectRequest::json(VENDOR, &serde_json::json!({ "reference": reference })).unwrap();
        plan_at(store, source, request).await;
        dispatch_until_death(url, &vendor, profile, died_at).await;
        Self { vendor, source, profile, died_at }
    }

    /// Lets another dispatcher recover. Returns the number of sends and of acts, and the state.
    async fn recovers<DB: TestDb>(self, store: &Store<DB>, is_key_too_old: bool) -> String {
        let Self { vendor, source, profile, died_at } = self;
        let fired = found(store, source).await;
        assert_eq!((fired.state, fired.attempts), (EffectState::Fired, 1), "{} {died_at}", profile.name);
        pass_time::<DB>(store, fired.position, is_key_too_old).await;
        let recovering = Dispatching::to(store, &vendor, profile.clone());
        let ended =
            async || Some(found(store, source).await).filter(|effect| effect.next_attempt_at.is_none());
        let effect = eventually(ended).await;
        recovering.stop().await;
        let calls = vendor.calls();
        assert!(calls.iter().all(|call| call.body == calls[0].body), "each send has the same bytes");
        assert!(calls.iter().all(|call| call.key == calls[0].key), "each send has the same key");
        format!("{} / {}, {}", calls.len(), vendor.acts().len(), effect.state)
    }
}

/// Runs a dispatcher as a process, until it is killed at a crash point.
async fn dispatch_until_death(url: &str, vendor: &FakeVendor, profile: &VendorProfile, dies_at: &str) {
    let mut dispatcher = Command::new(helper::program("dispatcher"));
    dispatcher.env("DATABASE_URL", url).env("VENDOR_URL", vendor.url()).env("PROFILE", profile.name);
    dispatcher.env("TWINBOX_CRASH_AT", dies_at).kill_on_drop(true).stderr(Stdio::null());
    in_time(dispatcher.spawn().unwrap().wait()).await.unwrap();
}

/// Starts a vendor that takes keys as the profile says, and knows none where it says nothing.
async fn like(profile: &VendorProfile) -> FakeVendor {
    let vendor = FakeVendor::start().await.unwrap();
    vendor.key_place(match profile.key {
        KeyPlace::Header(name) => name,
        KeyPlace::Body(pointer) => pointer,
        KeyPlace::Nowhere => "",
    });
    if let [sign] = profile.duplicates {
        vendor.answer_known(sign.status, sign.text);
    }
    vendor
}

/// Lets the lease of the dead process and the wait before a look-up be over, and the time of the key if
/// asked.
async fn pass_time<DB: TestDb>(store: &Store<DB>, position: i64, is_key_too_old: bool) {
    let table = DB::table_of("side_effects");
    let earlier = |column: &str| format!("{column} = {}", DB::earlier(column, 30 * 86_400));
    let mut set = vec![earlier("next_attempt_at"), earlier("fired_at")];
    set.extend(is_key_too_old.then(|| earlier("provider_key_expires_at")));
    let sql = format!("UPDATE {table} SET {} WHERE position = {position}", set.join(", "));
    let mut tx = store.begin().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

fn recovery(profile: &VendorProfile) -> &'static str {
    match profile.recovery {
        Recovery::NativeKey { .. } => "same key",
        Recovery::LookUp { .. } => "look-up",
        Recovery::Operator => "a person",
        Recovery::AtLeastOnce => "at least once",
        Recovery::AtMostOnce => "at most once",
    }
}

/// R12, R55, R69, D28, t26
async fn the_number_of_sends_is_the_one_of_the_book<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut table =
        "| profile | in doubt | killed before the send | killed after it | before it, key too old | \
        after it, key too old |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for profile in profiles::ALL.into_iter().chain([&AT_MOST_ONCE]) {
        let mut cells = vec![format!("`{}`", profile.name), recovery(profile).to_owned()];
        for (dies_at, is_key_too_old) in [(BEFORE, false), (AFTER, false), (BEFORE, true), (AFTER, true)] {
            if is_key_too_old && !matches!(profile.recovery, Recovery::NativeKey { .. }) {
                cells.push("the same".to_owned());
                continue;
            }
            let left = Left::behind(&world, world.url(), profile, dies_at).await;
            cells.push(left.recovers(&world, is_key_too_old).await);
        }
        table += &format!("| {} |\n", cells.join(" | "));
    }
    assert!(BOOK.contains(&table), "the book should have this table:\n{table}");
}

/// Nothing was committed, so nothing was sent, even where no second send is allowed. D28
async fn a_dispatcher_killed_before_its_commit_has_sent_nothing<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, like(&AT_MOST_ONCE).await);
    let source = plan(&world, EffectRequest::new(VENDOR, "{}")).await;
    dispatch_until_death(world.url(), &vendor, &AT_MOST_ONCE, "effects.before_commit").await;
    let effect = found(&world, source).await;
    assert_eq!((effect.state, effect.attempts, effect.owner), (EffectState::Pending, 0, None));
    let dispatching = Dispatching::to(&world, &vendor, AT_MOST_ONCE);
    reaches(&world, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!(vendor.calls().len(), 1);
}

/// One profile for each way of recovery. R69
///
/// The two dispatchers of a profile die after commits of one kind, and then the database forgets: if such
/// commits were not flushed, both would be gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgets_changes_no_number_of_sends() {
    let (server, store) = in_time(forgetful()).await;
    for profile in [&profiles::STRIPE_V1, &profiles::POSTMARK, &profiles::TWILIO, &profiles::BIGCOMMERCE] {
        let line = format!("| `{}` | {} | ", profile.name, recovery(profile));
        let cells = BOOK.split_once(&line).unwrap().1.split(" | ");
        let mut left = Vec::new();
        for dies_at in [BEFORE, AFTER] {
            left.push(in_time(Left::behind(&store, &server.url(), profile, dies_at)).await);
        }
        in_time(forget(&store)).await;
        for (left, expected) in left.into_iter().zip(cells) {
            let died_at = left.died_at;
            let seen = in_time(left.recovers(&store, false)).await;
            assert_eq!(seen, expected, "{} {died_at}", profile.name);
        }
    }
    in_time(a_confirmed_effect_is_not_forgotten(&store)).await;
}

/// A confirmed effect stays confirmed: the note of a result is flushed too. R69
async fn a_confirmed_effect_is_not_forgotten(store: &Store<Postgres>) {
    let vendor = FakeVendor::start().await.unwrap();
    let dispatching = Dispatching::to(store, &vendor, AT_MOST_ONCE);
    let source = plan(store, EffectRequest::new(VENDOR, "{}")).await;
    reaches(store, source, EffectState::Confirmed).await;
    forget(store).await;
    assert_eq!(found(store, source).await.state, EffectState::Confirmed);
    dispatching.stop().await;
    assert_eq!(vendor.calls().len(), 1);
}

cases! {
    all: [
        a_dispatcher_killed_before_its_commit_has_sent_nothing,
        the_number_of_sends_is_the_one_of_the_book,
    ]
}
