//! Messages that programs have still to read, counted by all that decides whether a program can read them.
use crate::Ops;
use sqlx::Row as _;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error, ReaderName,
    engine::{
        COUNT_MAX, Cursor, Micros, TextColumns, count, optional_text, query, query_of, render,
        selection::{Condition, bind, count_selected},
    },
    replay::Replay,
};

/// The most replays that are looked at, newest first.
const REPLAYS_MAX: u32 = 1000;

/// Messages of one type, version and codec that a program has still to read. A program can read all of them
/// or none.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// Where these messages wait.
    pub state: BacklogState,
    /// The reader for which these messages wait: a destination, or a consumer as `consumer:NAME`. None: no
    /// reader yet.
    pub reader: Option<String>,
    /// The event type of the messages.
    pub event_type: String,
    /// The version of the payloads.
    pub version: u32,
    /// The name of the [codec](twinbox_core::PayloadCodec) that encoded the payloads, or none for plain
    /// payloads.
    pub codec: Option<String>,
    /// How many messages wait.
    pub messages: u64,
    /// The event id of one of these messages.
    pub example: String,
}

/// Where messages wait that a program has still to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BacklogState {
    /// Messages whose time has not come.
    Delayed,
    /// Messages of the log that the destination has not settled.
    Pending,
    /// Parked messages, which wait for another attempt.
    Parked,
    /// Dead letters, which can be redriven.
    Dead,
    /// Messages of the log that a replay has still to send.
    Replayed,
    /// Messages that were published since a time: a broker may still have them.
    Published,
}

impl BacklogState {
    /// Returns the word for this state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Pending => "pending",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Replayed => "replayed",
            Self::Published => "published",
        }
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Counts the messages that programs have still to read, by type, version and codec: delayed ones, those
    /// that a destination or a consumer of the log has not settled, parked ones, dead letters, and those of
    /// replays that have not ended. With `since` also messages from that time on, which a broker may still
    /// have for its consumers. A message that moves meanwhile is counted once or twice, and is not missed.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn backlog(&self, since: Option<Timestamp>) -> Result<Vec<Backlog>, Error> {
        let sql = self.engine.sql();
        let replays = self.readable_replays(REPLAYS_MAX).await?;
        let (mut conn, mut backlog) = (self.engine.connection().await?, Vec::new());
        // In the order in which messages move, so that none is missed.
        for row in query::<DB>(&sql.backlog.delayed).within(COUNT_MAX).fetch_all(&mut *conn).await? {
            backlog.push(read::<DB>(&row, BacklogState::Delayed)?);
        }
        for row in query::<DB>(&sql.cursors.live_names).fetch_all(&mut *conn).await? {
            let name: String = row.text("destination")?;
            let position = query::<DB>(&sql.cursors.position).bind(name.clone());
            let Some(row) = position.fetch_optional(&mut *conn).await? else { continue };
            let Cursor { p, w, position } =
                Cursor { p: row.try_get("p")?, w: row.try_get("w")?, position: row.try_get("position")? };
            let pending = query::<DB>(&sql.backlog.pending).within(COUNT_MAX).bind(p).bind(w).bind(position);
            for row in pending.bind(name.clone()).fetch_all(&mut *conn).await? {
                let pending = read::<DB>(&row, BacklogState::Pending)?;
                backlog.push(Backlog { reader: Some(name.clone()), ..pending });
            }
        }
        for row in query::<DB>(&sql.backlog.parked_and_dead).within(COUNT_MAX).fetch_all(&mut *conn).await? {
            let is_dead = row.try_get("is_dead")?;
            let state = if is_dead { BacklogState::Dead } else { BacklogState::Parked };
            backlog.push(read::<DB>(&row, state)?);
        }
        for replay in replays.iter().filter(|replay| !replay.state.has_ended()) {
            backlog.extend(self.replay_backlog(&mut conn, replay).await?);
        }
        if let Some(since) = since {
            let published = query::<DB>(&sql.backlog.published_since).within(COUNT_MAX).bind(Micros(since));
            for row in published.fetch_all(&mut *conn).await? {
                backlog.push(read::<DB>(&row, BacklogState::Published)?);
            }
        }
        conn.done().await?;
        Ok(backlog)
    }

    /// All messages of a replay, settled ones included.
    async fn replay_backlog(
        &self,
        conn: &mut DB::Connection,
        replay: &Replay,
    ) -> Result<Vec<Backlog>, Error> {
        let mut conditions = Condition::of(&replay.selection, self.engine.service());
        conditions.push(Condition::positions(replay.first, replay.last));
        let text = render::<DB>(&self.engine.catalog().namespace, &count_selected(&conditions));
        let query = bind::<DB>(query_of(text, false).within(COUNT_MAX), conditions);
        let consumer = replay.consumer.clone().map(|name| ReaderName::Consumer(name).to_string());
        let reader = consumer.unwrap_or_else(|| replay.destination.clone());
        let rows = query.fetch_all(conn).await?;
        let read = |row: &DB::Row| {
            Ok(Backlog { reader: Some(reader.clone()), ..read::<DB>(row, BacklogState::Replayed)? })
        };
        let all = rows.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        Ok(all.into_iter().filter(|one| replay.selection.takes(&one.event_type)).collect())
    }
}

fn read<DB: Dialect>(row: &DB::Row, state: BacklogState) -> Result<Backlog, Error> {
    Ok(Backlog {
        state,
        reader: optional_text::<DB>(row, "reader")?.filter(|reader| !reader.is_empty()),
        event_type: optional_text::<DB>(row, "type")?.unwrap_or_default(),
        version: u32::try_from(row.try_get::<i64, _>("version")?).unwrap_or(u32::MAX),
        codec: optional_text::<DB>(row, "codec")?,
        messages: count(row.try_get("messages")?),
        example: optional_text::<DB>(row, "example")?.unwrap_or_default(),
    })
}
