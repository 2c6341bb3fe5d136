//! A client that calls a vendor at once, and the keys that it keeps.
use crate::support::{
    cases::cases,
    helper,
    stores::{TestDb, World},
    wait::in_time,
};
use integration_tests::vendors::{charge, client};
use std::time::Duration;
use tokio::process::Command;
use twinbox::{
    ErrorKind,
    effects::{
        Applied, ClientKey, ClientKeyState, ClientKeys, ErrorCode, Once, Recovery, ReqwestService,
        client::{Call, ClientLayer, Try},
        profiles,
    },
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

/// The log of a client as the playbook prints it. Row 3 says two statuses: that it was created counts.
const RETRY_LOG: &str = "\
attempt,delay_ms,status,code,notes
1,0,timeout,,initial timeout
2,137,5xx,502,proxy error
3,281,200,201,success
";
/// The bounds of the delay before each attempt, in milliseconds.
const RANGES: [(u128, u128); 3] = [(0, 0), (100, 200), (200, 400)];

/// R31, R46, D18, t27
#[tokio::test]
async fn client_retry_log() {
    let vendor = FakeVendor::start().await.unwrap();
    vendor.answer_next([VendorAnswer::Stall, VendorAnswer::Status(502), VendorAnswer::ActThenStatus(201)]);
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy()).unwrap();
    // The first call takes so long, and a busy machine has so long for the others.
    let timeout = Duration::from_secs(8);
    let client = ClientLayer::new(profiles::STRIPE_V1).timeout(timeout).client(service);
    let answer = in_time(client.send(charge(&vendor.url()))).await.unwrap();
    assert_eq!((answer.attempts, answer.response.status), (3, 201));
    let rows = Vec::from_iter(RETRY_LOG.lines().skip(1).map(|row| Vec::from_iter(row.split(','))));
    assert_eq!(rows.len(), answer.tries.len());
    for ((row, seen), (least, most)) in rows.iter().zip(&answer.tries).zip(RANGES) {
        let [_, delay, status, code, _] = row[..] else { panic!("five columns: {row:?}") };
        let Try { delay: waited, http_code, error, .. } = *seen;
        assert_eq!(http_code.map(|code| code.to_string()).unwrap_or_default(), code);
        let expected = match status {
            "timeout" => Some(ErrorCode::Timeout),
            "5xx" => Some(ErrorCode::Unavailable),
            _ => None,
        };
        assert_eq!(error, expected, "{row:?}");
        for delay in [waited.as_millis(), delay.parse().unwrap()] {
            assert!((least..=most).contains(&delay), "{row:?}: {waited:?}");
        }
    }
    let calls = vendor.calls();
    for (pair, seen) in calls.windows(2).zip(&answer.tries[1..]) {
        assert!(pair[1].at - pair[0].at >= seen.delay, "the client waits as long as it says");
    }
    assert!(calls.iter().all(|call| call.key.is_some() && call.key == calls[0].key));
    assert_eq!(vendor.acts().len(), 1);
}

/// The program of its own that charges order 7. Returns what it printed, or nothing when it was killed.
async fn charging<DB: TestDb>(
    world: &World<DB>,
    vendor: &FakeVendor,
    dies_at: Option<&str>,
    has_keys: bool,
) -> String {
    let mut program = Command::new(helper::program("client"));
    program.env("DATABASE_URL", world.url()).env("VENDOR_URL", vendor.url()).kill_on_drop(true);
    dies_at.into_iter().for_each(|at| _ = program.env("TWINBOX_CRASH_AT", at));
    if !has_keys {
        program.env("WITHOUT_KEYS", "1");
    }
    let output = in_time(program.output()).await.unwrap();
    assert_eq!(output.status.success(), dies_at.is_none(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// R56: a client that is killed between two tries goes on with its key, and the vendor acts once.
async fn a_killed_client_keeps_its_key<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next([VendorAnswer::ActThenCut, VendorAnswer::Cut]);
    for dies_at in [Some("client.failed"), Some("client.failed"), None] {
        let printed = charging(&world, &vendor, dies_at, true).await;
        assert_eq!(printed, if dies_at.is_none() { "applied" } else { "" });
    }
    let calls = vendor.calls();
    assert_eq!((calls.len(), vendor.acts().len()), (3, 1));
    let key = ClientKeys::new(&world).begin("charges.create", "order-7").await.unwrap();
    assert!(calls.iter().all(|call| call.key == Some(key.key.to_string())));
    assert_eq!((key.is_done(), key.provider_ref.as_deref()), (true, Some("act_2")));
}

/// R12: for a vendor without keys, a client that is killed leaves a doubt, and nobody sends again.
async fn a_killed_client_of_a_vendor_without_keys_sends_nothing_twice<DB: TestDb>() {
    for (dies_at, sends) in [("client_keys.sent", 0), ("client_keys.answered", 1)] {
        let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
        vendor.key_place("");
        charging(&world, &vendor, Some(dies_at), false).await;
        for _ in 0..2 {
            assert_eq!(charging(&world, &vendor, None, false).await, "in doubt");
            assert_eq!(vendor.calls().len(), sends);
        }
        // A person has looked at the vendor.
        let keys = ClientKeys::new(&world);
        let key = keys.begin("charges.create", "order-7").await.unwrap();
        assert_eq!(key.state, ClientKeyState::Sent);
        if sends == 0 {
            keys.not_applied(&key).await.unwrap();
            assert_eq!(charging(&world, &vendor, None, false).await, "applied");
        } else {
            keys.finish(&key, &Applied::new()).await.unwrap();
        }
        assert_eq!(charging(&world, &vendor, None, false).await, "done");
        assert_eq!(vendor.acts().len(), 1);
    }
}

/// R56
async fn a_business_action_has_one_key_and_another_one_its_own<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let keys = ClientKeys::new(&world);
    let begun = futures::future::join_all((0..8).map(|_| keys.begin("charges.create", "order-1"))).await;
    let begun = Vec::from_iter(begun.into_iter().map(Result::unwrap));
    assert_eq!(begun.iter().filter(|key| key.is_new).count(), 1);
    assert!(begun.iter().all(|key| key.key == begun[0].key && key.state == ClientKeyState::Pending));
    assert_eq!(begun[0].key.get_version_num(), 7);
    for (operation, id) in [("charges.create", "order-2"), ("refunds.create", "order-1")] {
        let other = keys.begin(operation, id).await.unwrap();
        assert!(other.is_new && other.key != begun[0].key);
    }
    for (operation, id) in [("", "a"), ("a", ""), ("a\n", "b"), ("a", "b\0"), ("a", &"b".repeat(256))] {
        let error = keys.begin(operation, id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
    }
    keys.begin(&"a".repeat(120), &"é".repeat(127)).await.unwrap();
}

/// R56: beside the rows of the application, or not at all.
async fn a_key_begins_and_ends_in_a_transaction_of_the_caller<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let keys = ClientKeys::new(&world);
    let mut tx = world.begin().await.unwrap();
    let undone = keys.begin_in(&mut tx, "charges.create", "order-1").await.unwrap();
    tx.rollback().await.unwrap();
    let mut tx = world.begin().await.unwrap();
    let key = keys.begin_in(&mut tx, "charges.create", "order-1").await.unwrap();
    assert!(key.is_new && key.key != undone.key);
    tx.commit().await.unwrap();
    for (commits, state) in [(false, ClientKeyState::Pending), (true, ClientKeyState::Done)] {
        let mut tx = world.begin().await.unwrap();
        keys.finish_in(&mut tx, &key, &Applied::new().provider_ref("ch_1")).await.unwrap();
        if commits {
            tx.commit().await.unwrap()
        } else {
            tx.rollback().await.unwrap()
        }
        let found = keys.begin("charges.create", "order-1").await.unwrap();
        assert_eq!((found.key, found.state, found.is_new), (key.key, state, false));
    }
}

/// A key whose action ended is purged after its retention. Other keys stay.
async fn only_keys_that_ended_are_purged<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let keys = ClientKeys::new(&world);
    for n in 0..5 {
        let key = keys.begin("charges.create", &n.to_string()).await.unwrap();
        if n > 0 {
            keys.finish(&key, &Applied::new()).await.unwrap();
        }
    }
    assert_eq!(keys.purge(Duration::from_secs(3600), 100).await.unwrap(), 0);
    let purged = [keys.purge(Duration::ZERO, 3).await.unwrap(), keys.purge(Duration::ZERO, 3).await.unwrap()];
    assert_eq!((purged, world.rows("client_keys").await), ([3, 1], 1));
}

/// R12: two processes at the same time, of which one calls.
async fn one_of_several_callers_calls_a_vendor_without_keys<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.key_place("");
    vendor.answer_next([VendorAnswer::Status(400)]);
    let profile = profiles::STRIPE_V1.recovery(Recovery::Operator);
    let (keys, client) = (ClientKeys::new(&world), client(profile).unwrap());
    let call = async || {
        let send = async |_: &_| Ok(client.send(charge(&vendor.url())).await?.applied);
        keys.call_once("charges.create", "order-7", send).await.unwrap()
    };
    let Once::Refused(error) = call().await else { panic!("the vendor refused") };
    assert_eq!((error.code(), error.attempts()), (ErrorCode::Validation, 1));
    let called = futures::future::join_all((0..4).map(|_| call())).await;
    assert_eq!(called.iter().filter(|once| matches!(once, Once::Applied(_))).count(), 1, "{called:?}");
    assert!(matches!(call().await, Once::Done(key) if key.provider_ref.as_deref() == Some("act_1")));
    assert_eq!((vendor.calls().len(), vendor.acts().len()), (2, 1));
}

/// A person gave up a call that stood still. When it goes on, it must not free the call of another process.
/// R12
async fn a_late_refusal_frees_no_other_call<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.key_place("");
    vendor.answer_next([VendorAnswer::Status(400)]);
    let client = client(profiles::STRIPE_V1.recovery(Recovery::Operator)).unwrap();
    let keys = ClientKeys::new(&world);
    let refused = async |_: &ClientKey| {
        let given_up = keys.begin("charges.create", "order-7").await.unwrap();
        assert_eq!(given_up.state, ClientKeyState::Sent);
        keys.not_applied(&given_up).await.unwrap();
        let other = async |_: &ClientKey| {
            let late = client.send(charge(&vendor.url())).await.unwrap_err();
            keys.not_applied(&given_up).await.unwrap();
            let third = keys.call_once("charges.create", "order-7", async |_| panic!("it is under way"));
            assert!(matches!(third.await.unwrap(), Once::InDoubt(..)));
            Err(late)
        };
        let other = keys.call_once("charges.create", "order-7", other).await.unwrap();
        assert!(matches!(other, Once::Refused(_)));
        Ok(Applied::new())
    };
    keys.call_once("charges.create", "order-7", refused).await.unwrap();
    let after = keys.begin("charges.create", "order-7").await.unwrap();
    assert_eq!(after.state, ClientKeyState::Pending, "the first call had lost its key");
}

/// The vendor has acted, so that its name for it is long must not matter.
async fn a_long_reference_is_cut<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let keys = ClientKeys::new(&world);
    let key = keys.begin("charges.create", "order-7").await.unwrap();
    keys.finish(&key, &Applied::new().provider_ref("é\0".repeat(300))).await.unwrap();
    let done = keys.begin("charges.create", "order-7").await.unwrap();
    assert!(done.is_done() && done.provider_ref.is_some_and(|reference| reference.len() >= 250));
}

/// A key that an earlier process may have sent long ago is not sent again. R69
async fn a_key_that_the_vendor_may_have_forgotten_is_not_sent<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let keys = ClientKeys::new(&world);
    keys.begin("charges.create", "order-7").await.unwrap();
    let mut key = keys.begin("charges.create", "order-7").await.unwrap();
    key.age += Duration::from_secs(23 * 3600);
    let client = client(profiles::STRIPE_V1).unwrap();
    let error = client.send(charge(&vendor.url()).client_key(&key)).await.unwrap_err();
    assert_eq!((error.code(), error.attempts()), (ErrorCode::KeyExpired, 0));
    // The first call with a new key finds it unused, the second one does not.
    let mut new = keys.begin("charges.create", "order-8").await.unwrap();
    new.age += Duration::from_secs(23 * 3600);
    assert_eq!(client.send(charge(&vendor.url()).client_key(&new)).await.unwrap().attempts, 1);
    let error = client.send(charge(&vendor.url()).client_key(&new.clone())).await.unwrap_err();
    assert_eq!((error.code(), error.attempts()), (ErrorCode::KeyExpired, 0));
    let fresh: Call = charge(&vendor.url()).key(Uuid::now_v7());
    assert_eq!(client.send(fresh).await.unwrap().attempts, 1);
    assert_eq!(vendor.calls().len(), 2);
}

cases! {
    all: [
        a_business_action_has_one_key_and_another_one_its_own,
        a_key_begins_and_ends_in_a_transaction_of_the_caller,
        a_key_that_the_vendor_may_have_forgotten_is_not_sent,
        a_killed_client_keeps_its_key,
        a_late_refusal_frees_no_other_call,
        a_long_reference_is_cut,
        a_killed_client_of_a_vendor_without_keys_sends_nothing_twice,
        one_of_several_callers_calls_a_vendor_without_keys,
        only_keys_that_ended_are_purged,
    ]
}
