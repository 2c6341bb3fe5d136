//! Past messages again.
//!
//! The log keeps what was published, so sending it again is reading it again: a replay is a row, and a cursor `replay:ID`
//! of its own that a [`Reader`](crate::log::Reader) moves from the first message that is selected to how far the
//! destination had settled the log when the replay was made. What is beyond comes by itself. Lease, epoch, the order of
//! keys and what is put aside are those of any reader, so a replay goes on where it was after a crash, can be held, and
//! nothing is deleted that it needs.
//!
//! Resend: the messages go to the destination again, and each consumer's inbox removes what it knows. Reprocess: they
//! are marked for one consumer, which takes its claims back and runs again; others pass them by.
mod make;
mod plan;
mod selection;

pub use plan::{PurgeMark, ReplayPlan, Sampled, TypeCount};
pub(crate) use selection::bind;
pub use selection::{IDS_MAX, Selection, TYPES_MAX};

use crate::{
    Dialect, Error, ErrorKind, Store,
    log::Cursor,
    micros::Micros,
    sql::{Statement, query},
};
use sqlx::Row as _;
use twinbox_core::{Timestamp, crash};
use uuid::Uuid;

/// A replay, with its cursor if it still has one. In the order of [`read`].
pub(crate) const REPLAY: &str = "SELECT r.id, r.token, r.destination, r.consumer, r.selection, r.p, r.w, r.position, \
    r.first, r.last, r.selected, r.rate, r.state, r.made_by, r.reason, r.made_at, r.ended_at, c.p, c.w, c.position, \
    c.held, c.owner IS NOT NULL AND c.lease_until > {now}, \
    (SELECT count(*) FROM {parked} k WHERE k.destination = 'replay:' || r.id AND k.state <> 'waiting') \
    FROM {replays} r LEFT JOIN {cursors} c ON c.destination = 'replay:' || r.id";

/// What a replay is made with.
#[derive(Debug, Clone)]
#[must_use]
pub struct NewReplay {
    pub(crate) consumer: Option<String>,
    pub(crate) rate: Option<u32>,
    pub(crate) made_by: String,
    pub(crate) reason: Option<String>,
}

impl NewReplay {
    /// The messages again, for whoever lacks them. `made_by`: who wants it.
    pub fn resend(made_by: impl Into<String>) -> Self {
        Self { consumer: None, rate: None, made_by: made_by.into(), reason: None }
    }

    /// The messages again, for this consumer to run although it has handled them. Others pass them by.
    pub fn reprocess(consumer: impl Into<String>, made_by: impl Into<String>) -> Self {
        Self { consumer: Some(consumer.into()), ..Self::resend(made_by) }
    }

    /// Who alone is to run them again.
    pub fn consumer(&self) -> Option<&str> {
        self.consumer.as_deref()
    }

    /// Messages a second, at most. Without it, and above it, a quarter of the rate of what is new.
    pub fn rate(self, rate: Option<u32>) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), ..self }
    }

    /// Why, for whoever looks next.
    pub fn reason(self, reason: Option<String>) -> Self {
        Self { reason, ..self }
    }
}

/// A replay as it is kept.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Replay {
    /// Which one, in this database.
    pub id: i64,
    /// Which one, for brokers and inboxes.
    pub token: Uuid,
    /// Where the messages go.
    pub destination: String,
    /// Who alone is to run them again. None: a resend.
    pub consumer: Option<String>,
    /// Which messages.
    pub selection: Selection,
    /// How many there were when it was made.
    pub selected: u64,
    /// Messages a second, at most.
    pub rate: Option<u32>,
    /// Where it stands.
    pub state: ReplayState,
    /// Who made it.
    pub made_by: String,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub made_at: Timestamp,
    /// Since when it runs no more.
    pub ended_at: Option<Timestamp>,
    /// About how many of its messages are done with: counted by their places in the log.
    pub done: u64,
    /// Messages that the destination refused for good. They stay with it, see [`Store::replay_refused`].
    pub refused: u64,
    /// Whether a process works on it.
    pub alive: bool,
    pub(crate) bound: Cursor,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

/// Where a replay stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayState {
    /// Whoever owns the destination executes it, or will.
    Running,
    /// Somebody holds it back.
    Paused {
        /// Why.
        reason: String,
    },
    /// Each message was taken or refused for good.
    Done,
    /// Somebody ended it before.
    Cancelled,
}

impl ReplayState {
    /// The word for it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused { .. } => "paused",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more comes of it.
    pub const fn has_ended(&self) -> bool {
        matches!(self, Self::Done | Self::Cancelled)
    }
}

impl Replay {
    /// The id of its cursor.
    pub fn cursor(&self) -> String {
        cursor(self.id)
    }
}

fn cursor(id: i64) -> String {
    format!("replay:{id}")
}

impl<DB: Dialect> Store<DB> {
    /// The newest replays, newest first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn replays(&self, limit: u32) -> Result<Vec<Replay>, Error> {
        let mut conn = self.connection().await?;
        let rows =
            query::<DB>(&self.statements().replays).bind(i64::from(limit)).fetch_all(&mut *conn).await?;
        conn.done().await?;
        rows.iter().map(read::<DB>).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn replay(&self, id: i64) -> Result<Replay, Error> {
        let found = self.one_replay(&self.statements().replay, id).await?;
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no replay {id}")))
    }

    async fn one_replay<T>(&self, statement: &Statement, of: T) -> Result<Option<Replay>, Error>
    where
        T: Send + sqlx::Type<DB> + for<'q> sqlx::Encode<'q, DB> + 'static,
    {
        let mut conn = self.connection().await?;
        let row = query::<DB>(statement).bind(of).fetch_optional(&mut *conn).await?;
        conn.done().await?;
        row.as_ref().map(read::<DB>).transpose()
    }

    /// The oldest replay to a destination that runs and that nobody holds back, for whoever executes it.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn next_replay(&self, destination: &str) -> Result<Option<Replay>, Error> {
        if !self.may_have_replays(destination).await? {
            return Ok(None);
        }
        self.one_replay(&self.statements().replay_next, destination.to_owned()).await
    }

    /// Holds a replay back, within a quarter of a lease. What is on its way arrives.
    ///
    /// # Errors
    /// It has ended, or there is none; or the database refused or is away.
    pub async fn pause_replay(&self, id: i64, reason: &str) -> Result<(), Error> {
        self.running(id).await?;
        self.open_breaker(&cursor(id), reason).await
    }

    /// Ends what [`pause_replay`](Self::pause_replay) began.
    ///
    /// # Errors
    /// As [`pause_replay`](Self::pause_replay).
    pub async fn resume_replay(&self, id: i64) -> Result<(), Error> {
        self.running(id).await?;
        self.close_breaker(&cursor(id)).await
    }

    async fn running(&self, id: i64) -> Result<(), Error> {
        let replay = self.replay(id).await?;
        if replay.state.has_ended() {
            return Err(Error::new(ErrorKind::Conflict, format!("replay {id} is {}", replay.state.as_str())));
        }
        Ok(())
    }

    /// Ends a replay before it is done. What was sent stays sent. False: it had ended.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn cancel_replay(&self, id: i64) -> Result<bool, Error> {
        self.replay(id).await?;
        self.end_replay(id, &ReplayState::Cancelled, None).await
    }

    /// Notes that all of it is done. False: it had ended. `run`: the [run](Self::server_run) of the server in which all of
    /// it was done.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: the server started anew, and may have forgotten some of it. The database refused or is
    /// away. Whoever opens its cursor next goes on where that stands.
    pub async fn finish_replay(&self, id: i64, run: i64) -> Result<bool, Error> {
        self.end_replay(id, &ReplayState::Done, Some(run)).await
    }

    async fn end_replay(&self, id: i64, state: &ReplayState, run: Option<i64>) -> Result<bool, Error> {
        let statements = self.statements();
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        if let Some(run) = run {
            self.check_run(tx.connection(), run).await?;
        }
        let ended = query::<DB>(&statements.replay_end).bind(state.as_str().to_owned()).bind(id);
        let ended = DB::rows_affected(&ended.execute(&mut *tx).await?) > 0;
        if ended {
            query::<DB>(&statements.replay_detach).bind(cursor(id)).execute(&mut *tx).await?;
        }
        crash::point("replay.before_end");
        tx.commit().await?;
        crash::point("replay.after_end");
        Ok(ended)
    }

    /// Ends the replays that run: of one destination, or all.
    pub(crate) async fn cancel_replays(
        &self,
        conn: &mut DB::Connection,
        destination: Option<&str>,
    ) -> Result<(), Error> {
        let statements = self.statements();
        for statement in [&statements.replay_cancel_all, &statements.replay_detach_ended] {
            query::<DB>(statement).bind(destination.map(str::to_owned)).execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// Messages of a replay that its destination refused for good.
    ///
    /// # Errors
    /// The database is away.
    pub async fn replay_refused(&self, id: i64, limit: u32) -> Result<Vec<crate::log::ParkedMessage>, Error> {
        self.parked(&cursor(id), limit).await
    }
}

fn read<DB: Dialect>(row: &DB::Row) -> Result<Replay, Error> {
    let number = |n: usize| Ok::<_, Error>(row.try_get::<i64, _>(n)?);
    let selection: String = row.try_get(4)?;
    let (first, last, selected) = (number(8)?, number(9)?, unsigned(number(10)?));
    let bound = Cursor { p: number(5)?, w: number(6)?, position: number(7)? };
    let (p, w): (Option<i64>, Option<i64>) = (row.try_get(17)?, row.try_get(18)?);
    let position: Option<i64> = row.try_get(19)?;
    let (held, state): (Option<String>, String) = (row.try_get(20)?, row.try_get(12)?);
    let state = match (&*state, held) {
        ("done", _) => ReplayState::Done,
        ("cancelled", _) => ReplayState::Cancelled,
        (_, Some(reason)) => ReplayState::Paused { reason },
        _ => ReplayState::Running,
    };
    let done = match (&state, p, position) {
        (ReplayState::Done, ..) => selected,
        // Between windows there is no position.
        (_, Some(at), _) if at > bound.p || at == bound.p && w == p => selected,
        (_, Some(_), Some(position)) => share(selected, first, last, position),
        _ => 0,
    };
    let rate: Option<i64> = row.try_get(11)?;
    Ok(Replay {
        id: number(0)?,
        token: row.try_get(1)?,
        destination: row.try_get(2)?,
        consumer: row.try_get(3)?,
        selection: Selection::from_json(&selection)?,
        selected,
        rate: rate.and_then(|rate| u32::try_from(rate).ok()),
        state,
        made_by: row.try_get(13)?,
        reason: row.try_get(14)?,
        made_at: row.try_get::<Micros, _>(15)?.0,
        ended_at: row.try_get::<Option<Micros>, _>(16)?.map(|at| at.0),
        done,
        refused: unsigned(number(22)?),
        alive: row.try_get(21)?,
        bound,
        first,
        last,
    })
}

/// Of `selected` messages from `first` to `last`, how many lie up to `position` if they are spread evenly.
fn share(selected: u64, first: i64, last: i64, position: i64) -> u64 {
    if position < first {
        return 0;
    }
    let (part, whole) = (i128::from(position.min(last) - first) + 1, i128::from(last - first) + 1);
    u64::try_from(i128::from(selected) * part / whole.max(1)).unwrap_or(selected)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_done_grows_from_none_to_all() {
        let shares: Vec<_> = [0, 9, 10, 19, 29, 99].map(|at| share(40, 10, 29, at)).into();
        assert_eq!(shares, [0, 0, 2, 20, 40, 40]);
        assert_eq!(share(1, 5, 5, 5), 1);
        assert_eq!(share(u64::MAX >> 1, 0, i64::MAX - 1, i64::MAX), u64::MAX >> 1);
    }
}
