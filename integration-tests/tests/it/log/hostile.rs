//! Sixteen writers that do everything to make positions and commits disagree, and readers that restart all
//! the time, held against a ledger. One reader more remembers the largest position: the ledger must find
//! what it loses, or it proves nothing about the others.
mod ledger;
mod writers;

use crate::support::{
    database, long,
    wait::{self, Pause, eventually},
};
pub(in crate::log) use ledger::Ledger;
use sqlx::Postgres;
use std::{
    collections::{BTreeSet, HashSet},
    time::{Duration, Instant},
};
use twinbox::{
    CancellationToken, Dialect, Error, Store,
    log::{Entry, Reader, ReaderOptions},
};
use uuid::Uuid;
pub(in crate::log) use writers::{Dice, Writers};

/// Each reader is closed or dropped more often than this.
const RESTARTS: u32 = 5;
/// How many messages show that the writers got going.
const MESSAGES: usize = 500;
/// Longer than the database takes to answer, however busy the machine is.
const LEASE: Duration = Duration::from_secs(60);

/// Invariants 1 and 4. Of three destinations one has a reader that always closes in good order: it sees
/// nothing twice. The readers of the other two are dropped with messages in flight; they see again what was
/// not recorded, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn windows_lose_nothing_and_keep_the_order_of_keys() {
    let database = database::postgres().await;
    let writers = Writers::start(&database).await;
    let done = CancellationToken::new();
    let read = |name: &'static str, seed, ending| {
        tokio::spawn(read(database.clone(), name, Dice::new(seed), ending, done.clone()))
    };
    let readers = [
        read("closes", 1, Ending::Close),
        read("crashes", 2, Ending::Crash),
        read("both", 3, Ending::Either),
    ];
    // The writers write for this long, at least.
    wait::pause(Pause::Pace, Duration::from_secs(long::or(10, 3))).await;
    eventually(async || (committed(&database).await.len() > MESSAGES).then_some(())).await;
    writers.stop().await;
    done.cancel();

    let truth = committed(&database).await;
    for reader in readers {
        let (restarts, ledger) = reader.await.unwrap();
        println!("{ledger} after {restarts} restarts, {} committed", truth.len());
        assert!(restarts > RESTARTS, "{ledger} was hardly restarted");
        assert_eq!(ledger.lost(&truth), [0i64; 0], "{ledger}");
        assert_eq!(ledger.ghosts(&truth), [0i64; 0], "{ledger}");
        assert_eq!(ledger.order_breaks, 0, "{ledger}");
        assert_eq!(ledger.repeated_though_recorded, 0, "{ledger}");
        assert_eq!(ledger.recorded_though_unsettled, 0, "{ledger}");
        if ledger.name == "closes" {
            assert_eq!(ledger.duplicates, 0, "{ledger}");
        }
    }
}

/// The proof that the ledger sees losses: it does with a reader that remembers the largest position.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_remembers_the_largest_position_loses_messages() {
    let database = database::postgres().await;
    for round in 1..=10 {
        let writers = Writers::start(&database).await;
        let mut ledger = Ledger::new("largest position");
        let mut largest = 0;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            largest = read_beyond(&database, largest, &mut ledger).await;
        }
        writers.stop().await;
        let mut before = i64::MIN;
        while before != largest {
            (before, largest) = (largest, read_beyond(&database, largest, &mut ledger).await);
        }
        let lost = ledger.lost(&committed(&database).await).len();
        println!("round {round}: {ledger}, {lost} lost");
        if lost > 0 {
            return;
        }
        sqlx::raw_sql("TRUNCATE twinbox.outbox").execute(database.pool()).await.unwrap();
    }
    panic!("the writers are not hostile: ten rounds and nothing was lost");
}

async fn read_beyond(store: &Store<Postgres>, largest: i64, ledger: &mut Ledger) -> i64 {
    let sql =
        "SELECT position, key, payload FROM twinbox.outbox WHERE position > $1 ORDER BY position LIMIT 50";
    let rows = sqlx::query_as::<_, (i64, String, Vec<u8>)>(sql).bind(largest).fetch_all(store.pool()).await;
    let rows = rows.unwrap();
    for (position, key, payload) in &rows {
        ledger.deliver(*position, key, payload, false);
        ledger.settle(*position);
    }
    rows.last().map_or(largest, |row| row.0)
}

#[derive(Clone, Copy, PartialEq)]
pub(in crate::log) enum Ending {
    /// With nothing in flight.
    Close,
    /// Dropped, with messages in flight.
    Crash,
    /// Either, and closed with messages in flight.
    Either,
}

/// Opens one reader after the other until all that is committed is settled, or is clearly not coming.
async fn read(
    store: Store<Postgres>,
    name: &'static str,
    mut dice: Dice,
    ending: Ending,
    done: CancellationToken,
) -> (u32, Ledger) {
    let (mut ledger, owner) = (Ledger::new(name), Uuid::now_v7());
    let mut give_up_at = None;
    for restarts in 0.. {
        // The next reader is of the same process, and waits for no lease.
        let options = ReaderOptions::new().page([1, 7, 50][dice.below(3)]).lease(LEASE);
        let mut reader = Reader::open(&store, name, owner, options).await.unwrap().unwrap();
        // A reader writes nothing before its first `next`.
        ledger.record(recorded(&store, name).await);
        if dice.chance(10) {
            // Falls behind, and takes many ticks as one window.
            wait::pause(Pause::Pace, Duration::from_millis(dice.range(0, 800))).await;
        }
        live(&mut reader, &mut ledger, &mut dice, ending, position).await.unwrap();
        if ending == Ending::Close || (ending == Ending::Either && dice.chance(50)) {
            reader.close().await.unwrap();
        } else {
            drop(reader);
        }
        if done.is_cancelled() && restarts > RESTARTS {
            let give_up_at = *give_up_at.get_or_insert(Instant::now() + Duration::from_secs(60));
            if ledger.lost(&committed(&store).await).is_empty() || Instant::now() > give_up_at {
                return (restarts, ledger);
            }
        }
    }
    unreachable!("restarts are not that many")
}

/// Reads for a while. Afterwards there may be messages in flight, unless it is to be closed.
pub(in crate::log) async fn live<DB: Dialect>(
    reader: &mut Reader<DB>,
    ledger: &mut Ledger,
    dice: &mut Dice,
    ending: Ending,
    number: fn(&Entry) -> i64,
) -> Result<(), Error> {
    let until = Instant::now() + Duration::from_millis(dice.range(20, 600));
    let mut in_flight: Vec<Entry> = Vec::new();
    loop {
        let over = Instant::now() > until;
        let clean = in_flight.is_empty() && reader.open_messages() == 0;
        if over && (clean || ending != Ending::Close) {
            return Ok(());
        }
        let next = tokio::time::timeout(Duration::from_millis(5), reader.next(1 + dice.below(20)));
        for entry in next.await.unwrap_or_else(|_| Ok(Vec::new()))? {
            let key = entry.message.key.as_deref().unwrap();
            ledger.deliver(number(&entry), key, &entry.message.payload, entry.ticket.attempt > 1);
            in_flight.push(entry);
        }
        while !in_flight.is_empty() && dice.chance(if over { 100 } else { 80 }) {
            let entry = in_flight.swap_remove(dice.below(in_flight.len()));
            if dice.chance(5) {
                reader.retry(entry, Duration::from_millis(dice.range(0, 20)), true);
            } else {
                ledger.settle(number(&entry));
                reader.settle(entry.ticket);
            }
        }
    }
}

/// Returns what the cursor's row says is settled, in the words of the snapshots that it points to.
async fn recorded(store: &Store<Postgres>, destination: &str) -> HashSet<i64> {
    let sql = "SELECT m.position FROM twinbox.outbox m, twinbox.cursors c
        JOIN twinbox.ticks p ON p.id = c.p JOIN twinbox.ticks w ON w.id = c.w
        WHERE c.destination = $1 AND (pg_visible_in_snapshot(m.txid, p.snapshot)
            OR (pg_visible_in_snapshot(m.txid, w.snapshot) AND m.position <= c.position))";
    let recorded = sqlx::query_scalar(sql).bind(destination).fetch_all(store.pool()).await.unwrap();
    recorded.into_iter().collect()
}

async fn committed(store: &Store<Postgres>) -> BTreeSet<i64> {
    let positions = sqlx::query_scalar("SELECT position FROM twinbox.outbox").fetch_all(store.pool()).await;
    positions.unwrap().into_iter().collect()
}

fn position(entry: &Entry) -> i64 {
    i64::try_from(entry.message.sequence.unwrap()).unwrap()
}
