//! Messages that a destination did not take, put aside in rows of their own so that the rest goes on.
use super::{Entry, Reader, Ticket, lanes::Place, reader::lease_lost, task::finished};
use crate::{Dialect, Error, Store, row, row::query};
use sqlx::Row as _;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{Message, crash};

/// Waiting messages of one destination, give or take what is on its way. At that many nothing more is read.
pub const PARKED_MAX: usize = 10_000;
/// How often rows are looked at that somebody else may have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How soon messages that are due are looked for again when not all were found.
const DUE_INTERVAL: Duration = Duration::from_millis(50);
/// Messages that are taken up together.
const DUE_MAX: usize = 200;

/// What is to become of a message that is put aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parked {
    /// It is tried again after this long; later messages of its key wait behind it.
    Waiting(Duration),
    /// It is given up; later messages of its key go on.
    Dead,
    /// It is given up; later messages of its key wait until somebody decides.
    DeadHoldingKey,
    /// It is given up; nothing more is handed out until somebody decides.
    Blocking,
}

impl Parked {
    fn state(self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Dead | Self::DeadHoldingKey => "dead",
            Self::Blocking => "blocking",
        }
    }

    fn delay(self) -> Duration {
        if let Self::Waiting(delay) = self { delay } else { Duration::ZERO }
    }
}

/// A message that is put aside, with its row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParkedMessage {
    /// The message.
    pub message: Message,
    /// `waiting`, `dead` or `blocking`.
    pub state: String,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it was put aside at first, as a code.
    pub first_error: String,
    /// Why it failed last, as a code.
    pub last_error: String,
}

/// What is written of one message. No row: it is done with.
struct Change {
    position: i64,
    /// What is settled once the change is committed.
    ticket: Option<Ticket>,
    row: Option<Row>,
}

struct Row {
    message: Box<Message>,
    parked: Parked,
    attempts: u32,
    error: String,
}

/// What a reader knows of the rows of its destination.
pub(super) struct Parking {
    changes: Vec<Change>,
    /// Messages of the changes that are being written.
    writing: Vec<(i64, Option<Ticket>)>,
    /// Messages that are taken up again.
    running: HashSet<i64>,
    /// The work under way.
    pub(super) looking: Option<AbortOnDropHandle<Result<Looked, Error>>>,
    pub(super) look_at: Instant,
    /// None before the first look.
    waiting: Option<usize>,
    /// Whether messages may go: not before the first look, nor while one blocks.
    pub(super) open: bool,
}

pub(super) struct Looked {
    keys: Vec<String>,
    waiting: usize,
    blocking: bool,
    due: Vec<(i64, u32, Box<Message>)>,
}

impl Parking {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            changes: Vec::new(),
            writing: Vec::new(),
            running: HashSet::new(),
            looking: None,
            look_at: now,
            waiting: None,
            open: false,
        }
    }

    /// Whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting < PARKED_MAX)
    }

    /// A message that was taken up again is done with.
    pub(super) fn finish(&mut self, position: i64) {
        self.changes.push(Change { position, ticket: None, row: None });
    }
}

/// Waits for what was found put aside; for ever without parking.
pub(super) async fn looked(parking: &mut Option<Parking>) -> Result<Looked, Error> {
    match parking {
        Some(parking) => finished(&mut parking.looking).await,
        None => std::future::pending().await,
    }
}

impl<DB: Dialect> Reader<DB> {
    /// Puts a message aside, for readers with [`parking`](super::ReaderOptions::parking). `attempts` is how
    /// often it was tried, `error` a code that says why it failed. Nothing later of its key is handed out
    /// before that is committed.
    ///
    /// After a crash before the commit the message is handed out again.
    ///
    /// # Panics
    /// The reader was opened without parking.
    pub fn park(&mut self, entry: Entry, parked: Parked, attempts: u32, error: &str) {
        let parking = self.parking.as_mut().expect("a reader with parking");
        let (position, ticket) = match entry.ticket.place {
            Place::Log(_) => (position_of(&entry), Some(entry.ticket)),
            Place::Parked(position) => (position, None),
        };
        let row = Row { message: entry.message, parked, attempts, error: error.to_owned() };
        parking.changes.push(Change { position, ticket, row: Some(row) });
    }

    /// Writes what is to be put aside and looks for what is due.
    pub(super) fn start_looking(&mut self, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        let nothing = parking.changes.is_empty() && !self.lanes.has_aside();
        if parking.looking.is_some() || (nothing && now < parking.look_at) {
            return;
        }
        let mut changes = std::mem::take(&mut parking.changes);
        changes.extend(self.lanes.take_aside().into_iter().map(|entry| Change {
            position: position_of(&entry),
            ticket: Some(entry.ticket),
            row: Some(Row {
                message: entry.message,
                parked: Parked::Waiting(Duration::ZERO),
                attempts: 0,
                error: "behind".to_owned(),
            }),
        }));
        parking.writing = changes.iter().map(|change| (change.position, change.ticket)).collect();
        let (store, destination, epoch) = (self.store.clone(), self.destination.clone(), self.epoch);
        let most = DUE_MAX + parking.running.len();
        let task = async move { store.write_and_look(&destination, epoch, changes, most).await };
        parking.looking = Some(AbortOnDropHandle::new(tokio::spawn(task)));
    }

    pub(super) fn looked(&mut self, looked: Looked) {
        let Some(parking) = &mut self.parking else { return };
        let now = Instant::now();
        if looked.waiting >= PARKED_MAX && parking.waiting.is_none_or(|waiting| waiting < PARKED_MAX) {
            tracing::error!(
                destination = self.destination,
                waiting = looked.waiting,
                "too many messages are parked: nothing more is read until some are taken"
            );
        }
        // Before anything is settled, so that what comes next of a key finds it held.
        self.lanes.hold(&looked.keys);
        for (position, ticket) in parking.writing.drain(..) {
            parking.running.remove(&position);
            if let Some(ticket) = ticket {
                self.lanes.settle(ticket);
            }
        }
        let more = looked.due.len() >= DUE_MAX;
        for (position, attempts, message) in looked.due {
            if parking.running.insert(position) {
                self.lanes.resume(position, attempts, message);
            }
        }
        parking.waiting = Some(looked.waiting);
        parking.open = !looked.blocking;
        let interval = if more || looked.waiting > 0 { DUE_INTERVAL } else { LOOK_INTERVAL };
        parking.look_at = now + interval;
    }

    /// Waits until all that was put aside is committed.
    pub(super) async fn finish_parking(&mut self) -> Result<(), Error> {
        loop {
            if let Some(parking) = &mut self.parking
                && parking.looking.is_some()
            {
                let looked = finished(&mut parking.looking).await?;
                self.looked(looked);
            }
            let Some(parking) = &mut self.parking else { return Ok(()) };
            if parking.changes.is_empty() && !self.lanes.has_aside() {
                return Ok(());
            }
            self.start_looking(Instant::now());
        }
    }
}

fn position_of(entry: &Entry) -> i64 {
    entry.message.sequence.and_then(|n| i64::try_from(n).ok()).unwrap_or_default()
}

impl<DB: Dialect> Store<DB> {
    async fn write_and_look(
        &self,
        destination: &str,
        epoch: i64,
        changes: Vec<Change>,
        most: usize,
    ) -> Result<Looked, Error> {
        if changes.is_empty() {
            return self.look(&mut *self.connection().await?, destination, most).await;
        }
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        let fence = query::<DB>(&self.statements().parked_fence).bind(destination.to_owned()).bind(epoch);
        if DB::rows_affected(&fence.execute(&mut *tx).await?) == 0 {
            return Err(lease_lost());
        }
        for Change { position, row, .. } in changes {
            let statement = match row {
                None => query::<DB>(&self.statements().unpark).bind(destination.to_owned()).bind(position),
                Some(Row { message, parked, attempts, error }) => query::<DB>(&self.statements().park)
                    .bind(destination.to_owned())
                    .bind(position)
                    .bind(message.key)
                    .bind(message.event_type)
                    .bind(parked.state().to_owned())
                    .bind(parked != Parked::Dead)
                    .bind(i64::from(attempts))
                    .bind(i64::try_from(parked.delay().as_micros()).unwrap_or(i64::MAX))
                    .bind(error.clone())
                    .bind(error),
            };
            statement.execute(&mut *tx).await?;
        }
        let looked = self.look(&mut tx, destination, most).await?;
        crash::point("log.before_park");
        tx.commit().await?;
        crash::point("log.after_park");
        Ok(looked)
    }

    async fn look(&self, conn: &mut DB::Connection, destination: &str, most: usize) -> Result<Looked, Error> {
        let statements = self.statements();
        let keys = sqlx::query_scalar::<DB, String>(statements.parked_keys.clone());
        let keys = keys.bind(destination.to_owned()).fetch_all(&mut *conn).await?;
        let counts = query::<DB>(&statements.parked_counts)
            .bind(destination.to_owned())
            .bind(destination.to_owned())
            .fetch_one(&mut *conn)
            .await?;
        let (waiting, blocking): (i64, i64) = (counts.try_get(0)?, counts.try_get(1)?);
        let due = query::<DB>(&statements.parked_due)
            .bind(destination.to_owned())
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
            .fetch_all(conn)
            .await?;
        let read = |row: DB::Row| {
            let (position, attempts) = (row.try_get(0)?, row.try_get::<i64, _>(1)?);
            let message = row::message::<DB>(&row, 3, self.service(), Some(position))?;
            Ok((position, u32::try_from(attempts).unwrap_or(u32::MAX), Box::new(message)))
        };
        let due = due.into_iter().map(read).collect::<Result<_, Error>>()?;
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        Ok(Looked { keys, waiting, blocking: blocking > 0, due })
    }

    /// Messages that a destination did not take, oldest first.
    ///
    /// # Errors
    /// The database is away.
    pub async fn parked(&self, destination: &str, limit: u32) -> Result<Vec<ParkedMessage>, Error> {
        let rows = query::<DB>(&self.statements().parked)
            .bind(destination.to_owned())
            .bind(i64::from(limit))
            .fetch_all(&mut *self.connection().await?)
            .await?;
        let read = |row: DB::Row| {
            let message = row::message::<DB>(&row, 6, self.service(), Some(row.try_get(0)?))?;
            let attempts: i64 = row.try_get(2)?;
            Ok(ParkedMessage {
                message,
                state: row.try_get(1)?,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                first_error: row.try_get(3)?,
                last_error: row.try_get(4)?,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// Which of the messages from one position to another are put aside.
    pub(super) async fn parked_among(
        &self,
        conn: &mut DB::Connection,
        destination: &str,
        (first, last): (i64, i64),
    ) -> Result<HashSet<i64>, Error> {
        let positions = sqlx::query_scalar::<DB, i64>(self.statements().parked_among.clone());
        let positions = positions.bind(destination.to_owned()).bind(first).bind(last);
        Ok(positions.fetch_all(conn).await?.into_iter().collect())
    }
}
