//! Sending side effects: answers, time-outs, order, and dispatchers beside each other.
use crate::support::{
    cases::cases,
    databases::Postgres,
    effects::{Dispatching, QUICK, found, mail, plan, reaches},
    postgres::{postgres_address, store_at, through},
    stores::{TestDb, World},
    wait::eventually,
};
use futures::future::BoxFuture;
use integration_tests::vendors::{VENDOR, http_vendor};
use sqlx::Sqlite;
use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, ErrorKind, RetryPolicy,
    effects::{
        Applied, Dispatcher, EffectState, Recovery, Vendor, VendorCall, VendorError, VendorOptions,
        VendorProfile, profiles,
    },
};
use twinbox_testkit::{
    proxy::Proxy,
    vendor::{
        FakeVendor,
        VendorAnswer::{
            self, Act, ActThenCut, ActThenDrip, ActThenStall, ActThenTruncate, Cut, Stall, Status,
        },
    },
};

/// More tries than a test needs.
const MANY: RetryPolicy = RetryPolicy::listed(&[Duration::from_millis(1); 30]);

/// The answers, and then sends, acts, state and code of the effect.
type Case = (&'static [VendorAnswer], usize, usize, EffectState, Option<&'static str>);

/// R13, R30, R40, R72, t26
async fn answers_decide_how_an_effect_ends<DB: TestDb>() {
    use EffectState::{Confirmed, Failed, Unknown};
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let dispatching = Dispatching::to(&world, &vendor, profiles::STRIPE_V2);
    let cases: [Case; 10] = [
        (&[Act], 1, 1, Confirmed, None),
        (&[Status(400)], 1, 0, Failed, Some("VALIDATION.rejected")),
        (&[Status(401)], 1, 0, Failed, Some("AUTH.refused")),
        (&[Status(307)], 1, 0, Failed, Some("VALIDATION.rejected")),
        // It may have acted before it redirects.
        (&[Status(303)], 1, 0, Unknown, Some("PROVIDER.indeterminate")),
        (&[Status(503), Act], 2, 1, Confirmed, None),
        (&[Cut, Act], 2, 1, Confirmed, None),
        (&[ActThenCut, Act], 2, 1, Confirmed, Some("PROVIDER.duplicate")),
        // The head of the response says it.
        (&[ActThenTruncate], 1, 1, Confirmed, None),
        (&[Status(500); 5], 5, 0, Unknown, Some("PROVIDER.indeterminate")),
    ];
    for (answers, sends, acts, state, code) in cases {
        let (sent, acted) = (vendor.calls().len(), vendor.acts().len());
        vendor.answer_next(answers.iter().copied());
        let source = plan(&world, mail("hello")).await;
        let effect = reaches(&world, source, state).await;
        let calls = &vendor.calls()[sent..];
        assert_eq!((calls.len(), vendor.acts().len() - acted), (sends, acts), "{answers:?}");
        assert!(calls.iter().all(|call| call.key == calls[0].key && call.body == calls[0].body));
        assert_eq!((effect.error_code.as_deref(), effect.attempts as usize), (code, sends), "{answers:?}");
        assert!(effect.ended_at.is_some() != (state == Unknown), "{answers:?}");
    }
    dispatching.stop().await;
}

/// R13, R30, t26. On a busy machine an answer may be late too: then the effect is sent once more, and the
/// call that was answered in time decides.
async fn a_vendor_that_is_silent_gets_the_same_call_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let options = VendorOptions::new().retries(MANY).timeout(Duration::from_millis(500));
    for silence in [Stall, ActThenStall, ActThenDrip] {
        let vendor = FakeVendor::start().await.unwrap();
        vendor.answer_next([silence]);
        let stripe = http_vendor(&vendor.url(), profiles::STRIPE_V2).unwrap();
        let dispatching = Dispatching::start(Dispatcher::new(&world).vendor_with(stripe, options));
        let source = plan(&world, mail("hello")).await;
        let effect = reaches(&world, source, EffectState::Confirmed).await;
        dispatching.stop().await;
        let calls = vendor.calls();
        assert!(calls.iter().all(|call| call.key == calls[0].key && call.body == calls[0].body));
        assert_eq!(vendor.acts().len(), 1, "{silence:?}");
        // The vendor names what it made after the number of the call.
        let answered = effect.provider_ref.as_deref().and_then(|name| name.strip_prefix("act_"));
        let answered: usize = answered.unwrap().parse().unwrap();
        assert!(answered > 0 && calls[0].answer == silence, "{silence:?}: {calls:?}");
        let is_duplicate = !calls[answered].acted;
        assert_eq!(effect.error_code.as_deref(), is_duplicate.then_some("PROVIDER.duplicate"), "{silence:?}");
        assert!(effect.attempts > 1 && effect.failures == effect.attempts - 1, "{effect:?}");
        assert!(effect.ended_at.is_some(), "{silence:?}");
    }
}

/// R12, t26, t27
async fn an_open_breaker_sends_nothing_and_counts_no_attempt<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_with(|_| Status(503));
    let options = VendorOptions::new().retries(MANY).in_flight(1);
    let resend = http_vendor(&vendor.url(), profiles::RESEND).unwrap();
    let started = Instant::now();
    let dispatching = Dispatching::start(Dispatcher::new(&world).vendor_with(resend, options));
    let first = plan(&world, mail("1")).await;
    vendor.wait_for_calls(5).await;
    let second = plan(&world, mail("2")).await;
    vendor.wait_for_calls(6).await;
    assert!(started.elapsed() >= Duration::from_secs(1), "it was open for a second");
    vendor.answer_with(|_| Act);
    for (source, body) in [(first, br#"{"text":"1"}"#), (second, br#"{"text":"2"}"#)] {
        let effect = reaches(&world, source, EffectState::Confirmed).await;
        let calls = vendor.calls().iter().filter(|call| call.body == body).count();
        assert_eq!(effect.attempts as usize, calls);
    }
    dispatching.stop().await;
}

/// R13, R31, t27: two dispatchers, and the second one learns it from the database.
async fn retry_after_closes_the_vendor_for_all_dispatchers<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let both = [(); 2].map(|()| Dispatching::to(&world, &vendor, profiles::RESEND));
    vendor.answer_next([VendorAnswer::RetryAfter(429, 2)]);
    let first = plan(&world, mail("1")).await;
    let is_closed = format!("SELECT count(*) FROM {}", DB::table_of("vendors"));
    eventually(async || (world.number(&is_closed).await == 1).then_some(())).await;
    let planned = [plan(&world, mail("2")).await, plan(&world, mail("3")).await, first];
    for source in planned {
        let effect = reaches(&world, source, EffectState::Confirmed).await;
        assert_eq!(effect.failures, 0, "too many calls are no failure");
    }
    for dispatching in both {
        dispatching.stop().await;
    }
    // The others were planned after the note of the pause, so nothing was under way when it was asked for.
    assert_eq!(vendor.early_calls(Duration::ZERO), 0);
}

/// R13: a wait that no process sits out is written down.
async fn a_long_retry_after_is_stored_and_not_shortened<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::RetryAfter(503, 7200)]);
    let source = plan(&world, mail("1")).await;
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    let waits = async || Some(found(&world, source).await).filter(|e| e.attempts == 1 && e.owner.is_none());
    let effect = eventually(waits).await;
    dispatching.stop().await;
    let wait = effect.next_attempt_at.unwrap().as_micros() - effect.fired_at.unwrap().as_micros();
    assert!((7_200_000_000..7_300_000_000).contains(&wait), "{wait}");
    assert_eq!((vendor.calls().len(), effect.state), (1, EffectState::Fired));
}

/// R69, D29, t26: the vendor asks for a pause that outlasts its key.
async fn no_key_is_sent_after_its_time<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::RetryAfter(503, 3)]);
    let short = VendorProfile::with_key("short", Duration::from_secs(2));
    let source = plan(&world, mail("1")).await;
    let dispatching = Dispatching::to(&world, &vendor, short);
    let effect = reaches(&world, source, EffectState::Unknown).await;
    dispatching.stop().await;
    assert_eq!((vendor.calls().len(), effect.error_code.as_deref()), (1, Some("PROVIDER.key_expired")));
}

/// Order per key, over two dispatchers and failures. I4
async fn effects_of_a_key_go_one_after_another<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_with(|nth| if nth % 7 == 3 { Status(503) } else { Act });
    let both = [(); 2].map(|()| Dispatching::to(&world, &vendor, profiles::RESEND));
    let mut last = Vec::new();
    for n in 0..30 {
        for key in ["a", "b"] {
            last.push(plan(&world, mail(&format!("{key}{n:02}")).key(key)).await);
        }
    }
    for source in last.split_off(58) {
        reaches(&world, source, EffectState::Confirmed).await;
    }
    for dispatching in both {
        dispatching.stop().await;
    }
    let acts: Vec<_> = vendor.acts().into_iter().map(|body| String::from_utf8(body).unwrap()).collect();
    for key in ["a", "b"] {
        let of_key: Vec<_> = acts.iter().filter(|act| act.contains(&format!(r#""{key}"#))).collect();
        assert!(of_key.len() == 30 && of_key.is_sorted(), "{of_key:?}");
    }
}

/// I7
async fn an_unknown_effect_holds_its_key_and_no_other<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let dispatching = Dispatching::to(&world, &vendor, profiles::TWILIO);
    vendor.answer_next([ActThenCut]);
    let first = plan(&world, mail("1").key("a")).await;
    reaches(&world, first, EffectState::Unknown).await;
    let second = plan(&world, mail("2").key("a")).await;
    let other = plan(&world, mail("3").key("b")).await;
    reaches(&world, other, EffectState::Confirmed).await;
    let waits = async || Some(found(&world, second).await).filter(|effect| effect.next_attempt_at.is_none());
    assert_eq!(eventually(waits).await.state, EffectState::Pending);
    dispatching.stop().await;
    assert_eq!(vendor.calls().len(), 2);
}

async fn two_dispatchers_send_each_effect_once<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let mut planned = Vec::new();
    for n in 0..100 {
        planned.push(plan(&world, mail(&n.to_string())).await);
    }
    let both = [(); 2].map(|()| Dispatching::to(&world, &vendor, profiles::RESEND));
    for source in planned {
        reaches(&world, source, EffectState::Confirmed).await;
    }
    for dispatching in both {
        dispatching.stop().await;
    }
    assert_eq!(vendor.calls().len(), 100);
}

async fn a_dispatcher_that_stops_notes_the_results<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.delay(Duration::from_millis(300));
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    let source = plan(&world, mail("1")).await;
    let is_sent = async || (found(&world, source).await.state == EffectState::Fired).then_some(());
    eventually(is_sent).await;
    dispatching.stop().await;
    let effect = found(&world, source).await;
    // It was on its way, or it was not sent and says so.
    let expected = if vendor.calls().is_empty() { EffectState::Pending } else { EffectState::Confirmed };
    assert_eq!((effect.state, effect.attempts as usize), (expected, vendor.calls().len()));
}

/// A vendor that panics when it is first called, and in the middle of the second call.
struct Clumsy(AtomicU32);

const AT_LEAST_ONCE: VendorProfile = VendorProfile::new("clumsy", Recovery::AtLeastOnce);

impl Vendor for Clumsy {
    fn name(&self) -> &str {
        VENDOR
    }

    fn profile(&self) -> &VendorProfile {
        &AT_LEAST_ONCE
    }

    fn send<'a>(&'a self, call: &'a VendorCall) -> BoxFuture<'a, Result<Applied, VendorError>> {
        let nth = self.0.fetch_add(1, SeqCst);
        assert!(nth > 0, "the first call");
        Box::pin(async move {
            assert!(nth > 1, "the second call");
            Ok(Applied::new().provider_ref(call.token.clone()))
        })
    }
}

async fn a_vendor_that_panics_is_tried_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    // The only slot is free again after a panic.
    let options = VendorOptions::new().retries(QUICK).in_flight(1);
    let clumsy = Dispatcher::new(&world).vendor_with(Clumsy(AtomicU32::new(0)), options);
    let dispatching = Dispatching::start(clumsy);
    let source = plan(&world, mail("1")).await;
    let effect = reaches(&world, source, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!((effect.attempts, effect.failures), (3, 2));
    assert_eq!(effect.provider_ref, effect.idempotency_key);
}

async fn a_dispatcher_that_could_not_recover_does_not_start<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let vendor = |profile| http_vendor("http://127.0.0.1:9", profile).unwrap();
    let twice = Dispatcher::new(&world).vendor(vendor(profiles::RESEND)).vendor(vendor(profiles::PAYPAL));
    let blind = Dispatcher::new(&world).vendor(Blind);
    for (dispatcher, says) in [(twice, "is there twice"), (blind, "no look-up")] {
        let error = dispatcher.run(CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// A vendor that looks effects up, without a look-up.
struct Blind;

impl Vendor for Blind {
    fn name(&self) -> &str {
        VENDOR
    }

    fn profile(&self) -> &VendorProfile {
        &profiles::BIGCOMMERCE
    }

    fn send<'a>(&'a self, _: &'a VendorCall) -> BoxFuture<'a, Result<Applied, VendorError>> {
        Box::pin(async { Ok(Applied::new()) })
    }
}

/// The trigger is an operator who is quicker than the next look of the dispatcher.
#[tokio::test]
async fn a_vendor_that_is_resumed_as_it_closes_stays_open() {
    let (world, vendor) = (World::<Sqlite>::new().await, FakeVendor::start().await.unwrap());
    world
        .execute(
            "CREATE TRIGGER resume AFTER INSERT ON twinbox_vendors BEGIN
                UPDATE twinbox_vendors SET closed_until = 0;
            END",
        )
        .await;
    vendor.answer_next([VendorAnswer::RetryAfter(429, 100)]);
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    plan(&world, mail("1")).await;
    eventually(async || (world.number("SELECT count(*) FROM twinbox_vendors").await > 0).then_some(())).await;
    let second = plan(&world, mail("2")).await;
    reaches(&world, second, EffectState::Confirmed).await;
    assert_eq!(vendor.acts(), [br#"{"text":"2"}"#]);
    dispatching.stop().await;
}

/// The other end of the connection of a statement is gone, and nothing says so.
#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_database_that_falls_silent_is_asked_over_another_connection() {
    let (world, vendor) = (World::<Postgres>::new().await, FakeVendor::start().await.unwrap());
    let proxy = Proxy::start(postgres_address(world.url())).await.unwrap();
    let store = store_at(&through(world.url(), &proxy)).await;
    let dispatching = Dispatching::to(&store, &vendor, profiles::RESEND);
    let first = plan(&world, mail("1")).await;
    reaches(&world, first, EffectState::Confirmed).await;
    let mut tx = world.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE twinbox.side_effects").execute(&mut *tx).await.unwrap();
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted \
        AND relation = 'twinbox.side_effects'::regclass";
    eventually(async || (world.number(waits).await > 0).then_some(())).await;
    proxy.freeze_open();
    tx.rollback().await.unwrap();
    let second = plan(&world, mail("2")).await;
    reaches(&world, second, EffectState::Confirmed).await;
    assert_eq!((vendor.calls().len(), vendor.acts().len()), (2, 2));
    dispatching.stop().await;
}

cases! {
    all: [
        a_dispatcher_that_could_not_recover_does_not_start,
        a_dispatcher_that_stops_notes_the_results,
        a_long_retry_after_is_stored_and_not_shortened,
        a_vendor_that_is_silent_gets_the_same_call_again,
        a_vendor_that_panics_is_tried_again,
        an_open_breaker_sends_nothing_and_counts_no_attempt,
        an_unknown_effect_holds_its_key_and_no_other,
        answers_decide_how_an_effect_ends,
        effects_of_a_key_go_one_after_another,
        no_key_is_sent_after_its_time,
        retry_after_closes_the_vendor_for_all_dispatchers,
        two_dispatchers_send_each_effect_once,
    ]
}
