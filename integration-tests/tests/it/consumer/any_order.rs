//! What `Harness::any_order` lets pass, and what it finds.
use crate::support::{
    cases::cases,
    databases::Postgres,
    effects::{WELCOME, mail},
    stores::{TestDb, World, sql},
};
use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use std::panic::AssertUnwindSafe;
use twinbox::{
    BatchTx, Delivery, Dialect, Draft, Event, HandlerError, HandlerResult, Timestamp, Tx,
    effects::Effects,
    event_handler,
    transition::{StateColumn, Transition, VersionColumn, VersionUpdate},
};
use twinbox_testkit::{AnyOrder, Harness};

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "parcels.moved", version = 1, key = parcel)]
struct Moved {
    parcel: i64,
    place: String,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "parcels.arrived", version = 1, key = parcel)]
struct Arrived {
    parcel: i64,
}

fn moved(place: &str) -> Moved {
    Moved { parcel: 7, place: place.to_owned() }
}

async fn with_parcels<DB: TestDb>() -> World<DB> {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE parcels (parcel BIGINT PRIMARY KEY, seen BIGINT, place TEXT)").await;
    world.execute("INSERT INTO parcels VALUES (7, NULL, 'home')").await;
    world
}

/// What the assertion panics with.
async fn found<DB: Dialect, S: Send + Sync + 'static>(any_order: AnyOrder<'_, DB, S>) -> String {
    let panic = AssertUnwindSafe(any_order.assert()).catch_unwind().await.expect_err("it is found");
    panic.downcast_ref::<String>().expect("it says what").clone()
}

async fn place<DB: Dialect>(tx: &mut Tx<'_, DB>, parcel: i64, place: &str) -> HandlerResult {
    let update = sqlx::query::<DB>(sql::<DB>("UPDATE parcels SET place = $1 WHERE parcel = $2"));
    update.bind(place.to_owned()).bind(parcel).execute(&mut **tx).await?;
    Ok(())
}

#[event_handler(consumer = "tests.last-one-wins")]
async fn last_one_wins<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Moved>) -> HandlerResult {
    place(tx, event.parcel, &event.place).await
}

/// Fault 28
async fn row_28_a_handler_that_believes_whatever_comes_last_is_found<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, ());
    let two = harness.any_order().event::<last_one_wins>(moved("depot")).event::<last_one_wins>(moved("van"));
    let report = found(two).await;
    let table = if DB::NAME == "PostgreSQL" { "public.parcels" } else { "parcels" };
    let quote = if DB::NAME == "PostgreSQL" { '"' } else { '\'' };
    let expected = format!(
        "the result of `tests.last-one-wins` depends on the order of events\n\n  \
           1. parcels.moved {{\"parcel\":7,\"place\":\"depot\"}}\n  \
           2. parcels.moved {{\"parcel\":7,\"place\":\"van\"}}\n\n\
         Delivered in the order 2, 1, this differs from the given order:\n\n  \
           {table}\n    \
             ~ parcel: 7, place: {quote}van{quote} → {quote}depot{quote}\n\n\
         Change a row only if the event is newer (`VersionColumn`)"
    );
    assert!(report.starts_with(&expected), "{report}");
    assert_eq!(world.left_behind().await, (0, 0, 0), "all is rolled back");
}

const PLACE: VersionColumn = VersionColumn::new("parcels", "parcel", "seen");

#[event_handler(consumer = "tests.newest-wins")]
async fn newest_wins<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Moved>) -> HandlerResult {
    let sequence = event.message().sequence.ok_or("it has a place in the log")?;
    if let VersionUpdate::Applied { .. } = PLACE.advance(tx, event.parcel, sequence).await? {
        place(tx, event.parcel, &event.place).await?;
    }
    Ok(())
}

/// Its times differ in each run, and its rows have numbers from a sequence.
#[event_handler(consumer = "tests.history")]
async fn history(tx: &mut Tx<'_, Postgres>, event: Delivery<Moved>) -> HandlerResult {
    let insert = sqlx::query("INSERT INTO history (parcel, place) VALUES ($1, $2)");
    insert.bind(event.parcel).bind(&event.place).execute(&mut **tx).await?;
    Ok(())
}

async fn one_that_compares_passes<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, ());
    let mut all = harness.any_order();
    for place in ["depot", "van", "door", "shed"] {
        all = all.event::<newest_wins>(moved(place));
    }
    all.assert().await;
    assert_eq!(world.left_behind().await, (0, 0, 0));
}

async fn drawn_ids_and_times_are_not_compared_and_other_columns_on_demand() {
    let world = with_parcels::<Postgres>().await;
    let table = "CREATE TABLE history (id BIGINT GENERATED ALWAYS AS IDENTITY, at TIMESTAMPTZ NOT NULL \
        DEFAULT clock_timestamp(), parcel BIGINT, place TEXT, nth BIGINT NOT NULL DEFAULT 0)";
    world.execute(table).await;
    let harness = Harness::new(&world, ());
    let two = || harness.any_order().event::<history>(moved("depot")).event::<history>(moved("van"));
    two().assert().await;
    world
        .execute(
            "CREATE FUNCTION count_up() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN NEW.nth := (SELECT count(*) FROM history WHERE parcel = NEW.parcel); RETURN NEW; END $$;
            CREATE TRIGGER count_up BEFORE INSERT ON history FOR EACH ROW EXECUTE FUNCTION count_up()",
        )
        .await;
    let report = found(two()).await;
    assert!(report.contains("nth: 0") && !report.contains("at: "), "{report}");
    two().leave_out("public.history.nth").assert().await;
}

const STATE: StateColumn = StateColumn::new("parcels", "parcel", "place");

#[event_handler(consumer = "tests.arrivals")]
async fn arrival<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Arrived>) -> HandlerResult {
    match STATE.transition(tx, event.parcel, &["van"], "door").await? {
        Transition::Illegal { current } => Err(format!("it is still in the {current}").into()),
        _ => Ok(()),
    }
}

/// What fails comes again after the others.
async fn a_handler_may_wait_for_its_turn<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, ());
    let waits =
        harness.any_order().event::<last_one_wins>(moved("van")).event::<arrival>(Arrived { parcel: 7 });
    waits.assert().await;
    let never =
        harness.any_order().event::<arrival>(Arrived { parcel: 7 }).event::<last_one_wins>(moved("depot"));
    let report = found(never).await;
    let expected = "1. parcels.arrived {\"parcel\":7} is never handled: it is still in the depot\n";
    assert!(report.contains(expected), "{report}");
    assert!(report.contains("the result of `tests.arrivals` and `tests.last-one-wins`"), "{report}");
}

#[event_handler(consumer = "tests.rejecting")]
async fn rejecting<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Arrived>) -> HandlerResult {
    match STATE.transition(tx, event.parcel, &["van"], "door").await? {
        Transition::Illegal { .. } => Err(HandlerError::reject("not from there")),
        _ => Ok(()),
    }
}

async fn a_rejection_in_one_order_only_is_found<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, ());
    let two =
        harness.any_order().event::<last_one_wins>(moved("van")).event::<rejecting>(Arrived { parcel: 7 });
    let report = found(two).await;
    assert!(
        report.contains("  rejected\n    + 2. parcels.arrived {\"parcel\":7}: not from there\n"),
        "{report}"
    );
}

#[event_handler(consumer = "tests.published")]
async fn publishes_once<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Moved>) -> HandlerResult {
    let sequence = event.message().sequence.ok_or("it has a place in the log")?;
    if let VersionUpdate::Applied { previous: None } = PLACE.advance(tx, event.parcel, sequence).await? {
        tx.publish(&moved(&event.place)).await?;
    }
    Ok(())
}

#[event_handler(consumer = "tests.delayed")]
async fn reminds_once<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Moved>) -> HandlerResult {
    let sequence = event.message().sequence.ok_or("it has a place in the log")?;
    if let VersionUpdate::Applied { previous: None } = PLACE.advance(tx, event.parcel, sequence).await? {
        let later = Timestamp::from_micros(4_000_000_000_000_000);
        tx.publish_draft(Draft::of(&moved(&event.place))?.not_before(later)).await?;
    }
    Ok(())
}

async fn what_is_published_for_later_is_compared<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, ());
    let two = harness.any_order().event::<reminds_once>(moved("depot")).event::<reminds_once>(moved("van"));
    let report = found(two).await;
    assert!(report.contains("delayed_messages\n    ~ type: "), "{report}");
}

async fn what_handlers_publish_is_compared<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, ());
    let two =
        harness.any_order().event::<publishes_once>(moved("depot")).event::<publishes_once>(moved("van"));
    let report = found(two).await;
    assert!(report.contains("outbox\n    ~ type: "), "{report}");
    assert!(
        report.contains("payload: {\"parcel\":7,\"place\":\"depot\"} → {\"parcel\":7,\"place\":\"van\"}"),
        "{report}"
    );
}

#[event_handler(consumer = "tests.notes-ids")]
async fn notes_its_id<DB: Dialect>(tx: &mut Tx<'_, DB>, event: Delivery<Moved>) -> HandlerResult {
    let note = sqlx::query::<DB>(sql::<DB>("INSERT INTO notes (message_id, place) VALUES ($1, $2)"));
    note.bind(tx.message_id().to_string()).bind(event.place.clone()).execute(&mut **tx).await?;
    Ok(())
}

async fn each_delivery_has_the_identity_of_its_own_message<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE notes (message_id VARCHAR(36) PRIMARY KEY, place VARCHAR(9))").await;
    let harness = Harness::new(&world, ());
    harness
        .any_order()
        .event::<notes_its_id>(moved("depot"))
        .event::<notes_its_id>(moved("van"))
        .assert()
        .await;
}

/// Asks for an act, and for more the more often it ran.
#[event_handler(consumer = "tests.charges")]
async fn charges_by_what_came_before<DB: TestDb>(
    effects: &Effects<DB>,
    tx: &mut Tx<'_, DB>,
    _: Delivery<Moved>,
) -> HandlerResult {
    let count = "UPDATE parcels SET seen = COALESCE(seen, 0) + 1";
    sqlx::query::<DB>(count).execute(&mut **tx).await?;
    let seen: i64 = sqlx::query_scalar::<DB, _>("SELECT seen FROM parcels").fetch_one(&mut **tx).await?;
    let id = tx.message_id();
    effects.plan(tx, id, WELCOME, mail(&format!("{seen}"))).await?;
    Ok(())
}

async fn what_handlers_ask_of_others_is_compared<DB: TestDb>() {
    let world = with_parcels::<DB>().await;
    let harness = Harness::new(&world, Effects::new(&world));
    let events = harness.any_order().event::<charges_by_what_came_before>(moved("depot"));
    let report = found(events.event::<charges_by_what_came_before>(moved("van"))).await;
    assert!(report.contains("side_effects"), "{report}");
}

/// Forgets all but the first.
#[event_handler(consumer = "tests.first-of-batch", batch = 10)]
async fn notes_the_first<DB: TestDb>(
    tx: &mut BatchTx<'_, DB>,
    events: Vec<Delivery<Moved>>,
) -> HandlerResult {
    note::<DB>(tx, &events[0]).await
}

#[event_handler(consumer = "tests.all-of-batch", batch = 10)]
async fn notes_all<DB: TestDb>(tx: &mut BatchTx<'_, DB>, events: Vec<Delivery<Moved>>) -> HandlerResult {
    for event in &events {
        note::<DB>(tx, event).await?;
    }
    Ok(())
}

async fn note<DB: TestDb>(conn: &mut DB::Connection, event: &Delivery<Moved>) -> HandlerResult {
    let note = sqlx::query::<DB>(sql::<DB>("INSERT INTO notes (message_id, place) VALUES ($1, $2)"));
    note.bind(event.id().to_string()).bind(event.place.clone()).execute(conn).await?;
    Ok(())
}

async fn a_batch_does_what_its_events_do_alone<DB: TestDb>() {
    let world = World::<DB>::new().await;
    world.execute("CREATE TABLE notes (message_id VARCHAR(36) PRIMARY KEY, place VARCHAR(9))").await;
    let harness = Harness::new(&world, ());
    let events = || harness.any_order();
    events().event::<notes_all>(moved("depot")).event::<notes_all>(moved("van")).assert().await;
    let events = events().event::<notes_the_first>(moved("depot"));
    let report = found(events.event::<notes_the_first>(moved("van"))).await;
    assert!(report.contains("together in a batch") && report.contains("van"), "{report}");
}

cases! {
    all: [
        a_batch_does_what_its_events_do_alone,
        each_delivery_has_the_identity_of_its_own_message,
        what_handlers_ask_of_others_is_compared,
        row_28_a_handler_that_believes_whatever_comes_last_is_found,
        one_that_compares_passes,
        a_handler_may_wait_for_its_turn,
        a_rejection_in_one_order_only_is_found,
        what_handlers_publish_is_compared,
        what_is_published_for_later_is_compared,
    ]
    postgres: [drawn_ids_and_times_are_not_compared_and_other_columns_on_demand]
}
