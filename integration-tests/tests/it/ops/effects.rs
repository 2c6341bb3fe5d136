//! Side effects: what a person sees of them, and decides about them.
use crate::support::{
    cases::cases,
    codec::ciphered,
    effects::{Dispatching, QUICK, WELCOME, found, mail, plan, reaches},
    stores::{TestDb, World},
    tool::Tool,
    wait::{eventually, in_time},
};
use integration_tests::vendors::http_vendor;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use twinbox::effects::{
    Dispatcher, EffectRequest, EffectState, Effects, HttpVendor, Recovery, ReqwestService, VendorOptions,
    VendorProfile, profiles,
};
use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
use uuid::Uuid;

const OPERATOR: VendorProfile = profiles::RESEND.recovery(Recovery::Operator);
const AT_MOST_ONCE: VendorProfile = profiles::RESEND.recovery(Recovery::AtMostOnce);

/// A database, a vendor that answers so, its dispatcher, and the tool.
async fn world<DB: TestDb>(
    profile: VendorProfile,
    answers: &[VendorAnswer],
) -> (World<DB>, FakeVendor, Dispatching, Tool) {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    vendor.answer_next(answers.iter().copied());
    let dispatching = Dispatching::to(&world, &vendor, profile);
    let tool = Tool::of(&world);
    (world, vendor, dispatching, tool)
}

fn resolve<'a>(id: &'a str, found: &'a str, reason: &'a str) -> Vec<&'a str> {
    vec!["effects", "resolve", id, found, "--yes", "--reason", reason]
}

/// R70, D29: with another key only after somebody has looked.
async fn an_unknown_effect_is_resolved_in_both_directions<DB: TestDb>() {
    let answers = [VendorAnswer::ActThenCut, VendorAnswer::Cut];
    let (world, vendor, dispatching, tool) = world::<DB>(OPERATOR, &answers).await;
    let keyed = |text: &str| mail(text).key("ada");
    let first = plan(&world, keyed("first")).await;
    let unknown = reaches(&world, first, EffectState::Unknown).await;
    let second = plan(&world, keyed("second")).await;
    let listed = tool.json(&["effects", "list", "--state", "unknown"]).await;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["position"]), (1, &json!(unknown.position)));
    let id = unknown.id.to_string();
    assert!(tool.ok(&["effects", "show", &id]).await.contains("The vendor may have acted. Look there"));
    // Nobody decides without a reason, nor by a dry run.
    tool.ends(2, &["effects", "resolve", &id, "applied", "--yes"]).await;
    tool.ok(&["effects", "resolve", &id, "applied", "--dry-run", "--reason", "x"]).await;
    assert_eq!(found(&world, first).await.state, EffectState::Unknown);
    assert_eq!((vendor.calls().len(), tool.json(&["audit", "list"]).await), (1, json!([])));

    let done = tool.json(&resolve(&id, "applied", "it is in their log")).await;
    assert_eq!((&done["count"], &done["kind"]), (&json!(1), &json!(WELCOME)));
    let confirmed = found(&world, first).await;
    assert_eq!((confirmed.state, confirmed.generation), (EffectState::Confirmed, 0));
    assert!(confirmed.ended_at.is_some() && confirmed.error_code.is_none());
    assert_eq!(confirmed.last_error.as_deref(), Some("resolved as applied by ada: it is in their log"));
    // The next one of its key goes on, and is cut off itself.
    let unknown = reaches(&world, second, EffectState::Unknown).await;
    let refused = tool.ends(4, &resolve(&id, "applied", "again")).await;
    assert!(refused.contains("has ended"), "{refused}");
    let position = unknown.position.to_string();
    let told = tool.ok(&resolve(&position, "not-applied", "it is not in their log")).await;
    assert!(told.contains("is sent again"), "{told}");
    let confirmed = reaches(&world, second, EffectState::Confirmed).await;
    assert_eq!((confirmed.generation, confirmed.attempts, confirmed.last_error), (1, 2, None));
    dispatching.stop().await;
    let acts = ["first", "second"].map(|text| format!(r#"{{"text":"{text}"}}"#).into_bytes());
    assert_eq!(vendor.acts(), acts);
    let keys = Vec::from_iter(vendor.calls().into_iter().map(|call| call.key.unwrap()));
    assert!(keys.len() == 3 && keys[1] != keys[2] && keys[0] != keys[1], "{keys:?}");
    let audit = tool.json(&["audit", "list"]).await;
    let entry = |n: usize| -> Vec<Value> {
        ["command", "target", "reason", "count", "operator"].map(|field| audit[n][field].clone()).to_vec()
    };
    let expected = json!(["effects resolve not-applied", position, "it is not in their log", 1, "ada"]);
    assert_eq!(json!(entry(0)), expected);
    assert_eq!(audit[1]["command"], "effects resolve applied");
}

/// D29: an effect that surely was not done is retried; one that may have been done is resolved.
async fn a_failed_effect_is_retried_only_if_nothing_was_done<DB: TestDb>() {
    let answers = [VendorAnswer::Status(422), VendorAnswer::Act, VendorAnswer::Cut];
    let (world, vendor, dispatching, tool) = world::<DB>(AT_MOST_ONCE, &answers).await;
    let refused = plan(&world, mail("refused")).await;
    let failed = reaches(&world, refused, EffectState::Failed).await;
    let position = failed.position.to_string();
    let told = tool.ends(4, &resolve(&position, "not-applied", "x")).await;
    assert!(told.contains(&format!("`twinbox effects retry {position}`")), "{told}");
    assert!(tool.ok(&["effects", "show", &position]).await.contains("The vendor did nothing."));
    tool.ends(2, &["effects", "retry", &position, "--yes"]).await;
    tool.ok(&["effects", "retry", &position, "--yes", "--reason", "the address is mended there"]).await;
    let again = reaches(&world, refused, EffectState::Confirmed).await;
    assert_eq!((again.generation, again.attempts, again.failures), (1, 2, 0));
    assert_ne!(vendor.calls()[0].key, vendor.calls()[1].key);
    let told = tool.ends(4, &["effects", "retry", &position, "--yes", "--reason", "x"]).await;
    assert!(told.contains("has ended"), "{told}");

    let maybe = plan(&world, mail("maybe")).await;
    let failed = reaches(&world, maybe, EffectState::Failed).await;
    let position = failed.position.to_string();
    let told = tool.ends(4, &["effects", "retry", &position, "--yes", "--reason", "x"]).await;
    assert!(told.contains(&format!("`twinbox effects resolve {position} applied`")), "{told}");
    assert_eq!(vendor.calls().len(), 3);
    tool.ok(&resolve(&position, "not-applied", "not there")).await;
    reaches(&world, maybe, EffectState::Confirmed).await;
    dispatching.stop().await;
    let acts = ["refused", "maybe"].map(|text| format!(r#"{{"text":"{text}"}}"#).into_bytes());
    assert_eq!((vendor.acts().as_slice(), vendor.calls().len()), (&acts[..], 4));

    let open = plan(&world, mail("open")).await;
    let position = found(&world, open).await.position.to_string();
    for arguments in
        [resolve(&position, "applied", "x"), vec!["effects", "retry", &position, "--yes", "--reason", "x"]]
    {
        let told = tool.ends(4, &arguments).await;
        assert!(told.contains("a dispatcher works on it"), "{told}");
    }
    for (code, id) in [(3, "4711"), (3, "0194d1a0-0000-7000-8000-000000000000"), (2, "x"), (2, "0")] {
        tool.ends(code, &["effects", "show", id]).await;
        tool.ends(code, &resolve(id, "applied", "x")).await;
    }
}

/// R70: the original of a compensation about which a person decides.
async fn a_resolved_compensation_ends_its_original<DB: TestDb>() {
    let answers = [VendorAnswer::ActThenCut, VendorAnswer::ActThenCut];
    let (world, vendor, dispatching, tool) = world::<DB>(OPERATOR, &answers).await;
    let source = plan(&world, mail("hello").key("ada")).await;
    let original = reaches(&world, source, EffectState::Unknown).await;
    let mut tx = world.begin().await.unwrap();
    let effects = Effects::new(&world);
    effects.compensate(&mut tx, original.id, WELCOME, mail("sorry")).await.unwrap();
    tx.commit().await.unwrap();
    let next = plan(&world, mail("next").key("ada")).await;
    reaches(&world, original.id, EffectState::Unknown).await;
    let refused = tool.ends(4, &resolve(&original.id.to_string(), "not-applied", "x")).await;
    assert!(refused.contains("is undone by the effect"), "{refused}");
    let compensation = effects.find(original.id, WELCOME).await.unwrap().unwrap();
    tool.ok(&resolve(&compensation.position.to_string(), "applied", "they say so")).await;
    assert_eq!(found(&world, source).await.state, EffectState::Compensated);
    reaches(&world, next, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!(vendor.calls().len(), 3);
}

/// A list is read in pages, and selects by each of its options.
async fn a_list_has_pages_and_conditions<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    assert_eq!(tool.ok(&["effects", "list"]).await, "There are no such effects.\n");
    for text in ["a", "b", "c"] {
        plan(&world, mail(text)).await;
    }
    let mut tx = world.begin().await.unwrap();
    let effects = Effects::new(&world);
    for kind in ["sms.code:ada", "sms.code:bob"] {
        let request = EffectRequest::new("sms", "1234");
        effects.plan(&mut tx, Uuid::now_v7(), kind, request).await.unwrap();
    }
    tx.commit().await.unwrap();
    let positions = async |options: &[&str]| {
        let listed = tool.json(&[&["effects", "list"], options].concat()).await;
        let listed = listed.as_array().unwrap().clone();
        Vec::from_iter(listed.iter().map(|one| one["position"].as_i64().unwrap()))
    };
    assert_eq!(positions(&[]).await, [5, 4, 3, 2, 1]);
    assert_eq!(positions(&["--limit", "2"]).await, [5, 4]);
    let ran = tool.run(&["effects", "list", "--limit", "2"]).await;
    assert!(ran.err.contains("use --before 4"), "{ran:?}");
    assert_eq!(positions(&["--limit", "2", "--before", "4"]).await, [3, 2]);
    let ran = tool.run(&["effects", "list", "--limit", "2", "--before", "3"]).await;
    assert!(!ran.err.contains("--before"), "there is no older one: {ran:?}");
    assert_eq!(positions(&["--vendor", "sms"]).await, [5, 4]);
    assert_eq!(positions(&["--kind", "sms.code"]).await, [5, 4]);
    assert_eq!(positions(&["--kind", "sms.code:ada"]).await, [4]);
    assert_eq!(positions(&["--kind", "sms"]).await, [0_i64; 0]);
    assert_eq!(positions(&["--state", "pending", "--since", "1h"]).await.len(), 5);
    assert_eq!(positions(&["--since", "2100-01-01T00:00:00Z"]).await, [0_i64; 0]);
    assert_eq!(positions(&["--state", "failed"]).await, [0_i64; 0]);
    tool.ends(2, &["effects", "list", "--state", "dead"]).await;
    let fields = |value: &Value| Vec::from_iter(value.as_object().unwrap().keys().cloned()).join(" ");
    let listed = tool.json(&["effects", "list", "--limit", "1"]).await;
    assert_eq!(
        fields(&listed[0]),
        "attempts compensates created_at ended_at error_code failures fired_at generation http_code id key \
         kind last_error next_attempt_at position provider_ref source_id state vendor"
    );
    let shown = tool.json(&["effects", "show", "1"]).await;
    assert_eq!(
        fields(&shown),
        "attempts body body_base64 codec compensates content_type correlation_id created_at ended_at \
         error_code failures fired_at first_fired_at generation headers http_code id idempotency_key key \
         kind last_error method next_attempt_at owner position provider_key_expires_at provider_ref \
         source_id state target traceparent vendor"
    );
    assert_eq!(
        fields(&tool.json(&["vendors", "list"]).await[0]),
        "closed_seconds overdue_seconds paused state vendor waiting"
    );
    assert_eq!(
        (&shown["body"], &shown["method"], &shown["target"]),
        (&json!({"text": "a"}), &json!("POST"), &json!("/emails"))
    );
    assert!(tool.ok(&["effects", "show", "1"]).await.contains("\"text\": \"a\""));
}

/// A request that a codec encrypted is not shown by a tool that has no key.
async fn an_encoded_request_is_not_shown<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    let source = plan(&ciphered(&world), mail("secret \u{1b}[31m")).await;
    let shown = tool.json(&["effects", "show", "1"]).await;
    assert_eq!((&shown["body"], &shown["codec"]), (&json!(null), &json!("cipher")));
    let text = tool.ok(&["effects", "show", "1"]).await;
    assert!(text.contains("encoded by the codec \"cipher\"") && !text.contains("secret"), "{text}");
    let mut tx = world.begin().await.unwrap();
    let request = mail("\u{1b}[31m").header("x-note", "plain");
    Effects::new(&world).plan(&mut tx, source, "email.other\u{202e}", request).await.unwrap();
    tx.commit().await.unwrap();
    let text = tool.ok(&["effects", "show", "2"]).await;
    assert!(text.contains("x-note: plain") && !text.contains(['\u{1b}', '\u{202e}']), "{text}");
}

/// A vendor is paused for every dispatcher, while others get their effects.
async fn a_paused_vendor_gets_nothing_until_it_is_resumed<DB: TestDb>() {
    let (world, mails, other) =
        (World::<DB>::new().await, FakeVendor::start().await.unwrap(), FakeVendor::start().await.unwrap());
    let tool = Tool::of(&world);
    tool.ends(3, &["vendors", "pause", "mail", "--yes"]).await;
    let service = ReqwestService::new(reqwest::Client::builder().no_proxy()).unwrap();
    let sms = HttpVendor::new("sms", profiles::RESEND, other.url(), service).unwrap();
    let dispatcher = Dispatcher::new(&world)
        .vendor_with(
            http_vendor(&mails.url(), profiles::RESEND).unwrap(),
            VendorOptions::new().retries(QUICK),
        )
        .vendor(sms);
    let dispatching = Dispatching::start(dispatcher);
    let first = plan(&world, mail("first")).await;
    reaches(&world, first, EffectState::Confirmed).await;
    let told = tool.ends(3, &["vendors", "pause", "mial", "--yes"]).await;
    assert!(told.contains("known are mail"), "{told}");
    tool.ends(4, &["vendors", "resume", "mail", "--yes"]).await;
    tool.ok(&["vendors", "pause", "mail", "--yes", "--reason", "their maintenance"]).await;
    // Each of these is sent after another look at what is paused.
    for _ in 0..3 {
        let source = plan(&world, EffectRequest::new("sms", "1")).await;
        reaches(&world, source, EffectState::Confirmed).await;
    }
    let second = plan(&world, mail("second")).await;
    for _ in 0..3 {
        let source = plan(&world, EffectRequest::new("sms", "2")).await;
        reaches(&world, source, EffectState::Confirmed).await;
    }
    assert_eq!((mails.calls().len(), other.calls().len()), (1, 6));
    let waiting = found(&world, second).await;
    assert_eq!((waiting.state, waiting.attempts), (EffectState::Pending, 0));
    let listed = tool.json(&["vendors", "list"]).await;
    assert_eq!((&listed[0]["vendor"], &listed[0]["state"]), (&json!("mail"), &json!("paused")));
    assert_eq!((&listed[0]["waiting"], &listed[0]["paused"]), (&json!(1), &json!("their maintenance")));
    assert_eq!(listed[1]["state"], "open");
    assert!(tool.run(&["doctor"]).await.out.contains("warning vendor mail: paused: their maintenance"));
    tool.ok(&["vendors", "resume", "mail", "--yes"]).await;
    reaches(&world, second, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!(mails.acts().len(), 2);
    let audit = tool.json(&["audit", "list"]).await;
    let acts = [0, 1].map(|n: usize| audit[n]["command"].clone());
    assert_eq!(acts, ["vendors resume", "vendors pause"]);
}

/// A pause of days that a vendor asks for by mistake is ended by a person, in a dispatcher that runs.
async fn a_vendor_that_closed_itself_is_resumed<DB: TestDb>() {
    let (world, vendor) = (World::<DB>::new().await, FakeVendor::start().await.unwrap());
    let tool = Tool::of(&world);
    vendor.answer_next([VendorAnswer::RetryAfter(429, 99_999_999_999)]);
    let dispatching = Dispatching::to(&world, &vendor, profiles::RESEND);
    plan(&world, mail("first")).await;
    let closed = async || {
        let listed = tool.json(&["vendors", "list"]).await;
        (listed[0]["state"] == "closed").then(|| listed[0]["closed_seconds"].as_f64().unwrap())
    };
    eventually(closed).await;
    // The clock of a statement may stand at its begin, so the exact time is seen by a later one.
    assert!(closed().await.unwrap() <= 7.0 * 86_400.0, "a week at most");
    let second = plan(&world, mail("second")).await;
    tool.ok(&["vendors", "resume", "mail", "--yes"]).await;
    reaches(&world, second, EffectState::Confirmed).await;
    dispatching.stop().await;
    assert_eq!(vendor.acts(), [br#"{"text":"second"}"#]);
}

/// A monitor hears of effects that a person has to look at.
async fn status_and_doctor_name_effects_in_trouble<DB: TestDb>() {
    let answers = [VendorAnswer::Status(422), VendorAnswer::ActThenCut];
    let (world, _vendor, dispatching, tool) = world::<DB>(OPERATOR, &answers).await;
    let failed = plan(&world, mail("failed")).await;
    reaches(&world, failed, EffectState::Failed).await;
    let ran = tool.run(&["status"]).await;
    assert!(ran.code == 7 && ran.out.contains("1 side effect failed within 1day"), "{ran:?}");
    assert_eq!(tool.run(&["status", "--failed-within", "0s"]).await.code, 0);
    let ran = tool.run(&["doctor"]).await;
    assert!(ran.out.contains("warning side effects: 1 effect failed"), "{ran:?}");
    let unknown = plan(&world, mail("unknown")).await;
    reaches(&world, unknown, EffectState::Unknown).await;
    dispatching.stop().await;
    let ran = tool.run(&["status", "--failed-within", "0s"]).await;
    assert!(ran.code == 7 && ran.out.contains("1 side effect unknown"), "{ran:?}");
    let ran = tool.run(&["doctor"]).await;
    assert!(ran.code == 7 && ran.out.contains("wrong   side effects: 1 effect unknown"), "{ran:?}");
    tool.ok(&resolve("2", "applied", "x")).await;
    let quiet = ["status", "--failed-within", "0s"];
    assert_eq!(tool.run(&quiet).await.code, 0);
    // Nobody sends any more.
    plan(&world, mail("late")).await;
    assert_eq!(tool.run(&quiet).await.code, 0);
    let ran = tool.run(&[&quiet[..], &["--max-age", "0s"]].concat()).await;
    assert!(ran.code == 7 && ran.out.contains("a side effect for mail has been due for"), "{ran:?}");
    let status: Value = tool.json(&quiet).await;
    assert_eq!(status["effects"]["vendors"][0]["waiting"], 1);
    assert_eq!((&status["effects"]["unknown"], &status["effects"]["failed"]), (&json!(0), &json!(1)));
}

/// Killed before its commit, the tool has changed nothing, and the audit says that nobody knows.
async fn a_tool_that_dies_has_resolved_nothing<DB: TestDb>() {
    let (world, vendor, dispatching, tool) = world::<DB>(OPERATOR, &[VendorAnswer::ActThenCut]).await;
    let source = plan(&world, mail("hello")).await;
    let unknown = reaches(&world, source, EffectState::Unknown).await;
    dispatching.stop().await;
    let arguments = resolve("1", "applied", "they say so");
    let mut command = tool.command(&arguments);
    let dies = command.env("TWINBOX_CRASH_AT", "effects.before_change_commit").output();
    assert_eq!(in_time(dies).await.unwrap().status.signal(), Some(9));
    assert_eq!(found(&world, source).await.last_error, unknown.last_error);
    assert_eq!(tool.json(&["audit", "list"]).await[0]["count"], json!(null));
    tool.ok(&arguments).await;
    assert_eq!(found(&world, source).await.state, EffectState::Confirmed);
    assert_eq!(vendor.calls().len(), 1);
}

cases! {
    all: [
        a_failed_effect_is_retried_only_if_nothing_was_done,
        a_list_has_pages_and_conditions,
        a_paused_vendor_gets_nothing_until_it_is_resumed,
        a_vendor_that_closed_itself_is_resumed,
        a_resolved_compensation_ends_its_original,
        a_tool_that_dies_has_resolved_nothing,
        an_encoded_request_is_not_shown,
        an_unknown_effect_is_resolved_in_both_directions,
        status_and_doctor_name_effects_in_trouble,
    ]
}
