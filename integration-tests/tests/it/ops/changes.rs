//! Pausing, parked messages, the path of one message, and the output of the tool.
use super::shop::Deployed;
use crate::schema::MIGRATIONS;
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, TestDb, World, effect},
    tool::Tool,
    wait::{eventually, in_time},
};
use serde_json::json;
use std::time::Duration;
use twinbox::{
    Consumer, Delivery, Dialect, Draft, HandlerError, HandlerResult, Tx, event_handler,
    log::{Reader, ReaderOptions, parking::ParkedState},
    ops::Ops,
};
use twinbox_testkit::park_deliveries;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);

#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    match order.n {
        13 => Err(HandlerError::reject("unlucky")),
        n => Ok(effect::<DB>(tx, n).await?),
    }
}

fn consumer<DB: TestDb>(world: &World<DB>) -> Consumer<DB, ()> {
    Consumer::new((**world).clone(), ()).handler::<invoice>()
}

/// The first step after a bad deployment. The pause survives a restart.
async fn a_paused_consumer_takes_nothing_until_it_is_resumed<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    tool.ends(3, &["consumers", "pause", "billing.invoice", "--yes"]).await;
    publish(&world, 0..1).await;
    run_until(consumer(&world), async || world.effects().await.len() == 1).await;
    tool.ok(&["consumers", "pause", "billing.invoice", "--yes", "--reason", "bad deploy"]).await;
    publish(&world, 1..2).await;
    let starting = consumer(&world);
    let status = starting.status();
    let running = Deployed::start(starting);
    let paused =
        |one: &twinbox::consumer::ConsumerStatus| one.state == twinbox::consumer::ConsumerState::Paused;
    eventually(async || status.consumers().iter().any(paused).then_some(())).await;
    assert!(status.is_ready());
    let listed = tool.json(&["consumers", "list"]).await;
    assert_eq!((&listed[0]["state"], &listed[0]["paused"]), (&json!("paused"), &json!("bad deploy")));
    assert_eq!(world.effects().await.len(), 1);
    tool.ok(&["consumers", "resume", "billing.invoice", "--yes"]).await;
    eventually(async || (world.effects().await.len() == 2).then_some(())).await;
    // And while it runs.
    tool.ok(&["consumers", "pause", "billing.invoice", "--yes"]).await;
    eventually(async || status.consumers().iter().any(paused).then_some(())).await;
    running.stop().await;
}

/// What became of one message, by either of its ids.
async fn a_message_is_followed_through_everything<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    publish(&world, 13..15).await;
    run_until(consumer(&world), async || world.rows("inbox").await == 2).await;
    let published = world.published("orders.placed", 10).await.unwrap();
    let (unlucky, fine) = (&published[0], &published[1]);
    let by_message_id = fine.message_id().to_string();
    for id in [&fine.id, &by_message_id] {
        let shown = tool.json(&["messages", "show", id]).await;
        assert_eq!(shown["logged"][0]["event_id"], json!(fine.id));
        let destination = &shown["logged"][0]["destinations"][0];
        assert_eq!(destination, &json!({"destination": "consumer:billing.invoice", "state": "settled"}));
        assert_eq!(shown["consumers"][0]["state"], "processed");
    }
    let shown = tool.json(&["messages", "show", &unlucky.id]).await;
    assert_eq!(
        (&shown["consumers"][0]["state"], &shown["dead_letters"][0]["error"]),
        (&json!("rejected"), &json!("unlucky"))
    );
    let told = tool.ok(&["messages", "show", &unlucky.id]).await;
    assert!(told.contains("billing.invoice: rejected at") && told.contains("\"n\": 13"), "{told}");
    publish(&world, 20..21).await;
    let pending = &world.published("orders.placed", 10).await.unwrap()[2];
    let shown = tool.json(&["messages", "show", &pending.id]).await;
    assert_eq!(shown["logged"][0]["destinations"][0]["state"], "pending");
    tool.ends(3, &["messages", "show", "nothing"]).await;
}

async fn the_messages_of_a_key_are_listed_the_newest_first<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    let mut tx = world.begin().await.unwrap();
    let keys = ["k-1", "k-2", "k-1", "k-1"];
    let drafts =
        (0..).zip(keys).map(|(n, key)| Draft::of(&Placed { n }).unwrap().id(format!("o-{n}")).key(key));
    world.outbox().publish_all(&mut tx, drafts.collect()).await.unwrap();
    tx.commit().await.unwrap();
    let ids = async |arguments: &[&str]| {
        let listed = tool.json(&[&["messages", "list", "--key", "k-1"], arguments].concat()).await;
        let rows = listed.as_array().unwrap().iter().map(|row| row["event_id"].as_str().unwrap().to_owned());
        Vec::from_iter(rows)
    };
    assert_eq!(ids(&[]).await, ["o-3", "o-2", "o-0"]);
    assert_eq!(ids(&["--limit", "2"]).await, ["o-3", "o-2"]);
    assert_eq!(ids(&["--since", "2999-01-01T00:00:00Z"]).await, [""; 0]);
    tool.ends(2, &["messages", "list"]).await;
    tool.ends(2, &["messages", "list", "--key", "k-1", "--consumer", "billing.invoice"]).await;
}

async fn park<DB: TestDb>(world: &World<DB>, parked: ParkedState) {
    let options = ReaderOptions::new().parking(true);
    let mut reader = Reader::open(world, "nats", Uuid::now_v7(), options).await.unwrap().unwrap();
    let mut left = 1;
    while left > 0 {
        for entry in in_time(reader.next(1)).await.unwrap() {
            reader.park(entry, parked, 3, "nats.10077");
            left -= 1;
        }
    }
    reader.close().await.unwrap();
}

/// One key is stuck behind a dead letter: it goes on, or the dead letter is redriven.
async fn a_stuck_key_is_let_go_on<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    publish(&world, 1..2).await;
    park(&world, ParkedState::DeadHoldingKey).await;
    let dead_letters = tool.json(&["dead-letters", "list", "--each"]).await;
    assert_eq!(
        (&dead_letters[0]["id"], &dead_letters[0]["owner"], &dead_letters[0]["error"]),
        (&json!("nats@1"), &json!("nats"), &json!("nats.10077"))
    );
    let shown = tool.json(&["dead-letters", "show", "nats@1"]).await;
    assert_eq!(shown["payload"], json!({"n": 1}));
    tool.ends(3, &["keys", "unblock", "2", "--destination", "nats", "--yes"]).await;
    let unknown = tool.ends(3, &["keys", "unblock", "1", "--destination", "nuts", "--yes"]).await;
    assert!(unknown.contains("known are nats"), "{unknown}");
    tool.ok(&["keys", "unblock", "1", "--destination", "nats", "--yes"]).await;
    tool.ends(3, &["keys", "unblock", "1", "--destination", "nats", "--yes"]).await;
    let holding = format!("SELECT count(*) FROM {} WHERE blocks_key = true", DB::table_of("parked_messages"));
    assert_eq!(world.number(&*holding).await, 0);
    tool.ok(&["dead-letters", "redrive", "nats@1", "--yes"]).await;
    let waiting = format!(
        "SELECT count(*) FROM {} WHERE state = 'waiting' AND attempts = 0",
        DB::table_of("parked_messages")
    );
    assert_eq!((world.number(waiting).await, world.number(&*holding).await), (1, 1));
    let id = world.published("orders.placed", 1).await.unwrap()[0].id.clone();
    tool.ok(&["messages", "skip", &id, "--destination", "nats", "--yes"]).await;
    tool.ends(3, &["messages", "skip", &id, "--destination", "nats", "--yes"]).await;
    assert_eq!(world.number(holding).await, 0);
    tool.ok(&["dead-letters", "discard", "nats@1", "--yes", "--reason", "gone"]).await;
    assert_eq!(world.rows("parked_messages").await, 0);
    tool.ok(&["destinations", "retire", "nats", "--yes"]).await;
    assert_eq!(tool.json(&["destinations", "list"]).await, json!([]));
}

/// The names of all fields, which programs go by.
async fn what_is_printed_as_json_has_these_fields<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    publish(&world, 13..14).await;
    run_until(consumer(&world), async || world.rows("inbox").await == 1).await;
    let run = ["replays", "run", "resend", "--to", "consumer:billing.invoice", "--all", "--no-wait"];
    let change = "command count database dry_run service target";
    let fields = |value: &serde_json::Value| {
        let record = value.as_array().map_or(value, |records| &records[0]);
        record.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let status = tool.json(&["status", "--max-unowned", "1h"]).await;
    let replay = "consumer destination done ended_at id kind made_at made_by rate reason refusals refused \
                  selected \
        selection state state_text to token";
    for (printed, expected) in [
        (tool.json(&["consumers", "pause", "billing.invoice", "--yes"]).await, change),
        (tool.json(&["destinations", "resume", "consumer:billing.invoice", "--dry-run"]).await, change),
        (tool.json(&[&run[..], &["--yes"]].concat()).await, replay),
        (tool.json(&["replays", "show", "1"]).await, replay),
        (tool.json(&["dead-letters", "redrive", "--all", "--dry-run"]).await, change),
        (tool.json(&["keys", "redact", "7", "--dry-run"]).await, change),
        (status.clone(), "alarms consumers database destinations effects replays service"),
        (
            status["destinations"].clone(),
            "backlog backlog_counted_to blocking dead_letters lease_seconds name oldest_seconds parked \
             paused state",
        ),
        (status["consumers"].clone(), "consumer dead_letters parked paused silent_seconds state"),
        (
            tool.json(&["consumers", "lag"]).await,
            "behind behind_counted_to consumer counted_to dead_letters last_claim_seconds \
             oldest_dead_letter_seconds oldest_parked_seconds oldest_seconds parked partitions reads state \
             unacknowledged unknown_because",
        ),
        (
            tool.json(&["replays", "list"]).await,
            "consumer destination done ended_at id kind made_at made_by rate reason refused selected \
             selection \
             state state_text to token",
        ),
        (
            tool.json(&["replays", "plan", "resend", "--to", "consumer:billing.invoice"]).await,
            "consumer destination kind purged sample selected selection types",
        ),
        (
            tool.json(&["dead-letters", "list"]).await,
            "dead_letters error event_type fingerprint first_given_up_at has_more last_given_up_at newest \
             owner owner_kind reason redriven",
        ),
        (
            tool.json(&["dead-letters", "list", "--each"]).await,
            "attempts error event_id event_type fingerprint given_up_at id key message_id owner owner_kind \
             reason \
             redriven source time",
        ),
        (tool.json(&["audit", "list"]).await, "at command count database_user id operator reason target"),
        (tool.json(&["schemas", "show"]).await, "newest service version"),
        (tool.json(&["config", "print"]).await, "from name value"),
    ] {
        assert_eq!(fields(&printed), expected);
    }
    assert_eq!(fields(&tool.json(&["status"]).await["replays"]), "done id selected state to");
    let lines = tool.ok(&["audit", "list", "-o", "jsonl"]).await;
    assert_eq!(lines.lines().count(), 2);
}

/// 7 tells a monitor that something is wrong, and what.
async fn the_status_ends_with_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    assert!(tool.ok(&["status"]).await.contains("Nothing is wrong"));
    publish(&world, 0..1).await;
    park(&world, ParkedState::Blocking).await;
    let ran = tool.run(&["status", "--max-unowned", "0s"]).await;
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(
        ran.out.contains("a dead letter blocks nats") && ran.out.contains("no process has run nats"),
        "{ran:?}"
    );
    assert!(!ran.out.contains('\u{1b}'), "no colours, no cursor: {ran:?}");
}

/// Asked for, and on record as soon as there is a record.
async fn tables_are_made_when_they_are_asked_for<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::at::<DB>(world.owner_url());
    let up = ["--namespace", "other", "schemas", "migrate", "--service", "shop"];
    let status = ["--namespace", "other", "schemas", "show"];
    assert!(tool.ends(2, &up[..4]).await.contains("`--service NAME`"));
    assert!(tool.ends(2, &up).await.contains(&format!("version {MIGRATIONS}")));
    tool.ok(&[&up[..], &["--dry-run"]].concat()).await;
    tool.ends(4, &status).await;
    assert!(tool.ok(&[&up[..], &["--yes"]].concat()).await.contains("up to date"));
    assert!(tool.ok(&status).await.contains("up to date"));
    // With nothing to do there is nothing to ask.
    tool.ok(&up[..4]).await;
    let audit = tool.json(&["--namespace", "other", "audit", "list"]).await;
    let entry = json!({"command": "schemas migrate", "count": MIGRATIONS, "operator": "ada",
            "target": format!("from version 0 to {MIGRATIONS}")});
    assert_eq!(audit.as_array().unwrap().len(), 1, "{audit}");
    for field in ["command", "count", "operator", "target"] {
        assert_eq!(audit[0][field], entry[field]);
    }
    let another = tool.ends(4, &[&up[..4], &["--service", "bank"]].concat()).await;
    assert!(another.contains("belong to the service \"shop\""), "{another}");
}

/// A doctor finds what is wrong before somebody loses something by it.
async fn a_doctor_says_what_is_set_up_and_what_is_wrong<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    publish(&world, 0..1).await;
    park(&world, ParkedState::Blocking).await;
    let ran = tool.run(&["doctor", "-o", "json"]).await;
    assert_eq!(ran.code, 7, "{ran:?}");
    let findings: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let verdict = |what: &str| {
        let found = findings.as_array().unwrap().iter().find(|finding| finding["what"] == what);
        found.unwrap_or_else(|| panic!("{what}: {findings}"))["verdict"].clone()
    };
    assert_eq!((verdict("tables"), verdict("clock")), (json!("ok"), json!("ok")));
    assert_eq!(verdict("destination nats"), "wrong");
    let durable = match DB::MODULE {
        "postgres" => "full_page_writes",
        "mysql" => "innodb_flush_log_at_trx_commit",
        _ => "synchronous",
    };
    assert!(["ok", "wrong"].contains(&verdict(durable).as_str().unwrap()));
}

/// What a consumer has put aside is told, and can be tried at once.
async fn parked_deliveries_are_told_and_tried_at_once<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    publish(&world, 0..1).await;
    run_until(consumer(&world), async || world.effects().await.len() == 1).await;
    world.partition_leases("billing.invoice").create(1, &["orders.placed".to_owned()]).await.unwrap();
    let taken = world.partition_leases("billing.invoice").take(0, Uuid::now_v7(), HOUR).await.unwrap();
    let (fence, _) = taken.expect("nobody has it");
    let message = crate::support::stores::placed(7);
    park_deliveries(&world, "billing.invoice", fence, &[(message.clone(), HOUR)]).await.unwrap();
    let is_due = async || {
        let parked = Ops::new(&world).parked_deliveries("billing.invoice", 10).await.unwrap().remove(0);
        parked.next_attempt_at <= world.now().await.unwrap()
    };
    let parked = tool.json(&["messages", "list", "--consumer", "billing.invoice"]).await;
    assert_eq!((&parked[0]["event_id"], &parked[0]["key"]), (&json!(message.id), &json!("7")));
    let of_key = async |key| Ops::new(&world).parked_deliveries_of_key(key, 10).await.unwrap();
    let (found, other) = (of_key("7").await, of_key("8").await);
    assert_eq!((found.len(), other.len()), (1, 0));
    assert_eq!((&*found[0].0, &found[0].1.event_id), ("billing.invoice", &message.id));
    assert!(!is_due().await);
    tool.ok(&["messages", "retry", "--consumer", "billing.invoice", "--key", "8", "--yes"]).await;
    assert!(!is_due().await);
    tool.ok(&["messages", "retry", "--consumer", "billing.invoice", "--yes"]).await;
    assert!(is_due().await);
}

cases! {
    all: [
        a_doctor_says_what_is_set_up_and_what_is_wrong,
        tables_are_made_when_they_are_asked_for,
        parked_deliveries_are_told_and_tried_at_once,
        a_paused_consumer_takes_nothing_until_it_is_resumed,
        a_message_is_followed_through_everything,
        the_messages_of_a_key_are_listed_the_newest_first,
        a_stuck_key_is_let_go_on,
        what_is_printed_as_json_has_these_fields,
        the_status_ends_with_an_alarm,
    ]
}
