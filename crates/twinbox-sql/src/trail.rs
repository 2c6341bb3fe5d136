//! What became of one message.
use crate::{
    Dialect, Error, Store,
    letters::{Letter, LetterFilter},
    micros::Micros,
    replay::unsigned,
    row,
    sql::{query, render, rows},
};
use sqlx::Row as _;
use twinbox_core::{Message, MessageId, Timestamp};
use uuid::Uuid;

/// Copies of one id that are told of.
const COPIES_MAX: i64 = 20;

/// What is known of a message in this database.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Trail {
    /// In the log, oldest first: several if several were published under one id.
    pub logged: Vec<Logged>,
    /// What each consumer of this database has made of it, by name.
    pub handled: Vec<Handled>,
    /// Its dead letters.
    pub letters: Vec<Letter>,
}

/// A message of the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Logged {
    /// Its place.
    pub position: i64,
    /// The message.
    pub message: Message,
    /// Where it stands for each reader of the log.
    pub readers: Vec<(String, Stands)>,
}

/// Where a message stands for a reader of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stands {
    /// It is yet to come, or on its way.
    Pending,
    /// It was taken, or passed by.
    Settled,
    /// It is put aside.
    PutAside {
        /// `waiting`, `dead` or `blocking`.
        state: String,
        /// How often it was tried.
        attempts: u32,
        /// Why it failed last, as a code.
        error: String,
    },
}

/// What a consumer has made of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Handled {
    /// The consumer.
    pub consumer: String,
    /// `processed`, `rejected` or `dead`, and since when. None: it has no claim.
    pub claim: Option<(String, Timestamp)>,
    /// Attempts that have failed since, and the last error.
    pub failures: Option<(u32, String)>,
    /// How often a replay has taken its claim back.
    pub superseded: u64,
}

impl<DB: Dialect> Store<DB> {
    /// Follows a message, by its event id or by its message id. Of what has no claim and lies in no log any more, a message
    /// id tells nothing.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn trail(&self, id: &str) -> Result<Trail, Error> {
        let (event_id, message_id) = match Uuid::try_parse(id) {
            Ok(message_id) => match self.event_of(message_id).await? {
                Some(event_id) => (event_id, Some(MessageId::from_uuid(message_id))),
                None => (id.to_owned(), None),
            },
            Err(_) => (id.to_owned(), None),
        };
        let logged = self.logged(&event_id).await?;
        let filter = LetterFilter { message: Some(event_id.clone()), ..LetterFilter::default() };
        let mut letters = Vec::new();
        self.each_letter(&filter, |letter| letters.push(letter)).await?;
        let of_log = logged.first().map(|one| one.message.message_id());
        let message_id = message_id
            .or(of_log)
            .or_else(|| letters.first().map(|letter| letter.message_id))
            .unwrap_or_else(|| MessageId::of(self.service(), &event_id));
        Ok(Trail { logged, handled: self.handled(message_id).await?, letters })
    }

    async fn event_of(&self, message_id: Uuid) -> Result<Option<String>, Error> {
        let mut conn = self.connection().await?;
        let event = rows::<DB, (String, String)>(&self.statements().trail_event).bind(message_id);
        let event = event.fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(event.map(|(_, event_id)| event_id))
    }

    async fn logged(&self, event_id: &str) -> Result<Vec<Logged>, Error> {
        let statements = self.statements();
        let readers = self.readers().await?;
        let mut conn = self.connection().await?;
        let found = query::<DB>(&statements.trail_log).bind(event_id.to_owned()).bind(COPIES_MAX);
        let mut logged = Vec::new();
        for row in found.fetch_all(&mut *conn).await? {
            let position: i64 = row.try_get(0)?;
            let message = row::of_log::<DB>(&row, 1, self.service(), position)?;
            let mut stands = Vec::new();
            for reader in &readers {
                stands.push((reader.name.clone(), self.stands(&mut conn, &reader.name, position).await?));
            }
            logged.push(Logged { position, message, readers: stands });
        }
        conn.done().await?;
        Ok(logged)
    }

    async fn stands(&self, conn: &mut DB::Connection, reader: &str, position: i64) -> Result<Stands, Error> {
        let statements = self.statements();
        let parked = query::<DB>(&statements.trail_parked).bind(reader.to_owned()).bind(position);
        if let Some(row) = parked.fetch_optional(&mut *conn).await? {
            let attempts = u32::try_from(unsigned(row.try_get(1)?)).unwrap_or(u32::MAX);
            return Ok(Stands::PutAside { state: row.try_get(0)?, attempts, error: row.try_get(2)? });
        }
        let cursor = query::<DB>(&statements.replay_bound).bind(reader.to_owned());
        let Some(cursor) = cursor.fetch_optional(&mut *conn).await? else { return Ok(Stands::Pending) };
        let (p, w, at): (i64, i64, i64) = (cursor.try_get(0)?, cursor.try_get(1)?, cursor.try_get(2)?);
        let [begin, settled, ..] = DB::SETTLED;
        let text = format!("{begin}SELECT 1 FROM {{outbox}} o, s WHERE {settled} AND o.position = ?");
        let settled = sqlx::query(render::<DB>(&statements.namespace, &text)).persistent(false);
        let settled = settled.bind(p).bind(w).bind(at).bind(position).fetch_optional(conn).await?;
        Ok(if settled.is_some() { Stands::Settled } else { Stands::Pending })
    }

    async fn handled(&self, message_id: MessageId) -> Result<Vec<Handled>, Error> {
        let mut conn = self.connection().await?;
        let id = message_id.as_uuid();
        let found = query::<DB>(&self.statements().trail_claims).bind(id).bind(id).bind(id);
        let found = found.fetch_all(&mut *conn).await?;
        conn.done().await?;
        let read = |row: DB::Row| {
            let (state, at): (Option<String>, Option<Micros>) = (row.try_get(1)?, row.try_get(2)?);
            let (failures, error): (Option<i64>, Option<String>) = (row.try_get(3)?, row.try_get(4)?);
            let failures = failures.map(|failures| u32::try_from(failures).unwrap_or(u32::MAX));
            Ok(Handled {
                consumer: row.try_get(0)?,
                claim: state.zip(at.map(|at| at.0)),
                failures: failures.zip(error),
                superseded: unsigned(row.try_get(5)?),
            })
        };
        found.into_iter().map(read).collect()
    }
}
