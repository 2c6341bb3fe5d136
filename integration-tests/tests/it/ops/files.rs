//! Dead letters in files: exported, mended, imported, and listed for other commands.
use super::shop::Deployed;
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, TestDb, World, effect, placed},
    tool::Tool,
    wait::eventually,
};
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};
use twinbox::{
    Consumer, Delivery, Dialect, Draft, HandlerError, HandlerResult, Message, Timestamp, Tx, event_handler,
    inbox::DeadReason,
};

const CONSUMER: &str = "billing.invoice";
const DISCARD: [&str; 6] = ["dead-letters", "discard", "--yes", "--reason", "a test", "--listed-in"];

/// Whether billing can handle negative orders, and the number of mails.
#[derive(Default)]
struct Shop {
    is_fixed: AtomicBool,
    mails: AtomicU64,
}

#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(
    shop: &Arc<Shop>,
    tx: &mut Tx<'_, DB>,
    order: Delivery<Placed>,
) -> HandlerResult {
    match shop.is_fixed.load(SeqCst) {
        true => Ok(effect::<DB>(tx, order.n).await?),
        false => Err(HandlerError::reject("no customer")),
    }
}

#[event_handler(consumer = "mails.confirm")]
async fn confirm<DB: Dialect>(shop: &Arc<Shop>, _: &mut Tx<'_, DB>, _: Delivery<Placed>) -> HandlerResult {
    shop.mails.fetch_add(1, SeqCst);
    Ok(())
}

fn consumers<DB: TestDb>(world: &World<DB>, shop: &Arc<Shop>) -> Consumer<DB, Arc<Shop>> {
    Consumer::new((**world).clone(), shop.clone()).handler::<invoice>().handler::<confirm>()
}

/// A folder with the exported dead letters of a world.
struct Exported {
    _folder: tempfile::TempDir,
    path: String,
}

impl Exported {
    async fn new(tool: &Tool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dead-letters.jsonl").to_str().unwrap().to_owned();
        tool.ok(&["dead-letters", "export", "--all", "--file", &path]).await;
        Self { _folder: folder, path }
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn edit(&self, edit: impl Fn(&mut Value)) {
        let lines = self.lines().into_iter().map(|mut line| {
            edit(&mut line);
            line.to_string() + "\n"
        });
        std::fs::write(&self.path, lines.collect::<String>()).unwrap();
    }
}

/// A world in which billing has given up some messages.
async fn given_up<DB: TestDb>(count: i64) -> World<DB> {
    let world = World::<DB>::new().await;
    world.inbox(CONSUMER).heartbeat(None).await.unwrap();
    for n in 0..count {
        let (message, reason) = (placed(n), DeadReason::Rejected);
        assert!(world.inbox(CONSUMER).dead_letter(&message, reason, "no customer", 1).await.unwrap());
    }
    world
}

/// A healthy consumer would charge again for a message that only another one has given up.
async fn an_import_reaches_only_the_consumer_that_gave_up<DB: TestDb>() {
    let (world, shop) = (World::<DB>::new().await, Arc::new(Shop::default()));
    publish(&world, 7..8).await;
    run_until(consumers(&world, &shop), async || world.rows("inbox").await == 2).await;
    assert_eq!((world.rows("dead_letters").await, shop.mails.load(SeqCst)), (1, 1));
    let tool = Tool::of(&world);
    let exported = Exported::new(&tool).await;
    exported.edit(|line| line["payload"]["n"] = json!(70));
    let import = ["dead-letters", "import", &exported.path, "--yes"];
    assert_eq!(tool.json(&import).await["count"], 1);
    assert_eq!(tool.json(&import).await["count"], 0, "the same message");
    assert_eq!(world.rows("outbox").await, 1, "nothing is published");

    shop.is_fixed.store(true, SeqCst);
    let running = Deployed::start(consumers(&world, &shop));
    eventually(async || (world.effects().await == [70]).then_some(())).await;
    eventually(async || (world.rows("dead_letters").await == 1).then_some(())).await;
    assert_eq!(tool.json(&import).await["count"], 0, "it is handled");
    tool.ok(&[&DISCARD[..], &[&exported.path]].concat()).await;
    // Every consumer gets a published one, so mails are sent again.
    exported.edit(|line| line["payload"]["n"] = json!(71));
    tool.ok(&[&import[..], &["--to-all-consumers"]].concat()).await;
    eventually(async || (world.effects().await == [70, 71]).then_some(())).await;
    eventually(async || (shop.mails.load(SeqCst) == 2).then_some(())).await;
    running.stop().await;
    assert_eq!((world.effects().await, shop.mails.load(SeqCst)), (vec![70, 71], 2));
}

/// The mended message is the old one but for its id, its cause and its payload.
async fn an_import_keeps_the_time_and_the_trace<DB: TestDb>() {
    let (world, shop) = (World::<DB>::new().await, Arc::new(Shop::default()));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let time = Timestamp::parse("2026-01-02T03:04:05Z").unwrap();
    let draft = Draft::of(&Placed { n: 7 }).unwrap().time(time).traceparent(trace).header("region", "eu");
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish_draft(&mut tx, draft.subject("orders/7").correlation_id("c-1")).await.unwrap();
    tx.commit().await.unwrap();
    run_until(consumers(&world, &shop), async || world.rows("inbox").await == 2).await;
    let tool = Tool::of(&world);
    let exported = Exported::new(&tool).await;
    let old = exported.lines().remove(0);
    tool.ok(&["dead-letters", "import", &exported.path, "--yes"]).await;
    let new = tool.json(&["dead-letters", "show", "2"]).await;
    for field in ["time", "traceparent", "subject", "correlation_id", "headers", "source", "type", "payload"]
    {
        assert_eq!(new[field], old[field], "{field}");
    }
    assert_eq!((&new["traceparent"], &new["causation_id"]), (&json!(trace), &old["message_id"]));
    tool.ok(&["dead-letters", "import", &exported.path, "--yes", "--to-all-consumers"]).await;
    let published = world.published("orders.placed", 10).await.unwrap();
    assert_eq!((published[1].time, published[1].traceparent.as_deref()), (time, Some(trace)));
}

async fn a_redacted_message_is_not_imported<DB: TestDb>() {
    let world = given_up::<DB>(2).await;
    let tool = Tool::of(&world);
    let before = Exported::new(&tool).await;
    tool.ok(&["keys", "redact", "1", "--yes"]).await;
    let after = Exported::new(&tool).await;
    for (exported, code, expected) in [
        (&before, 4, "line 2: dead letter 2 was redacted after the export"),
        (&after, 2, "line 2: its payload was redacted"),
    ] {
        let refused = tool.ends(code, &["dead-letters", "import", &exported.path, "--yes"]).await;
        assert!(refused.contains(expected), "{refused}");
    }
    tool.ends(2, &["dead-letters", "import", &after.path, "--yes", "--to-all-consumers"]).await;
    assert_eq!((world.rows("dead_letters").await, world.rows("outbox").await), (2, 0), "nothing is imported");
}

/// Its consumer would take the beginning for the whole.
async fn a_message_that_is_cut_is_imported_when_it_is_whole<DB: TestDb>() {
    let world = given_up::<DB>(0).await;
    let tool = Tool::of(&world);
    let mut message = Message { payload: "{\"n\":1}, and more".into(), ..placed(1) };
    message.cut_payload(7);
    world.inbox(CONSUMER).dead_letter(&message, DeadReason::Undecodable, "no", 0).await.unwrap();
    let exported = Exported::new(&tool).await;
    let import = ["dead-letters", "import", &exported.path, "--yes"];
    let refused = tool.ends(2, &import).await;
    assert!(refused.contains("line 1: its payload is only the beginning of one"), "{refused}");
    assert_eq!(world.rows("dead_letters").await, 1);
    exported.edit(|line| line["headers"] = json!([]));
    assert_eq!(tool.json(&import).await["count"], 1);
}

/// Otherwise it would act on all dead letters, or on all that meet the other conditions.
async fn an_empty_list_selects_nothing<DB: TestDb>() {
    let world = given_up::<DB>(2).await;
    let tool = Tool::of(&world);
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for more in [&[][..], &["--consumer", CONSUMER], &["--all"]] {
        let refused = tool.ends(2, &[&DISCARD[..], &[path], more].concat()).await;
        assert!(refused.contains("lists no dead letter"), "{refused}");
    }
    tool.ends(2, &["dead-letters", "import", path, "--yes"]).await;
    assert_eq!(world.rows("dead_letters").await, 2);
    assert_eq!(tool.json(&["audit", "list"]).await, json!([]));
}

async fn a_list_acts_on_its_dead_letters_and_the_audit_names_it<DB: TestDb>() {
    let world = given_up::<DB>(3).await;
    let tool = Tool::of(&world);
    let exported = Exported::new(&tool).await;
    let text = std::fs::read_to_string(&exported.path).unwrap();
    std::fs::write(&exported.path, text.lines().take(2).collect::<Vec<_>>().join("\n")).unwrap();
    tool.ok(&[&DISCARD[..], &[&exported.path]].concat()).await;
    assert_eq!(world.rows("dead_letters").await, 1);
    let target = json!(format!("listed in {}", exported.path));
    assert_eq!(tool.json(&["audit", "list"]).await[0]["target"], target);
    // The others are gone, which is told.
    std::fs::write(&exported.path, text).unwrap();
    let partial = tool.ends(5, &[&DISCARD[..], &[&exported.path]].concat()).await;
    assert!(partial.contains("no longer exist: 1, 2"), "{partial}");
    assert_eq!(world.rows("dead_letters").await, 0);
}

/// There the same numbers are other dead letters.
async fn a_file_of_another_database_is_refused<DB: TestDb>() {
    let (world, other) = (given_up::<DB>(2).await, given_up::<DB>(2).await);
    let (tool, elsewhere) = (Tool::of(&world), Tool::of(&other));
    let exported = Exported::new(&elsewhere).await;
    let foreign = tool.ends(4, &[&DISCARD[..], &[&exported.path]].concat()).await;
    assert!(foreign.contains("line 1: it was exported from service"), "{foreign}");
    tool.ends(4, &["dead-letters", "import", &exported.path, "--yes"]).await;
    // Nor does a number count that is another message's.
    let own = Exported::new(&tool).await;
    own.edit(|line| line["message_id"] = json!("00000000-0000-8000-8000-000000000000"));
    let refused = tool.ends(4, &[&DISCARD[..], &[&own.path]].concat()).await;
    assert!(refused.contains("of other messages than in the file: 1, 2"), "{refused}");
    assert_eq!((world.rows("dead_letters").await, other.rows("dead_letters").await), (2, 2));
}

async fn an_import_for_an_unknown_consumer_is_refused<DB: TestDb>() {
    let world = given_up::<DB>(1).await;
    let tool = Tool::of(&world);
    let exported = Exported::new(&tool).await;
    exported.edit(|line| line["owner"] = json!("billing.invoce"));
    let refused = tool.ends(3, &["dead-letters", "import", &exported.path, "--yes"]).await;
    assert!(
        refused.contains("line 1: consumer \"billing.invoce\" is unknown: known are billing.invoice"),
        "{refused}"
    );
    exported.edit(|line| line["dead_letter"] = json!("nats@1"));
    let refused = tool.ends(2, &["dead-letters", "import", &exported.path, "--yes"]).await;
    assert!(refused.contains("--to-all-consumers"), "{refused}");
    assert_eq!(world.rows("dead_letters").await, 1);
}

cases! {
    all: [
        an_import_reaches_only_the_consumer_that_gave_up,
        an_import_keeps_the_time_and_the_trace,
        a_redacted_message_is_not_imported,
        a_message_that_is_cut_is_imported_when_it_is_whole,
        an_empty_list_selects_nothing,
        a_list_acts_on_its_dead_letters_and_the_audit_names_it,
        a_file_of_another_database_is_refused,
        an_import_for_an_unknown_consumer_is_refused,
    ]
}
