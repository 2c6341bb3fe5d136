//! What a build says of itself, held against what waits for it.
use super::{shop::Deployment, shop::Placed, shop::consumer, shop::publish};
use crate::support::{
    consumer::run_until,
    stores::{TestDb, World, effect, sql_of},
    tool::Tool,
    wait::in_time,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::{collections::BTreeSet, path::Path, process::Stdio, sync::Arc, time::Duration};
use tokio::io::AsyncWriteExt as _;
use twinbox::{
    Consumer, Delivery, Dialect, Draft, Event, HandlerResult, Manifest, Message, Timestamp, Tx,
    event_handler,
    inbox::DeadReason,
    log::{Reader, ReaderOptions, parking::ParkedState},
    ops::{
        Ops,
        replays::{NewReplay, Selection},
    },
};
use twinbox_testkit::park_deliveries;
use uuid::Uuid;

/// What the next build publishes.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "orders.placed", version = 2, previous = Placed)]
struct PlacedOnline {
    n: i64,
}

impl From<Placed> for PlacedOnline {
    fn from(old: Placed) -> Self {
        Self { n: old.n }
    }
}

#[event_handler(consumer = "billing.invoice")]
async fn invoice_online<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<PlacedOnline>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// Of the next version, as another build has published it.
fn newer(id: &str) -> Draft {
    Draft::raw("orders.placed", 2, r#"{"n":7}"#).id(id).key(id)
}

async fn publish_drafts<DB: Dialect>(world: &World<DB>, drafts: impl IntoIterator<Item = Draft>) {
    let mut tx = world.begin().await.unwrap();
    for draft in drafts {
        world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    }
    tx.commit().await.unwrap();
}

fn written(folder: &Path, manifest: &Manifest) -> String {
    let file = folder.join("manifest.json");
    std::fs::write(&file, manifest.to_json()).unwrap();
    file.to_str().unwrap().to_owned()
}

async fn a_build_that_cannot_read_what_waits_is_not_deployed<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    // One that the running build has given up.
    publish_drafts(&world, [newer("dead")]).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 1).await;
    let nats = Reader::open(&world, "nats", Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    nats.expect("nobody else reads").close().await.unwrap();
    // Those that wait: one that it can read, and one of another's type.
    publish(&world, 0..1).await;
    let later = newer("delayed").not_before(Timestamp::from_micros(i64::MAX / 2));
    let others = Draft::raw("stock.counted", 9, "{}").id("other");
    let redacted = newer("redacted").key("somebody");
    publish_drafts(&world, [newer("pending"), newer("pending-too"), later, others, redacted]).await;
    Ops::new(&world).redact("somebody").await.unwrap();
    let outbox = world.engine().table("outbox");
    let encoded = format!(
        "INSERT INTO {outbox} (id, type, version, key, headers, payload)
        SELECT id, type, version, key, '{{\"twinbox-codec\": \"aes\"}}', payload
        FROM {outbox}
        WHERE id = 'order-0';
        DELETE FROM {outbox}
        WHERE id = 'order-0' AND headers IS NULL"
    );
    sqlx::raw_sql(sql_of::<DB>(&encoded)).execute(world.pool()).await.unwrap();

    let (folder, tool) = (tempfile::tempdir().unwrap(), Tool::of(&world));
    let old = written(folder.path(), &consumer(&world, &deployed).manifest());
    let ran = tool.run(&["schemas", "check", &old, "-o", "json"]).await;
    let found = |standing: &str, of: &str, messages: u64, example: &str| {
        json!({
            "state": standing,
            "reader": (!of.is_empty()).then_some(of),
            "consumer": "billing.invoice",
            "event_type": "orders.placed",
            "version": 2,
            "codec": null,
            "messages": messages,
            "example": example,
            "problem": "version 2 is newer than 1, the newest known here",
        })
    };
    let encoded = |of: &str| {
        let mut finding = found("pending", of, 1, "order-0");
        finding["version"] = 1.into();
        finding["codec"] = "aes".into();
        finding["problem"] =
            "the payload was encoded with \"aes\", which is not configured here: give it to the \
            consumer's store with `StoreOptions::codec` or `StoreOptions::decoder`"
                .into();
        finding
    };
    let mut expected = vec![
        found("delayed", "", 1, "delayed"),
        found("dead", "consumer:billing.invoice", 1, "dead"),
        found("pending", "consumer:billing.invoice", 2, "pending"),
        encoded("consumer:billing.invoice"),
        // The broker's consumers get the first one as well.
        found("pending", "nats", 3, "dead"),
        encoded("nats"),
    ];
    let mut findings: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
    for list in [&mut expected, &mut findings] {
        list.sort_by_key(ToString::to_string);
    }
    assert_eq!(ran.code, 6, "{ran:?}");
    assert_eq!(findings, expected);
    let told = tool.run(&["schemas", "check", &old]).await;
    assert!(
        told.out.contains("2 messages of orders.placed version 2, pending at consumer:billing.invoice"),
        "{told:?}"
    );
    assert!(told.err.contains("would give up waiting messages"), "{told:?}");

    // The next build, with the codec.
    let next = Consumer::new((*world).clone(), ()).handler::<invoice_online>().manifest();
    assert_eq!(next, Manifest::new([]).with_type("billing.invoice", "orders.placed", vec![1, 2]));
    let with_codec =
        Manifest::new(["aes".to_owned()]).with_type("billing.invoice", "orders.placed", vec![1, 2]);
    let told = tool.ok(&["schemas", "check", &written(folder.path(), &with_codec)]).await;
    assert!(told.contains("The build can read all waiting messages"), "{told}");

    // A build without the consumer's handler: only what is its own already would be lost.
    let other = Manifest::new([]).with_type("billing.invoice", "stock.counted", vec![9]);
    let ran = tool.run(&["schemas", "check", &written(folder.path(), &other), "-o", "json"]).await;
    let findings: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, findings.len()), (6, 1), "{ran:?}");
    assert_eq!(findings[0]["problem"], "no handler for \"orders.placed\"");
}

async fn what_a_broker_may_still_keep_is_checked_if_asked<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish_drafts(&world, [newer("sent"), newer("long-ago").time(Timestamp::from_micros(0))]).await;
    let (folder, tool) = (tempfile::tempdir().unwrap(), Tool::of(&world));
    let manifest = Manifest::new([]).with_type("billing.invoice", "orders.placed", vec![1]);
    let manifest = written(folder.path(), &manifest);
    // Nobody has run here, so it is pending for nobody.
    tool.ok(&["schemas", "check", &manifest]).await;
    let ran = tool.run(&["schemas", "check", &manifest, "--since", "1h"]).await;
    assert!(
        ran.code == 6 && ran.out.starts_with("1 message of orders.placed version 2, published\n"),
        "{ran:?}"
    );
}

/// As a pipeline does it: the program prints, and the tool reads.
async fn a_manifest_comes_from_a_file_or_a_pipe<DB: TestDb>() {
    let (world, folder) = (World::<DB>::new().await, tempfile::tempdir().unwrap());
    let (tool, manifest) = (Tool::of(&world), Manifest::new([]).to_json());
    let nowhere = Tool::at::<DB>("/nowhere");
    let mut command = nowhere.command(&["schemas", "check", "-", "--against", tool.url()]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).await.unwrap();
    assert!(in_time(child.wait_with_output()).await.unwrap().status.success());

    let missing = folder.path().join("missing.json");
    for (text, expected) in
        [(None, "No such file"), (Some("{"), "not a manifest"), (Some("{}"), "twinbox_manifest")]
    {
        if let Some(text) = text {
            std::fs::write(&missing, text).unwrap();
        }
        let told = tool.ends(2, &["schemas", "check", missing.to_str().unwrap()]).await;
        assert!(told.contains("missing.json") && told.contains(expected), "{told}");
    }
}

/// Put aside by a relay and by a consumer, and on their way once more.
async fn what_is_put_aside_or_replayed_waits_as_well<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish_drafts(&world, ["waiting", "dead", "blocking", "replayed"].map(newer)).await;
    let nats =
        Reader::open(&world, "nats", Uuid::now_v7(), ReaderOptions::new().parking(true)).await.unwrap();
    let mut nats = nats.expect("nobody else reads");
    let mut taken = Vec::new();
    while taken.len() < 4 {
        taken.extend(in_time(nats.next(4)).await.unwrap());
    }
    let hour = Duration::from_secs(3600);
    let states =
        [Some(ParkedState::Waiting(hour)), Some(ParkedState::Dead), Some(ParkedState::Blocking), None];
    for (entry, state) in taken.into_iter().zip(states) {
        match state {
            Some(state) => nats.park(entry, state, 1, "no"),
            None => nats.settle(entry.ticket),
        }
    }
    nats.close().await.unwrap();
    let plan = Ops::new(&world).plan_replay("nats", &Selection::new()).await.unwrap();
    assert_eq!(plan.selected, 1);
    Ops::new(&world).make_replay(&plan, NewReplay::reprocess("billing.invoice", "ada")).await.unwrap();
    world.partition_leases("billing.invoice").create(1, &["orders.placed".to_owned()]).await.unwrap();
    let (fence, _) =
        world.partition_leases("billing.invoice").take(0, Uuid::now_v7(), hour).await.unwrap().unwrap();
    let mut message = newer("in-order").into_message("another");
    message.headers = vec![("a".to_owned(), "NUL \0, and \\u0000".to_owned())];
    park_deliveries(&world, "billing.invoice", fence, &[(message, hour)]).await.unwrap();

    let folder = tempfile::tempdir().unwrap();
    let manifest = Manifest::new([]).with_type("billing.invoice", "orders.placed", vec![1]);
    let ran =
        Tool::of(&world).run(&["schemas", "check", &written(folder.path(), &manifest), "-o", "json"]).await;
    let found: Vec<serde_json::Value> = serde_json::from_str(&ran.out).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("-").to_owned();
    let found = found
        .iter()
        .map(|one| (text(&one["state"]), text(&one["reader"]), one["messages"].as_u64().unwrap()));
    let expected = [
        ("dead", "nats", 2),
        ("parked", "consumer:billing.invoice", 1),
        ("parked", "nats", 1),
        ("replayed", "consumer:billing.invoice", 1),
    ];
    let expected = expected.map(|(standing, of, messages)| (standing.to_owned(), of.to_owned(), messages));
    assert_eq!(BTreeSet::from_iter(found), BTreeSet::from(expected), "{ran:?}");
}

/// What no build can read stops no deployment, and who is not of the build is named.
async fn what_is_nobodys_is_told_and_no_more<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let unreadable =
        Message::placeholder("x".to_owned(), "queue".to_owned(), Timestamp::from_micros(0), "{".into());
    world.inbox("billing.invoice").dead_letter(&unreadable, DeadReason::Undecodable, "no", 1).await.unwrap();
    let other = newer("of-another").into_message("another");
    world.inbox("billing.reminders").dead_letter(&other, DeadReason::Rejected, "no", 1).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let manifest = Manifest::new([]).with_type("billing.invoice", "orders.placed", vec![1]);
    let ran = Tool::of(&world).run(&["schemas", "check", &written(folder.path(), &manifest)]).await;
    assert!(
        ran.code == 0
            && ran.err.contains("Not checked, because the build does not have them: billing.reminders."),
        "{ran:?}"
    );
}

crate::support::cases::cases! {
    all: [
        what_is_put_aside_or_replayed_waits_as_well,
        what_is_nobodys_is_told_and_no_more,
        a_build_that_cannot_read_what_waits_is_not_deployed,
        what_a_broker_may_still_keep_is_checked_if_asked,
        a_manifest_comes_from_a_file_or_a_pipe,
    ]
}
