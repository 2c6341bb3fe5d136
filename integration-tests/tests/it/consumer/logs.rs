//! What is logged of a delivery.
use crate::support::{
    cases::cases,
    consumer::run_until,
    logged::Lines,
    stores::{Placed, TestDb, World, effect},
};
use twinbox::{
    BatchTx, Consumer, Delivery, Dialect, Draft, HandlerResult, Tx, event_handler, transition::StateColumn,
};

#[event_handler(consumer = "tests.logs")]
async fn confirm<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    const EFFECT: StateColumn = StateColumn::new("states", "id", "state");
    effect::<DB>(tx, order.n).await?;
    let _ = EFFECT.transition(tx, order.n, &["placed"], "confirmed").await?;
    Ok(())
}

#[event_handler(consumer = "tests.logs-batch", batch = 10)]
async fn all<DB: Dialect>(_: &mut BatchTx<'_, DB>, _: Vec<Delivery<Placed>>) -> HandlerResult {
    Ok(())
}

/// The innermost span of a handler: with OpenTelemetry there is one more.
const SPAN: &str = if cfg!(feature = "programs") { "handle" } else { "process" };

/// R33, R43
async fn a_line_of_a_handler_tells_whose_delivery_it_is_and_of_what<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE states (id bigint PRIMARY KEY, state text)").await;
    world.execute("INSERT INTO states VALUES (1, 'placed')").await;
    let draft = Draft::of(&Placed { n: 1 }).unwrap().correlation_id("order-1");
    let id = {
        let mut tx = world.begin().await.unwrap();
        let id = world.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
        id
    };
    let (lines, recording) = Lines::record();
    let consumer = Consumer::new((*world).clone(), ()).handler::<confirm>();
    run_until(consumer, async || world.rows("inbox").await == 1).await;
    drop(recording);
    let [line] = &lines.saying("transition")[..] else { panic!("{lines:?}", lines = lines.saying("")) };
    assert_eq!(
        (&line["fields"]["from_state"], &line["fields"]["to_state"]),
        (&"placed".into(), &"confirmed".into())
    );
    let span = &line["span"];
    assert_eq!((&span["name"], &span["consumer"]), (&SPAN.into(), &"tests.logs".into()));
    assert_eq!((&span["event_type"], &span["correlation_id"]), (&"orders.placed".into(), &"order-1".into()));
    assert_eq!(span["message_id"], id.to_string());
}

/// Singly and in a batch. R33, fault 28
async fn two_messages_with_one_id_and_different_payloads_are_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE states (id bigint PRIMARY KEY, state text)").await;
    let drafts = [1, 2].map(|n| Draft::of(&Placed { n }).unwrap().id("chosen"));
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish_all(&mut tx, drafts.into()).await.unwrap();
    tx.commit().await.unwrap();
    let (lines, recording) = Lines::record();
    let consumer = Consumer::new((*world).clone(), ()).handler::<confirm>().handler::<all>();
    let status = consumer.status();
    let done = async || status.consumers().iter().map(|one| one.handled + one.dead_letters).sum::<u64>() == 4;
    run_until(consumer, done).await;
    drop(recording);
    let alarms = lines.saying("different payloads");
    let of = |consumer: &str| alarms.iter().filter(|line| line["fields"]["consumer"] == consumer).count();
    assert_eq!((of("tests.logs"), of("tests.logs-batch")), (1, 1), "{alarms:?}");
    for consumer in ["tests.logs", "tests.logs-batch"] {
        let dead_letters = world.inbox(consumer).dead_letters(10).await.unwrap();
        assert_eq!(dead_letters.len(), 1);
        assert_eq!(dead_letters[0].reason, "conflicting_payload");
    }
    for line in &alarms {
        assert_eq!((&line["level"], &line["fields"]["event_id"]), (&"ERROR".into(), &"chosen".into()));
    }
}

cases! {
    all: [
        a_line_of_a_handler_tells_whose_delivery_it_is_and_of_what,
        two_messages_with_one_id_and_different_payloads_are_an_alarm,
    ]
}
