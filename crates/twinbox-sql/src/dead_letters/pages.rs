//! Reading dead letters of one owner in pages, without their messages.
use super::{
    id::{DeadLetterId, DeadLetterOwner},
    item::DeadLetter,
};
use crate::{
    Dialect, Error,
    engine::Engine,
    micros::Micros,
    statement::{Query, query},
};
use twinbox_core::Timestamp;

/// The place of a dead letter among those of its owner. Consumers order theirs by time, destinations by
/// position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// When it was given up. A destination looks at the number alone.
    pub time: Timestamp,
    /// The number of a consumer's dead letter, or the position of a destination's.
    pub number: i64,
}

impl Place {
    /// Before all dead letters.
    pub const START: Self = Self { time: Timestamp::from_micros(0), number: 0 };

    /// Returns the place of a dead letter.
    pub fn of(dead_letter: &DeadLetter) -> Self {
        let (DeadLetterId::OfConsumer(number) | DeadLetterId::OfDestination(_, number)) = dead_letter.id;
        Self { time: dead_letter.given_up_at, number }
    }
}

/// Returns up to `limit` dead letters of an owner, at most 1,000, before a place, the newest first. `group`:
/// those of this fingerprint alone.
///
/// # Errors
/// The database refused or is away.
pub async fn page_before<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    owner: &DeadLetterOwner,
    group: Option<&str>,
    before: Place,
    limit: u32,
) -> Result<Vec<DeadLetter>, Error> {
    let (sql, group, limit) = (engine.sql(), group.map(str::to_owned), i64::from(limit));
    let time = Micros(before.time);
    let rows = match owner {
        DeadLetterOwner::Consumer(name) => {
            let page = match group {
                Some(group) => query::<DB>(&sql.dead_letters.group_before).bind(name.clone()).bind(group),
                None => query::<DB>(&sql.dead_letters.consumer_before).bind(name.clone()),
            };
            page.bind(time).bind(time).bind(before.number).bind(limit).fetch_all(conn).await?
        }
        DeadLetterOwner::Destination(id) => {
            let page = match group {
                Some(group) => query::<DB>(&sql.parked_messages.group_before).bind(id.clone()).bind(group),
                None => query::<DB>(&sql.parked_messages.destination_before).bind(id.clone()),
            };
            page.bind(before.number).bind(limit).fetch_all(conn).await?
        }
    };
    read(engine, owner, &rows)
}

/// Returns up to `limit` dead letters of an owner, at most 1,000, behind a place and up to a time, the oldest
/// first. `group`: those of this fingerprint alone.
///
/// # Errors
/// The database refused or is away.
pub async fn page_after<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    owner: &DeadLetterOwner,
    group: Option<&str>,
    after: Place,
    up_to: Timestamp,
    limit: u32,
) -> Result<Vec<DeadLetter>, Error> {
    let (sql, group, limit) = (engine.sql(), group.map(str::to_owned), i64::from(limit));
    let (time, up_to) = (Micros(after.time), Micros(up_to));
    let rows = match owner {
        DeadLetterOwner::Consumer(name) => {
            let page = match group {
                Some(group) => query::<DB>(&sql.dead_letters.group_after).bind(name.clone()).bind(group),
                None => query::<DB>(&sql.dead_letters.consumer_after).bind(name.clone()),
            };
            let page = page.bind(time).bind(time).bind(after.number).bind(up_to).bind(limit);
            page.fetch_all(conn).await?
        }
        DeadLetterOwner::Destination(id) => {
            let page = match group {
                Some(group) => query::<DB>(&sql.parked_messages.group_after).bind(id.clone()).bind(group),
                None => query::<DB>(&sql.parked_messages.destination_after).bind(id.clone()),
            };
            page.bind(after.number).bind(up_to).bind(limit).fetch_all(conn).await?
        }
    };
    read(engine, owner, &rows)
}

fn read<DB: Dialect>(
    engine: &Engine<DB>,
    owner: &DeadLetterOwner,
    rows: &[DB::Row],
) -> Result<Vec<DeadLetter>, Error> {
    let read = |row: &DB::Row| match owner {
        DeadLetterOwner::Consumer(_) => DeadLetter::of_consumer::<DB>(row),
        DeadLetterOwner::Destination(_) => DeadLetter::of_destination::<DB>(row, engine.service()),
    };
    rows.iter().map(read).collect()
}

/// Returns one dead letter.
///
/// # Errors
/// The database refused or is away.
pub async fn find<DB: Dialect>(engine: &Engine<DB>, id: &DeadLetterId) -> Result<Option<DeadLetter>, Error> {
    let sql = engine.sql();
    match id {
        DeadLetterId::OfConsumer(id) => {
            let row = engine.fetch_optional(&sql.dead_letters.find, |query| query.bind(*id)).await?;
            row.as_ref().map(DeadLetter::of_consumer::<DB>).transpose()
        }
        DeadLetterId::OfDestination(destination, position) => {
            let find = &sql.parked_messages.find_dead;
            let bind = |query: Query<'static, DB>| query.bind(destination.clone()).bind(*position);
            let row = engine.fetch_optional(find, bind).await?;
            row.map(|row| DeadLetter::of_destination::<DB>(&row, engine.service())).transpose()
        }
    }
}

/// Returns up to `limit` dead letters of consumers with an event id, and as many of destinations.
///
/// # Errors
/// The database refused or is away.
pub async fn of_event<DB: Dialect>(
    engine: &Engine<DB>,
    event_id: &str,
    limit: u32,
) -> Result<Vec<DeadLetter>, Error> {
    let sql = engine.sql();
    let bind = |query: Query<'static, DB>| query.bind(event_id.to_owned()).bind(i64::from(limit));
    let consumers = engine.fetch_all(&sql.dead_letters.of_event, bind).await?;
    let destinations = engine.fetch_all(&sql.parked_messages.dead_of_event, bind).await?;
    let consumers = consumers.iter().map(DeadLetter::of_consumer::<DB>);
    let destinations = destinations.iter().map(|row| DeadLetter::of_destination::<DB>(row, engine.service()));
    consumers.chain(destinations).collect()
}
