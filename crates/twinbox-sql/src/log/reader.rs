use super::{
    BUFFERED_BYTES_MAX, BUFFERED_MAX, CURSOR_INTERVAL, Cursor, Entry, PAGE_BYTES, POLL_BUSY, POLL_IDLE,
    READ_AHEAD_MAX, ReaderOptions, THIN_INTERVAL, Ticket,
    cursor::Advanced,
    lanes::{Lanes, Place},
    page::{Fetched, Reading, fetch},
    parking::{Parking, looked},
    task::{Task, finished, in_time, joined},
};
use crate::{Dialect, Error, ErrorKind, Store};
use futures::FutureExt as _;
use std::{
    fmt,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

/// The engine that reads the log: it owns a cursor by lease, reads pages ahead, hands out messages so that
/// those of a key go one at a time and in order, and records how far everything is settled.
///
/// After any error it is of no use: drop it and open another, which reads the cursor again. What was handed
/// out and not recorded as settled is then handed out again; nothing is skipped.
pub struct Reader<DB: Dialect> {
    pub(super) store: Store<DB>,
    pub(super) destination: String,
    pub(super) options: ReaderOptions,
    pub(super) epoch: i64,
    pub(super) lanes: Lanes,
    reading: Reading,
    fetching: Option<AbortOnDropHandle<Result<Fetched, Error>>>,
    poll_at: Instant,
    flowed_at: Option<Instant>,
    thin_at: Instant,
    committed: watch::Receiver<()>,
    recorded: Cursor,
    writing: Option<Write>,
    wrote_at: Instant,
    lease_end: Instant,
    hold: Duration,
    /// Why somebody holds the destination back.
    held: Option<String>,
    pub(super) parking: Option<Parking>,
    /// All that a replay has is read.
    ended: bool,
}

struct Write {
    to: Cursor,
    sent_at: Instant,
    task: AbortOnDropHandle<Result<Advanced, Error>>,
}

type Written = (Cursor, Instant, Advanced);

/// How long the database may take until a cursor is taken.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// How long it may take to read a page. What is slow but answers ends before this; a connection whose other
/// side is gone without a word would not end for as long as TCP is patient.
const PAGE_READ_MAX: Duration = Duration::from_secs(30);
/// The first page is small, because nothing is known of the messages' size.
const FIRST_PAGE: usize = 200;

impl<DB: Dialect> Reader<DB> {
    /// Takes the lease of the cursor `destination` for `owner`, which must be another in every process and
    /// the same in all readers that one process opens after each other. None: another process has the lease.
    ///
    /// # Errors
    /// The store is not fit to be read (see [`Store::check`]), or the cursor's partitions are others. The
    /// database did not answer within 5 s: the lease may be taken then, and the same `owner` takes it again.
    pub async fn open(
        store: &Store<DB>,
        destination: &str,
        owner: Uuid,
        options: ReaderOptions,
    ) -> Result<Option<Self>, Error> {
        let taking = async {
            store.check().await?;
            let sent_at = Instant::now();
            Ok((sent_at, store.take_cursor(destination, owner, &options).await?))
        };
        let (sent_at, taken) = in_time(OPEN_MAX, taking).await?;
        let Some(owned) = taken else { return Ok(None) };
        let cursor = owned.cursor;
        tracing::debug!(destination, epoch = owned.epoch, ?cursor, "took the cursor");
        let mut reader = Self {
            store: store.clone(),
            destination: destination.to_owned(),
            epoch: owned.epoch,
            lanes: Lanes::new(cursor),
            reading: Reading {
                window: None,
                p: cursor.p,
                snapshot: None,
                inherited: (cursor.w > cursor.p).then_some(cursor.w),
                after: cursor.position,
                limit: FIRST_PAGE.min(options.page),
                // The row names one window, and the reader before this one may have been in the next.
                repeated: if owned.epoch > 1 { 2 } else { 0 },
            },
            fetching: None,
            poll_at: sent_at,
            flowed_at: None,
            thin_at: sent_at,
            committed: store.committed().subscribe(),
            recorded: cursor,
            writing: None,
            wrote_at: sent_at,
            lease_end: sent_at + options.lease,
            hold: Duration::ZERO,
            held: None,
            parking: options.parking.then(|| Parking::new(sent_at)),
            ended: false,
            options,
        };
        reader.note_held(owned.held);
        Ok(Some(reader))
    }

    /// How long before the end of the lease nothing is handed out any more: the time that a publish may take,
    /// so that none is under way when another process takes over.
    pub fn hold(&mut self, hold: Duration) {
        self.hold = hold;
    }

    /// Why nothing is handed out although the lease is ours: somebody opened the breaker by hand, see
    /// [`Store::open_breaker`].
    pub fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// Whether it reads for a [replay](ReaderOptions::replay).
    pub fn is_replay(&self) -> bool {
        self.options.replay.is_some()
    }

    /// Whether each message of the [replay](ReaderOptions::replay) that is read is done with: taken, or given up. Never
    /// with what is new.
    pub fn has_ended(&self) -> bool {
        self.ended && self.lanes.open() == 0 && self.parking.as_ref().is_none_or(Parking::is_idle)
    }

    /// Waits for messages that may go and hands out at most `room` of them, never two of a key. With no room
    /// it never returns a message and keeps lease and cursor fresh. None are handed out only when a replay
    /// [has ended](Self::has_ended). Cancel safe.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: stop everything that is under way. Any other error of the database, and a page
    /// that could not be read within 30 s: open another reader.
    pub async fn next(&mut self, room: usize) -> Result<Vec<Entry>, Error> {
        loop {
            let now = Instant::now();
            // Before anything is handed out, so that the next page is read while this one is worked on.
            if let Some(fetched) = finished(&mut self.fetching).now_or_never() {
                self.take_in(fetched?);
            }
            if let Some(written) = finished(&mut self.writing).now_or_never() {
                self.written(written?)?;
            }
            let stuck =
                self.parking.as_ref().is_some_and(|parking| parking.is_stuck(now, self.options.lease));
            if stuck || self.writing.as_ref().is_some_and(|write| now >= write.sent_at + self.options.lease) {
                return Err(Error::new(ErrorKind::LeaseLost, "the database did not answer within the lease"));
            }
            if let Some(parking) = &mut self.parking
                && let Some(looked) = finished(&mut parking.looking).now_or_never()
            {
                self.looked(looked?);
            }
            self.start_looking(now);
            self.start_fetching(now);
            self.start_writing(now);
            if self.has_ended() {
                return Ok(Vec::new());
            }
            let wake_at = self.lanes.wake(now);
            let open = self.held.is_none() && self.parking.as_ref().is_none_or(|parking| parking.open);
            if room > 0 && open && now + self.hold < self.lease_end {
                let entries = self.lanes.take(room);
                if !entries.is_empty() {
                    return Ok(entries);
                }
            }
            let due = self.due(wake_at);
            tokio::select! {
                fetched = finished(&mut self.fetching) => self.take_in(fetched?),
                written = finished(&mut self.writing) => self.written(written?)?,
                looked = looked(&mut self.parking) => self.looked(looked?),
                Ok(()) = self.committed.changed() => self.poll_at = now,
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    }

    /// The message is done with.
    pub fn settle(&mut self, ticket: Ticket) {
        match (ticket.place, &mut self.parking) {
            (Place::Parked(position), Some(parking)) => {
                parking.finish(position, self.reading.repeated > 0);
            }
            _ => self.lanes.settle(ticket),
        }
    }

    /// Hands the message out again after `delay`; those of its key wait behind it.
    pub fn retry(&mut self, entry: Entry, delay: Duration) {
        self.lanes.retry(entry, Instant::now() + delay);
    }

    /// Messages that are read, handed out or settled, from the lowest unfinished one on.
    pub fn open_messages(&self) -> usize {
        self.lanes.open()
    }

    /// Records how far everything is settled and gives the lease back.
    ///
    /// # Errors
    /// The database is away, or the lease was lost: what was settled last is handed out again.
    pub async fn close(self) -> Result<(), Error> {
        let lease = self.options.lease;
        tokio::time::timeout(lease, self.record_and_release()).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::LeaseLost, "the database did not answer within the lease"))
        })
    }

    async fn record_and_release(mut self) -> Result<(), Error> {
        self.finish_parking().await?;
        if self.writing.is_some() {
            let written = finished(&mut self.writing).await?;
            self.written(written)?;
        }
        let to = self.lanes.settled();
        if to != self.recorded {
            let Advanced::Ours { .. } = self.write(to).await? else { return Err(lease_lost()) };
        }
        self.store.release_cursor(&self.destination, self.epoch).await
    }

    /// When there is something to do next, unless something under way ends before.
    fn due(&self, wake_at: Option<Instant>) -> Instant {
        let write_at = match &self.writing {
            None => self.wrote_at + self.write_interval(),
            Some(write) => write.sent_at + self.options.lease,
        };
        let poll_at = self.wants_more().then_some(self.poll_at);
        let look_at = self.parking.as_ref().map(|parking| parking.look_due(self.options.lease));
        [wake_at, poll_at, look_at].into_iter().flatten().fold(write_at, Instant::min)
    }

    fn wants_more(&self) -> bool {
        let (messages, bytes) = self.lanes.buffered();
        self.fetching.is_none()
            && !self.ended
            && self.lanes.ready() < self.options.page
            && messages < BUFFERED_MAX
            && bytes < BUFFERED_BYTES_MAX
            && self.lanes.open() < READ_AHEAD_MAX
            && self.parking.as_ref().is_none_or(Parking::has_room)
    }

    fn start_fetching(&mut self, now: Instant) {
        if self.wants_more() && now >= self.poll_at {
            let thin = now >= self.thin_at;
            if thin {
                self.thin_at = now + THIN_INTERVAL;
            }
            let parked_of =
                (self.parking.is_some() && self.reading.repeated > 0).then(|| self.destination.clone());
            let replay = self.options.replay.clone();
            let page = fetch(self.store.clone(), self.reading.clone(), thin, parked_of, replay);
            let task = tokio::spawn(in_time(PAGE_READ_MAX, page));
            self.fetching = Some(AbortOnDropHandle::new(task));
        }
    }

    fn take_in(&mut self, fetched: Fetched) {
        let now = Instant::now();
        self.reading.inherited = None;
        self.ended |= fetched.ended;
        let Some(window) = fetched.window else {
            let flowing = self.flowed_at.is_some_and(|at| now - at < Duration::from_secs(1));
            self.poll_at = now + if flowing { POLL_BUSY } else { POLL_IDLE };
            return;
        };
        let bytes: usize = fetched.rows.iter().map(|(_, message)| message.payload.len()).sum();
        if !fetched.rows.is_empty() {
            self.flowed_at = Some(now);
            let average = (bytes / fetched.rows.len()).max(1);
            let grown = self.reading.limit.saturating_mul(4);
            self.reading.limit = (PAGE_BYTES / average).clamp(1, self.options.page).min(grown);
        }
        for (position, message) in fetched.rows {
            self.reading.after = position;
            let after = Cursor { p: window.p, w: window.w, position };
            let done = self.parking.as_ref().is_some_and(|parking| parking.done.contains(&position));
            if done || fetched.parked.contains(&position) {
                self.lanes.pass_by(after);
            } else {
                self.lanes.push(message, after, self.reading.repeated > 0);
            }
        }
        self.reading.window = Some(window.clone());
        if fetched.exhausted {
            self.lanes.end_window(Cursor { p: window.w, w: window.w, position: 0 });
            self.reading = Reading {
                window: None,
                p: window.w,
                after: 0,
                repeated: self.reading.repeated.saturating_sub(1),
                snapshot: Some(window.to),
                ..self.reading.clone()
            };
        }
        if self.reading.repeated == 0
            && let Some(parking) = &mut self.parking
        {
            parking.done.clear();
        }
        self.poll_at = if fetched.exhausted { now + POLL_BUSY } else { now };
    }

    /// A cursor that moved is written soon, one that did not in time for the lease.
    fn write_interval(&self) -> Duration {
        if self.lanes.settled() == self.recorded { self.options.lease / 4 } else { CURSOR_INTERVAL }
    }

    fn start_writing(&mut self, now: Instant) {
        if self.writing.is_none() && now >= self.wrote_at + self.write_interval() {
            let to = self.lanes.settled();
            let task = AbortOnDropHandle::new(tokio::spawn(self.write(to)));
            self.wrote_at = now;
            self.writing = Some(Write { to, sent_at: now, task });
        }
    }

    fn write(&self, to: Cursor) -> impl Future<Output = Result<Advanced, Error>> + Send + 'static {
        let (store, destination) = (self.store.clone(), self.destination.clone());
        let (lease, epoch, from) = (self.options.lease, self.epoch, self.recorded);
        let replay = self.options.replay.clone();
        async move {
            let replayed = replay.as_ref().map(|replay| &*replay.destination);
            store.advance_cursor(&destination, lease, epoch, from, to, replayed).await
        }
    }

    fn note_held(&mut self, held: Option<String>) {
        if held != self.held {
            let destination = &*self.destination;
            match &held {
                Some(reason) => tracing::warn!(destination, reason, "the breaker is opened by hand"),
                None => tracing::info!(destination, "the breaker is closed by hand"),
            }
            self.held = held;
        }
    }

    fn written(&mut self, (to, sent_at, advanced): Written) -> Result<(), Error> {
        let Advanced::Ours { held } = advanced else { return Err(lease_lost()) };
        self.note_held(held);
        self.recorded = to;
        self.lease_end = sent_at + self.options.lease;
        Ok(())
    }
}

pub(super) fn lease_lost() -> Error {
    Error::new(ErrorKind::LeaseLost, "another process owns the cursor now")
}

impl Task for Write {
    type Output = Written;

    fn poll_task(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<Self::Output, Error>> {
        let advanced = std::task::ready!(std::pin::Pin::new(&mut self.task).poll(cx));
        std::task::Poll::Ready(joined(advanced).map(|advanced| (self.to, self.sent_at, advanced)))
    }
}

impl<DB: Dialect> fmt::Debug for Reader<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("destination", &self.destination)
            .field("epoch", &self.epoch)
            .field("settled", &self.lanes.settled())
            .field("open", &self.lanes.open())
            .finish_non_exhaustive()
    }
}
