//! Calls that need something to be there which is seldom there. Each puts it there first: once a statement
//! has failed, the clock of a test runs ahead, and other connections would not be waited for.
use super::{
    answered,
    application::{create, fresh},
    calls,
};
use crate::support::{
    effects::{WELCOME, mail},
    jobs::execute,
    operations::{LONG, asked, key, policy},
    stores::{Placed, TestDb, World, sql, sql_of},
    wait::{Pause, pause},
};
use std::{slice::from_ref, time::Duration};
use twinbox::{
    Draft, Message, Timestamp,
    effects::{
        EffectId, Effects,
        drift::{Drift, Expectation, Sweep},
        jobs::Jobs,
    },
    inbox::InboxClaim,
    log::{Log, Reader, ReaderOptions, Shares, Standby, StartPosition},
    operation::{OperationPolicy, OperationStart},
    ops::{
        Ops,
        dead_letters::{DeadLetterAction, DeadLetterFilter},
        effects::{Change, EffectFilter, Resolution},
        replays::{NewReplay, Selection},
    },
};
use uuid::Uuid;

const CONSUMER: &str = "tests.silence";
/// The length of a whole fingerprint.
const FINGERPRINT: usize = 12;

fn message() -> Message {
    Draft::of(&Placed { n: 1 }).unwrap().into_message("shop")
}

/// Handles a message.
async fn handled<DB: TestDb>(world: &World<DB>, consumer: &str) -> Message {
    // One as old as the last that was purged may have been handled.
    let message = Message { time: world.now().await.unwrap(), ..message() };
    let claimed = world.inbox(consumer).claim(&message, false).await.unwrap();
    let InboxClaim::Open(attempt) = claimed else { panic!("it is new") };
    attempt.commit().await.unwrap();
    message
}

/// The name of the relay's destination.
async fn destination<DB: TestDb>(world: &World<DB>) -> String {
    let readers = Ops::new(world.owner()).readers().await.unwrap();
    let relays = readers.into_iter().map(|reader| reader.name).find(|name| !name.starts_with("consumer:"));
    relays.expect("a relay ran")
}

/// Makes a dead letter of the newest message.
async fn give_up_newest<DB: TestDb>(world: &World<DB>, destination: &str) {
    let (parked, outbox) = (DB::table_of("parked_messages"), DB::table_of("outbox"));
    let (now, key) = (DB::time(world.now().await.unwrap()), sql_of::<DB>("key").0);
    let dead = format!(
        "DELETE FROM {parked} WHERE destination = '{destination}'
            AND position = (SELECT max(position) FROM {outbox});
        INSERT INTO {parked} (destination, position, {key}, type, state, blocks_key, attempts,
            next_attempt_at, first_error, last_error, fingerprint)
        SELECT '{destination}', position, {key}, type, 'dead', false, 1, {now}, 'no', 'no', 'no'
        FROM {outbox}
        ORDER BY position DESC
        LIMIT 1"
    );
    execute(world, dead).await;
}

/// Plans an effect and gives it a state. Returns its place.
async fn effect_that<DB: TestDb>(world: &World<DB>, state: &str) -> i64 {
    let (effects, source) = (Effects::new(world), Uuid::now_v7());
    let mut tx = world.begin().await.unwrap();
    effects.plan(&mut tx, source, WELCOME, mail("hello")).await.unwrap();
    tx.commit().await.unwrap();
    let position = effects.find(source, WELCOME).await.unwrap().unwrap().position;
    let table = DB::table_of("side_effects");
    let set = format!("UPDATE {table} SET state = '{state}' WHERE position = {position}");
    execute(world, set).await;
    position
}

calls! {
    "readers that begin elsewhere": |store, _world| {
        let beginning = Timestamp::from_micros(0);
        for start in [StartPosition::IfEmpty, StartPosition::Now, StartPosition::At(beginning)] {
            let options = ReaderOptions::new().start(start);
            match Reader::open(store, &fresh(), Uuid::now_v7(), options).await {
                Ok(opened) => opened.expect("nobody else reads").close().await?,
                Err(error) => answered(Err::<(), _>(error))?,
            }
        }
        Ok(())
    }
    "a relay that waits for the lease of another": |store, world| {
        let destination = destination(world).await;
        let (cursors, now) = (DB::table_of("cursors"), world.now().await.unwrap().as_micros());
        let in_an_hour = DB::time(Timestamp::from_micros(now + 3_600_000_000));
        let long_ago = DB::time(Timestamp::from_micros(0));
        let lease = format!(
            "UPDATE {cursors} SET owner = $1, owned = 9, wished_by = NULL, lease_until = {in_an_hour},
                wished_until = {long_ago}
            WHERE destination = '{destination}'"
        );
        let lease = sqlx::query::<DB>(sql::<DB>(&lease)).bind(Uuid::now_v7());
        lease.execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
        let standby = Standby::new(store, &destination, Uuid::now_v7(), LONG, Shares::new());
        standby.look().await.map(drop)
    }
    "starts of a message": |store, _world| {
        let (inbox, id) = (store.inbox("tests.starts"), message().message_id());
        inbox.record_start(id).await?;
        inbox.record_lone_start(id).await?;
        inbox.open_starts(id).await?;
        inbox.end_starts(&[id]).await
    }
    "a copy of what was handled": |store, world| {
        let copy = handled(world, "tests.copied").await;
        store.inbox("tests.copied").claim(&copy, true).await.map(drop)
    }
    "claims that are old": |store, world| {
        handled(world, "tests.purged").await;
        store.inbox("tests.purged").purge(Duration::ZERO).await.map(drop)
    }
    "a redrive that is given back": |store, world| {
        let ops = Ops::new(world.owner());
        let filter = DeadLetterFilter { consumer: Some(CONSUMER.to_owned()), ..DeadLetterFilter::default() };
        let groups = ops.dead_letter_groups(&filter).await.unwrap();
        ops.redrive(&[groups[0].newest.id.clone()], Duration::ZERO).await.unwrap();
        let inbox = store.inbox(CONSUMER);
        for redrive in inbox.take_redrives(false, 10, Duration::ZERO).await? {
            inbox.give_back_redrive(&redrive, Duration::ZERO).await?;
        }
        Ok(())
    }
    "what a replay has parked": |store, world| {
        give_up_newest(world, "replay:1").await;
        Log::new(store).purge(Duration::ZERO).await.map(drop)
    }
    "dead letters of a destination": |store, world| {
        let (ops, destination) = (Ops::new(store), destination(world).await);
        give_up_newest(world, &destination).await;
        let destination = Some(destination);
        let filter = DeadLetterFilter { destination, ..DeadLetterFilter::default() };
        let groups = ops.dead_letter_groups(&filter).await?;
        let newest = &groups[0].newest;
        ops.dead_letter(&newest.id).await?;
        ops.dead_letter_message(&newest.id).await?;
        ops.redrive(from_ref(&newest.id), Duration::ZERO).await.map(drop)
    }
    "a group of dead letters": |store, world| {
        let ops = Ops::new(store);
        let destination = Some(destination(world).await);
        let of_destination = DeadLetterFilter { destination, ..DeadLetterFilter::default() };
        let consumer = Some(CONSUMER.to_owned());
        let of_consumer = DeadLetterFilter { consumer, ..DeadLetterFilter::default() };
        for filter in [of_destination, of_consumer] {
            let fingerprint = Some("f".repeat(FINGERPRINT));
            let of_group = DeadLetterFilter { fingerprint, ..filter };
            ops.plan_bulk_action(DeadLetterAction::Discard, &of_group).await?;
        }
        Ok(())
    }
    "a replay": |store, world| {
        let ops = Ops::new(store);
        let destination = destination(world).await;
        let plan = ops.plan_replay(&destination, &Selection::new()).await?;
        let made = ops.make_replay(&plan, NewReplay::resend("ada")).await;
        let Ok(made) = made else { return answered(made) };
        ops.replay(made.id).await?;
        answered(ops.cancel_replay(made.id).await)
    }
    "redact what is delayed": |store, world| {
        let key = fresh();
        let later = Draft::raw("orders.placed", 1, "{}").key(key.clone());
        let mut tx = world.begin().await.unwrap();
        let later = later.not_before(Timestamp::from_micros(i64::MAX / 2));
        world.outbox().publish_draft(&mut tx, later).await.unwrap();
        tx.commit().await.unwrap();
        Ops::new(store).redact(&key).await.map(drop)
    }
    "too many keys of one caller": |store, _world| {
        let policy = OperationPolicy { live_max: Some(1), ..policy(Duration::ZERO) };
        let keys = store.idempotency_keys();
        keys.begin(&key(&fresh()), &asked("1"), &policy).await.map(drop)
    }
    "a lease that is renewed": |store, _world| {
        const LEASE: Duration = Duration::from_millis(300);
        let keys = store.idempotency_keys();
        let begun = keys.lease(&key(&fresh()), &asked("1"), &policy(Duration::ZERO), LEASE).await?;
        let OperationStart::Open(lease) = begun else { panic!("the key is new") };
        pause(Pause::Work, 2 * LEASE).await;
        lease.release().await
    }
    "a job that nobody runs": |store, _world| { answered(Jobs::new(store).run_now("nobody's").await) }
    "effects in trouble": |store, world| {
        let ops = Ops::new(store);
        let unknown = effect_that(world, "unknown").await;
        let failed = effect_that(world, "failed").await;
        for state in ["unknown", "failed"] {
            let filter = EffectFilter { state: Some(state.to_owned()), ..EffectFilter::default() };
            ops.effects(&filter, None, 10).await?;
        }
        let applied = Change::Resolve(Resolution::Applied);
        answered(ops.change_effect(EffectId::Position(unknown), applied, "seen").await)?;
        answered(ops.change_effect(EffectId::Position(failed), Change::Retry, "again").await)
    }
    "drift that was mended": |store, world| {
        const PAID: Expectation =
            Expectation::exactly(1).of(WELCOME).per("notes").after(Duration::ZERO, "made_at");
        create(world, "notes").await;
        let now = DB::time(world.now().await.unwrap());
        let insert = format!("INSERT INTO notes (id, made_at) VALUES ($1, {now})");
        let insert = sqlx::query::<DB>(sql::<DB>(&insert)).bind(Uuid::now_v7());
        insert.execute(&mut *world.pool().acquire().await.unwrap()).await.unwrap();
        let drift = |store| Drift::new(store).expect(PAID);
        drift(world.owner())?.run_once(Sweep::Full).await.unwrap();
        execute(world, "DELETE FROM notes".to_owned()).await;
        drift(store)?.run_once(Sweep::Full).await.map(drop)
    }
}
