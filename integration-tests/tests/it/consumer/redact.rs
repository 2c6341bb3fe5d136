//! Messages of a key that are blanked: nobody handles them, and everything else goes on.
use crate::support::{
    cases::cases,
    consumer::run_until,
    database::SERVICE,
    relay::{Running, Target},
    stores::{Placed, TestDb, World, effect, failed},
    tool::Tool,
    wait::in_time,
};
use std::{
    os::unix::process::ExitStatusExt as _,
    sync::{Arc, Mutex},
    time::Duration,
};
use twinbox::{
    BatchTx, Consumer, Delivery, DeliveryOutcome, Dialect, Draft, HandlerError, HandlerResult, Message,
    Store, Timestamp, Tx, event_handler,
    log::{Entry, Log, Reader, ReaderOptions, parking::ParkedState},
    ops::{Ops, RedactReport},
};
use uuid::Uuid;

const CONSUMER: &str = "tests.redact";
const REJECT: i64 = 8;
const FAIL: i64 = 9;

#[event_handler(consumer = "tests.redact", concurrency = 1)]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    match order.n {
        REJECT => Err(HandlerError::reject("Ada's order")),
        FAIL => Err("Ada's order".into()),
        n => Ok(effect::<DB>(tx, n).await?),
    }
}

/// How large batches were.
type Sizes = Arc<Mutex<Vec<usize>>>;

#[event_handler(consumer = "tests.redact.batch", batch = 10)]
async fn note_all<DB: Dialect>(
    sizes: &Sizes,
    tx: &mut BatchTx<'_, DB>,
    orders: Vec<Delivery<Placed>>,
) -> HandlerResult {
    sizes.lock().unwrap().push(orders.len());
    for order in orders {
        effect::<DB>(tx, 1_000 + order.n).await?;
    }
    Ok(())
}

/// `Placed { n }` with a header of its own.
fn draft(n: i64) -> Draft {
    Draft::of(&Placed { n }).unwrap().header("name", "Ada")
}

async fn publish<DB: Dialect>(store: &Store<DB>, drafts: impl IntoIterator<Item = Draft>) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_all(&mut tx, drafts.into_iter().collect()).await.unwrap();
    tx.commit().await.unwrap();
}

/// The messages of the log.
async fn rows<DB: Dialect>(store: &Store<DB>) -> Vec<Message> {
    store.published("orders.placed", 10_000).await.unwrap()
}

/// Log, waiting, dead letters.
async fn redact<DB: Dialect>(store: &Store<DB>, key: &str) -> (u64, u64, u64) {
    let RedactReport { outbox, delayed, dead_letters, .. } = Ops::new(store).redact(key).await.unwrap();
    (outbox, delayed, dead_letters)
}

#[track_caller]
fn assert_blank(message: &Message) {
    assert!(message.is_redacted(), "{message:?}");
    assert_eq!(message.headers, [("twinbox-redacted".to_owned(), "true".to_owned())]);
}

/// One by one and in batches; the other keys are as they were, and so is the order.
async fn a_redacted_message_is_passed_by_and_other_keys_are_handled<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, [1, 2, 1, 3].map(draft)).await;
    let before = rows(&world).await;
    assert_eq!(redact(&world, "1").await, (2, 0, 0));
    for (old, new) in before.iter().zip(rows(&world).await) {
        if old.key.as_deref() == Some("1") {
            assert_blank(&new);
            let kept = Message { payload: old.payload.clone(), headers: old.headers.clone(), ..new };
            assert_eq!(&kept, old);
        } else {
            assert_eq!(&new, old);
        }
    }
    let consumer = Consumer::new((*world).clone(), ()).handler::<note>();
    run_until(consumer, async || world.effects().await.len() == 2).await;
    let sizes = Sizes::default();
    let consumer = Consumer::new((*world).clone(), sizes.clone()).handler::<note_all>();
    run_until(consumer, async || world.effects().await.len() == 4).await;
    assert_eq!(*sizes.lock().unwrap(), [2], "the others stay a batch");
    assert_eq!(world.effects().await, [2, 3, 1_002, 1_003]);
    assert_eq!((world.rows("inbox").await, world.rows("dead_letters").await), (4, 0));
    assert_eq!(redact(&world, "1").await, (2, 0, 0), "again, with nothing else");
    assert_eq!(redact(&world, "nobody").await, (0, 0, 0));
}

/// It was handled with its payload; the inbox, which knows that one, is not asked. One that failed is
/// forgotten.
async fn a_redacted_copy_raises_no_alarm_and_forgets_failures<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, [1, FAIL].map(draft)).await;
    let [handled, failing] = &rows(&world).await[..] else { panic!("two") };
    assert_eq!(world.deliver::<note>(handled).await, DeliveryOutcome::Handled);
    assert!(failed(&world.deliver::<note>(failing).await, "Ada's order"));
    assert_eq!((redact(&world, "1").await, redact(&world, "9").await), ((1, 0, 0), (1, 0, 0)));
    for blank in &rows(&world).await {
        assert_eq!(world.deliver::<note>(blank).await, DeliveryOutcome::Redacted);
    }
    assert_eq!((world.rows("attempts").await, world.rows("inbox").await), (0, 1));
    assert_eq!(world.effects().await, [1]);
}

async fn a_message_that_waits_and_a_dead_letter_are_blanked<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, [draft(REJECT), draft(REJECT + 100)]).await;
    for row in rows(&world).await {
        world.deliver::<note>(&row).await;
    }
    let other = draft(1).not_before(Timestamp::from_micros(0));
    publish(&world, [draft(REJECT).not_before(Timestamp::from_micros(0)), other]).await;
    assert_eq!(redact(&world, "8").await, (1, 1, 1));

    let dead_letter = &world.inbox(CONSUMER).dead_letters(10).await.unwrap()[0];
    assert_blank(&dead_letter.message);
    assert_eq!((dead_letter.reason.as_str(), dead_letter.error.as_str()), ("rejected", "redacted"));
    assert_eq!(Log::new(&world).move_due(10).await.unwrap().messages, 2);
    let rows = rows(&world).await;
    assert_blank(&rows[2]);
    assert_eq!(rows[3].payload, draft(1).into_message("test").payload);
    let consumer = Consumer::new((*world).clone(), ()).handler::<note>();
    run_until(consumer, async || world.effects().await.contains(&1)).await;
    assert_eq!(world.rows("dead_letters").await, 1);
}

async fn take<DB: Dialect>(reader: &mut Reader<DB>) -> Entry {
    loop {
        if let Some(entry) = in_time(reader.next(1)).await.unwrap().pop() {
            return entry;
        }
    }
}

async fn a_parked_message_comes_back_blank_in_its_place<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, [1, 1].map(draft)).await;
    let options = ReaderOptions::new().parking(true);
    let mut reader = Reader::open(&world, "d", Uuid::now_v7(), options).await.unwrap().unwrap();
    let first = take(&mut reader).await;
    let sequence = first.message.sequence;
    reader.park(first, ParkedState::Waiting(Duration::ZERO), 1, "test.refused");
    reader.close().await.unwrap();
    assert_eq!(redact(&world, "1").await, (2, 0, 0));
    let options = ReaderOptions::new().parking(true);
    let mut reader = Reader::open(&world, "d", Uuid::now_v7(), options).await.unwrap().unwrap();
    for nth in [sequence, sequence.map(|n| n + 1)] {
        let entry = take(&mut reader).await;
        assert_blank(&entry.message);
        assert_eq!(entry.message.sequence, nth);
        reader.settle(entry.ticket);
    }
    reader.close().await.unwrap();
}

/// The relay sends it as it is.
async fn a_redacted_message_goes_through_a_broker_and_is_passed_by<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, [1, 2].map(draft)).await;
    assert_eq!(redact(&world, "1").await, (1, 0, 0));
    let target = Target::shared();
    let relay = Running::start(&*world, &target);
    relay.published(2).await;
    relay.stop().await;
    // One at a time, so that the blank one is done with when the other is handled.
    let consumer = Consumer::new((*world).clone(), ()).transport(target.destination()).handler::<note>();
    run_until(consumer, async || world.effects().await == [2]).await;
    assert_eq!((world.rows("dead_letters").await, world.rows("inbox").await), (0, 1));
}

/// Only Twinbox's own mark on an empty payload counts.
async fn a_message_with_a_payload_is_handled_whatever_its_headers_say<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut forged = draft(1).into_message(SERVICE);
    forged.headers.push(("twinbox-redacted".into(), "true".into()));
    assert_eq!(world.deliver::<note>(&forged).await, DeliveryOutcome::Handled);
}

/// Some of it is blank then, and the next run does the rest.
async fn killed_half_way_it_is_run_again<DB: TestDb>() {
    let world = World::<DB>::new().await;
    publish(&world, (0..2_500).map(|_| draft(1))).await;
    publish(&world, [draft(2)]).await;
    let (tool, redact) = (Tool::of(&world), ["keys", "redact", "1", "--yes"]);
    let mut command = tool.command(&redact);
    let died = in_time(command.env("TWINBOX_CRASH_AT", "redact.after_page:2").output()).await.unwrap();
    assert_eq!(died.status.signal(), Some(9), "{died:?}");
    let blank = async || rows(&world).await.iter().filter(|row| row.is_redacted()).count();
    assert_eq!(blank().await, 2_000);
    let printed = tool.ok(&redact).await;
    assert!(printed.starts_with("Blanked: 2,500 messages of the log,"), "{printed}");
    let audit = tool.json(&["audit", "list"]).await;
    assert_eq!((&audit[0]["count"], &audit[1]["count"]), (&2_500.into(), &serde_json::Value::Null));
    assert_eq!(blank().await, 2_500);
    assert_eq!(rows(&world).await[2_500].header("name"), Some("Ada"));
}

cases! {
    all: [
        a_redacted_message_is_passed_by_and_other_keys_are_handled,
        a_redacted_copy_raises_no_alarm_and_forgets_failures,
        a_message_that_waits_and_a_dead_letter_are_blanked,
        a_parked_message_comes_back_blank_in_its_place,
        a_redacted_message_goes_through_a_broker_and_is_passed_by,
        a_message_with_a_payload_is_handled_whatever_its_headers_say,
        killed_half_way_it_is_run_again,
    ]
}
