//! Messages that a destination did not take, put aside in rows of their own so that the rest goes on.
use super::{
    BUFFERED_BYTES_MAX, BUFFERED_MAX, Entry, PAGE_BYTES, Reader, Ticket, dead_letter, lanes::Place,
    reader::lease_lost, task::finished,
};
use crate::{
    Dialect, Error, Store, row,
    sql::{query, scalar},
};
use sqlx::Row as _;
use std::{
    collections::HashSet,
    time::{Duration, Instant},
};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{Draft, Message, crash};

/// Waiting messages of one destination, give or take what is on its way. At that many nothing more is read.
pub const PARKED_MAX: usize = 10_000;
/// How often rows are looked at that somebody else may have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How soon messages that are due are looked for again when not all were found.
const DUE_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that are taken up together.
const DUE_MAX: usize = 200;
/// Messages that are taken up and not done with.
const RUNNING_MAX: usize = 1000;
/// Rows that are written together. Few, because the row of the cursor is held meanwhile.
const WRITTEN_MAX: usize = 500;

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

/// What is written of one message. No row: it is done with.
struct Change {
    position: i64,
    /// What is settled once the change is committed.
    ticket: Option<Ticket>,
    row: Option<Row>,
}

struct Row {
    key: Option<String>,
    event_type: String,
    parked: Parked,
    attempts: u32,
    error: String,
    announcement: Option<Draft>,
}

/// What a reader knows of the rows of its destination.
pub(super) struct Parking {
    changes: Vec<Change>,
    /// Messages of the changes that are being written.
    writing: Vec<(i64, Option<Ticket>)>,
    /// Messages that are taken up again.
    running: HashSet<i64>,
    /// Messages that are done with, while the log may still bring some that an earlier reader put aside.
    pub(super) done: HashSet<i64>,
    /// The work under way.
    pub(super) looking: Option<AbortOnDropHandle<Result<Looked, Error>>>,
    looking_since: Instant,
    look_at: Instant,
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
            done: HashSet::new(),
            looking: None,
            looking_since: now,
            look_at: now,
            waiting: None,
            open: false,
        }
    }

    /// Whether more may be read.
    pub(super) fn has_room(&self) -> bool {
        let unwritten = self.changes.len() + self.writing.len();
        self.waiting.is_some_and(|waiting| waiting + unwritten < PARKED_MAX)
    }

    /// When there is something to do next.
    pub(super) fn look_due(&self, lease: Duration) -> Instant {
        if self.looking.is_some() { self.looking_since + lease } else { self.look_at }
    }

    /// Whether the database has not answered for that long.
    pub(super) fn is_stuck(&self, now: Instant, lease: Duration) -> bool {
        self.looking.is_some() && now >= self.looking_since + lease
    }

    /// Whether a message that blocks everything is still to be written.
    fn is_blocking(&self) -> bool {
        let blocks = |change: &Change| change.row.as_ref().is_some_and(|row| row.parked == Parked::Blocking);
        self.changes.iter().any(blocks)
    }

    /// Whether nothing is left to write, and nothing waits to be tried again.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == Some(0)
            && self.changes.is_empty()
            && self.writing.is_empty()
            && self.running.is_empty()
    }

    /// A message that was taken up again is done with. `reread`: the log may still bring it, without its row.
    pub(super) fn finish(&mut self, position: i64, reread: bool) {
        self.changes.push(Change { position, ticket: None, row: None });
        if reread {
            self.done.insert(position);
        }
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
        let announced = self.options.dead_letter_events && !matches!(parked, Parked::Waiting(_));
        let announcement = announced
            .then(|| dead_letter::event(&self.destination, &entry.message, attempts, error))
            .flatten();
        let row = Row {
            key: entry.message.key,
            event_type: entry.message.event_type,
            parked,
            attempts,
            error: error.to_owned(),
            announcement,
        };
        parking.open &= parked != Parked::Blocking;
        parking.changes.push(Change { position, ticket, row: Some(row) });
    }

    /// Writes what is to be put aside and looks for what is due.
    pub(super) fn start_looking(&mut self, now: Instant) {
        let Some(parking) = &mut self.parking else { return };
        let nothing = parking.changes.is_empty() && !self.lanes.has_aside();
        if parking.looking.is_some() || (nothing && now < parking.look_at) {
            return;
        }
        let behind = |entry: Entry| Change {
            position: position_of(&entry),
            ticket: Some(entry.ticket),
            row: Some(Row {
                key: entry.message.key,
                event_type: entry.message.event_type,
                parked: Parked::Waiting(Duration::ZERO),
                attempts: 0,
                error: "behind".to_owned(),
                announcement: None,
            }),
        };
        let mut changes: Vec<_> = parking.changes.drain(..parking.changes.len().min(WRITTEN_MAX)).collect();
        changes.extend(self.lanes.take_aside(WRITTEN_MAX - changes.len()).into_iter().map(behind));
        parking.writing = changes.iter().map(|change| (change.position, change.ticket)).collect();
        let (messages, bytes) = self.lanes.buffered();
        let room =
            parking.running.len() < RUNNING_MAX && messages < BUFFERED_MAX && bytes < BUFFERED_BYTES_MAX;
        let running = (parking.open && room).then(|| parking.running.clone());
        let (store, destination, epoch) = (self.store.clone(), self.destination.clone(), self.epoch);
        let task = async move { store.write_and_look(&destination, epoch, changes, running).await };
        parking.looking = Some(AbortOnDropHandle::new(tokio::spawn(task)));
        parking.looking_since = now;
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
        for (position, attempts, mut message) in looked.due {
            if parking.running.insert(position) {
                if let Some(replay) = &self.options.replay {
                    replay.mark(&mut message);
                }
                self.lanes.resume(position, attempts, message);
            }
        }
        parking.waiting = Some(looked.waiting);
        // With the gate closed a look takes nothing up.
        let was_open = parking.open;
        parking.open = !looked.blocking && !parking.is_blocking();
        let interval = if looked.waiting > 0 { DUE_INTERVAL } else { LOOK_INTERVAL };
        parking.look_at = if parking.open && !was_open { now } else { now + interval };
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
        running: Option<HashSet<i64>>,
    ) -> Result<Looked, Error> {
        if changes.is_empty() {
            let mut conn = self.connection().await?;
            let looked = self.look(&mut conn, destination, running).await?;
            conn.done().await?;
            return Ok(looked);
        }
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        let fence = query::<DB>(&self.statements().parked_fence).bind(destination.to_owned()).bind(epoch);
        if DB::rows_affected(&fence.execute(&mut *tx).await?) == 0 {
            return Err(lease_lost());
        }
        for Change { position, row, .. } in changes {
            let statement = match row {
                None => query::<DB>(&self.statements().unpark).bind(destination.to_owned()).bind(position),
                Some(Row { key, event_type, parked, attempts, error, announcement }) => {
                    if let Some(draft) = announcement {
                        self.outbox().publish_draft(&mut tx, draft).await?;
                    }
                    query::<DB>(&self.statements().park)
                        .bind(destination.to_owned())
                        .bind(position)
                        .bind(key)
                        .bind(event_type)
                        .bind(parked.state().to_owned())
                        .bind(parked != Parked::Dead)
                        .bind(i64::from(attempts))
                        .bind(i64::try_from(parked.delay().as_micros()).unwrap_or(i64::MAX))
                        .bind(error.clone())
                        .bind(error)
                }
            };
            statement.execute(&mut *tx).await?;
        }
        let looked = self.look(&mut tx, destination, running).await?;
        crash::point("log.before_park");
        tx.commit().await?;
        crash::point("log.after_park");
        Ok(looked)
    }

    /// Looks at the rows, and takes up what is due and not `running` already. None: nothing is taken up.
    async fn look(
        &self,
        conn: &mut DB::Connection,
        destination: &str,
        running: Option<HashSet<i64>>,
    ) -> Result<Looked, Error> {
        let statements = self.statements();
        let keys = scalar::<DB, String>(&statements.parked_keys);
        let keys = keys.bind(destination.to_owned()).fetch_all(&mut *conn).await?;
        let counts = query::<DB>(&statements.parked_counts)
            .bind(destination.to_owned())
            .bind(destination.to_owned())
            .fetch_one(&mut *conn)
            .await?;
        let (waiting, blocking): (i64, i64) = (counts.try_get(0)?, counts.try_get(1)?);
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
        let mut looked = Looked { keys, waiting, blocking: blocking > 0, due: Vec::new() };
        let Some(running) = running else { return Ok(looked) };
        let due = query::<DB>(&statements.parked_due)
            .bind(destination.to_owned())
            .bind(i64::try_from(DUE_MAX + running.len()).unwrap_or(i64::MAX))
            .fetch_all(&mut *conn)
            .await?;
        let mut bytes = 0;
        for row in due {
            let (position, attempts): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if running.contains(&position) || bytes >= PAGE_BYTES {
                continue;
            }
            let found = query::<DB>(&statements.message_at).bind(position).fetch_optional(&mut *conn).await?;
            let Some(row) = found else { continue };
            let message = row::of_log::<DB>(&row, 0, self.service(), position)?;
            bytes += message.payload.len();
            looked.due.push((position, u32::try_from(attempts).unwrap_or(u32::MAX), Box::new(message)));
        }
        Ok(looked)
    }
}
