//! Rows of effects, as a dispatcher reads and writes them.
use super::decision::{Claimed, Settled};
use crate::side_effect::{self, EffectState, SideEffect};
use serde_json::{Value, json};
use sqlx::Row as _;
use std::{collections::HashSet, time::Duration};
use tokio::time::timeout;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{Catalog, Engine, TextColumns, bounded, micros, query, scalar},
};
use uuid::Uuid;

/// How long a dispatcher waits for the database before it takes another connection. A connection whose other
/// end is gone would be silent for many minutes.
const DATABASE_MAX: Duration = Duration::from_secs(10);

/// Gives up work on the database that takes too long. Its connection is closed.
pub(super) async fn in_time<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let too_late = || Error::new(ErrorKind::Database, format!("no answer within {DATABASE_MAX:?}"));
    timeout(DATABASE_MAX, work).await.unwrap_or_else(|_| Err(too_late()))
}

/// The state of a vendor in the database.
pub(super) struct Look {
    pub(super) vendor: String,
    /// When the next effect is due. `None`: there is none.
    pub(super) due_in: Option<Duration>,
    /// How long the oldest due effect waits.
    pub(super) overdue: Duration,
    pub(super) closed_for: Duration,
    pub(super) is_paused: bool,
}

/// Asks about vendors, in one statement.
pub(super) async fn look<DB: Dialect>(engine: &Engine<DB>, names: &[String]) -> Result<Vec<Look>, Error> {
    let names = json!(names).to_string();
    let rows = in_time(engine.fetch_all(&engine.sql().effects.look, |query| query.bind(names))).await?;
    let read = |row: &DB::Row| {
        let due_in: Option<i64> = row.try_get("due_in")?;
        Ok(Look {
            vendor: row.text("vendor")?,
            due_in: due_in.map(positive),
            overdue: positive(-due_in.unwrap_or(0)),
            closed_for: positive(row.try_get("closed_for")?),
            is_paused: row.try_get("is_paused")?,
        })
    };
    rows.iter().map(read).collect()
}

/// Microseconds as a duration. A negative one is zero.
fn positive(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Locks due effects of a vendor. One whose request cannot be decoded comes as an error.
pub(super) async fn claim<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    vendor: &str,
    limit: usize,
    bytes: usize,
) -> Result<Vec<Result<Claimed, Undecodable>>, Error> {
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let claim = query::<DB>(&catalog.sql.effects.claim).bind(vendor.to_owned()).bind(vendor.to_owned());
    let rows = claim.bind(number(limit)).bind(number(bytes)).fetch_all(&mut *conn).await?;
    let mut claimed: Vec<_> = rows.iter().map(|row| read::<DB>(catalog, row)).collect::<Result<_, _>>()?;
    let with_key = claimed.iter().flatten().filter(|claimed| claimed.effect.request.key.is_some());
    let with_key: Vec<_> = with_key.map(|claimed| claimed.effect.position).collect();
    if with_key.is_empty() {
        return Ok(claimed);
    }
    let blocked = scalar::<DB, i64>(&catalog.sql.effects.blocked).bind(json!(with_key).to_string());
    let blocked: HashSet<i64> = blocked.fetch_all(conn).await?.into_iter().collect();
    for claimed in claimed.iter_mut().flatten() {
        claimed.is_blocked = blocked.contains(&claimed.effect.position);
    }
    Ok(claimed)
}

/// An effect whose request cannot be decoded.
pub(super) struct Undecodable {
    pub(super) effect: SideEffect,
    pub(super) error: Error,
}

fn read<DB: Dialect>(catalog: &Catalog, row: &DB::Row) -> Result<Result<Claimed, Undecodable>, Error> {
    let stored = side_effect::read::<DB>(row)?;
    let effect = stored.effect.clone();
    Ok(match stored.decode(catalog) {
        Ok(effect) => Ok(Claimed {
            effect,
            key_left: row.try_get::<Option<i64>, _>("key_left")?.map(positive),
            fired_ago: positive(row.try_get::<Option<i64>, _>("fired_ago")?.unwrap_or(0)),
            is_blocked: false,
            is_named: row.try_get::<Option<Uuid>, _>("id")?.is_some(),
        }),
        Err(error) => Err(Undecodable { effect, error }),
    })
}

/// The result of an effect, to be written.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) position: i64,
    /// The fence: the row must have the owner and this number of sends. `None`: the row is locked.
    pub(super) attempt: Option<u32>,
    pub(super) settled: Settled,
    pub(super) has_key: bool,
    /// The position of the effect that this one compensates.
    pub(super) compensates: Option<i64>,
    /// A vendor that asks for no call for that long.
    pub(super) closes: Option<(String, Duration)>,
}

impl Note {
    fn row(&self) -> Value {
        let settled = &self.settled;
        json!({
            "position": self.position,
            "attempt": self.attempt,
            "state": settled.state.as_str(),
            "unsent": settled.is_unsent,
            "renewed": settled.is_renewed,
            "failures": settled.failures,
            "delay": settled.delay.map(micros),
            "provider_ref": settled.provider_ref.as_deref().map(bounded),
            "http_code": settled.http_code,
            "error_code": settled.error_code.map(|code| code.as_str()),
            "error": settled.error.as_deref().map(bounded),
        })
    }
}

/// Writes results. Those of effects that another process has taken over since change nothing.
pub(super) async fn settle<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    owner: Uuid,
    notes: &[Note],
) -> Result<(), Error> {
    if notes.is_empty() {
        return Ok(());
    }
    let (sql, rows) = (&catalog.sql.effects, notes.iter().map(Note::row).collect::<Value>());
    let settled = query::<DB>(&sql.settle).bind(rows.to_string()).bind(owner).execute(&mut *conn).await?;
    let settled = usize::try_from(DB::rows_affected(&settled)).unwrap_or(usize::MAX);
    if settled < notes.len() {
        let late = notes.len() - settled;
        tracing::warn!(late, "effects took longer than their claim: another process decides about them");
    }
    let is_confirmed = |note: &&Note| note.settled.state == EffectState::Confirmed;
    let compensations = notes.iter().filter(is_confirmed).filter(|note| note.compensates.is_some());
    let compensations: Vec<_> = compensations.map(|note| note.position).collect();
    if !compensations.is_empty() {
        query::<DB>(&sql.compensate).bind(json!(compensations).to_string()).execute(&mut *conn).await?;
    }
    let has_ended = |note: &&Note| is_confirmed(note) || note.settled.state == EffectState::Failed;
    let ended = notes.iter().filter(has_ended).filter(|note| note.has_key).map(|note| note.position);
    // A compensated effect was open if it was unknown.
    let compensated = notes.iter().filter(is_confirmed).filter_map(|note| note.compensates);
    let ended: Vec<_> = ended.chain(compensated).collect();
    if !ended.is_empty() {
        query::<DB>(&sql.wake).bind(json!(ended).to_string()).execute(&mut *conn).await?;
    }
    for (vendor, wait) in notes.iter().filter_map(|note| note.closes.as_ref()) {
        query::<DB>(&sql.close_vendor).bind(vendor.clone()).bind(micros(*wait)).execute(&mut *conn).await?;
    }
    Ok(())
}
