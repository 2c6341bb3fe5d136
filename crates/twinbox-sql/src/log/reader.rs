use super::{
    BUFFERED_BYTES_MAX, BUFFERED_MAX, CURSOR_INTERVAL, Cursor, Entry, PAGE_BYTES, POLL_BUSY, POLL_IDLE,
    Parked, READ_AHEAD_MAX, ReaderOptions, Room, Ticket,
    cursor::{Advanced, Ownership},
    page::{Fetched, Reading, fetch},
    task::{finished, in_time},
    write::{Write, Written},
};
use crate::{
    Dialect, Error, ErrorKind, Store,
    parking::{CursorOwner, Owner, Queue},
};
use futures::FutureExt as _;
use std::{
    fmt,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{Message, destination::Order};
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
    pub(super) ownership: Ownership,
    queue: Queue<DB, Box<Message>, Cursor>,
    reading: Reading,
    fetching: Option<AbortOnDropHandle<Result<Fetched, Error>>>,
    poll_at: Instant,
    flowed_at: Option<Instant>,
    /// Somebody in this process has committed: what is known of the log is too old.
    is_stale: bool,
    found: watch::Receiver<i64>,
    committed: watch::Receiver<()>,
    recorded: Cursor,
    writing: Option<Write>,
    wrote_at: Instant,
    lease_end: Instant,
    hold: Duration,
    /// Why somebody holds the destination back.
    held: Option<String>,
    /// All that a replay has is read.
    ended: bool,
}

/// How long the database may take until a cursor is taken.
const OPEN_MAX: Duration = Duration::from_secs(5);
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
        let ownership = owned.ownership;
        tracing::debug!(destination, epoch = ownership.epoch, ?cursor, "took the cursor");
        let owner = CursorOwner { destination: destination.to_owned(), ownership };
        let mut queue = Queue::new(store, Owner::Cursor(owner), cursor, options.parking);
        queue.announce(options.dead_letter_events);
        // The row names one window, and the reader before this one may have been in the next.
        let repeated = if ownership.epoch > 1 { 2 } else { 0 };
        queue.is_reread(repeated > 0);
        let mut reader = Self {
            store: store.clone(),
            destination: destination.to_owned(),
            ownership,
            queue,
            reading: Reading {
                window: None,
                p: cursor.p,
                run: ownership.run,
                snapshot: None,
                inherited: (cursor.w > cursor.p).then_some(cursor.w),
                after: cursor.position,
                limit: FIRST_PAGE.min(options.page),
                repeated,
            },
            fetching: None,
            poll_at: sent_at,
            flowed_at: None,
            is_stale: false,
            found: store.log_look().found(),
            committed: store.committed().subscribe(),
            recorded: cursor,
            writing: None,
            wrote_at: sent_at,
            lease_end: sent_at + options.lease,
            hold: Duration::ZERO,
            held: None,
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
        self.ended && self.queue.is_idle()
    }

    /// What the place at the end keeps of the order in which it is sent to. To be said before the first message is handed
    /// out: an [ordered](Order::Ordered) one gets several of a key, one after the other.
    pub fn order(&mut self, order: Order) {
        self.queue.order(order);
    }

    /// Waits for messages that may go and hands out as many as there is room for. With no room
    /// it never returns a message and keeps lease and cursor fresh. None are handed out only when a replay
    /// [has ended](Self::has_ended). Cancel safe.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: stop everything that is under way. Any other error of the database, and a page
    /// that could not be read within 30 s: open another reader.
    pub async fn next(&mut self, room: impl Into<Room>) -> Result<Vec<Entry>, Error> {
        let room = room.into();
        loop {
            let now = Instant::now();
            // Before anything is handed out, so that the next page is read while this one is worked on.
            if let Some(fetched) = finished(&mut self.fetching).now_or_never() {
                self.take_in(fetched?);
            }
            if let Some(written) = finished(&mut self.writing).now_or_never() {
                self.written(written?)?;
            }
            let asked_at =
                self.writing.as_ref().map(|write| write.sent_at).into_iter().chain(self.queue.asked_at());
            if asked_at.min().is_some_and(|at| now >= at + self.options.lease) {
                return Err(Error::new(ErrorKind::LeaseLost, "the database did not answer within the lease"));
            }
            if let Some(finished) = self.queue.finished().now_or_never() {
                finished?;
            }
            self.queue.start(now);
            self.start_fetching(now);
            self.start_writing(now);
            if self.has_ended() {
                return Ok(Vec::new());
            }
            let due = self.due(now);
            if !room.is_none() && self.held.is_none() && now + self.hold < self.lease_end {
                let entries = self.queue.take(room);
                if !entries.is_empty() {
                    return Ok(entries);
                }
            }
            tokio::select! {
                fetched = finished(&mut self.fetching) => self.take_in(fetched?),
                written = finished(&mut self.writing) => self.written(written?)?,
                finished = self.queue.finished() => finished?,
                Ok(()) = self.committed.changed() => (self.poll_at, self.is_stale) = (now, true),
                Ok(()) = self.found.changed() => self.poll_at = now,
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    }

    /// The message is done with.
    pub fn settle(&mut self, ticket: Ticket) {
        self.queue.settle(ticket);
    }

    /// Hands the message out again after `delay`; those of its key wait behind it. `counted`: as another attempt.
    pub fn retry(&mut self, entry: Entry, delay: Duration, counted: bool) {
        self.queue.retry(entry, delay, counted);
    }

    /// Takes messages back that were not sent after all. They go again in order, before what comes later of their keys,
    /// and it was no attempt.
    pub fn give_back(&mut self, entries: Vec<Entry>) {
        self.queue.give_back(entries);
    }

    /// Parks a message, for readers with [`parking`](ReaderOptions::parking). `attempts` is how
    /// often it was tried, `error` a code that says why it failed. Nothing later of its key is handed out
    /// before that is committed.
    ///
    /// After a crash before the commit the message is handed out again.
    ///
    /// # Panics
    /// The reader was opened without parking.
    pub fn park(&mut self, entry: Entry, parked: Parked, attempts: u32, error: &str) {
        self.queue.park(entry, parked, attempts, error);
    }

    /// Messages that are read, handed out or settled, from the lowest unfinished one on.
    pub fn open_messages(&self) -> usize {
        self.queue.open()
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
        self.queue.finish().await?;
        if self.writing.is_some() {
            let written = finished(&mut self.writing).await?;
            self.written(written)?;
        }
        let to = *self.queue.settled();
        if to != self.recorded {
            let Advanced::Ours { .. } = self.write(to).await? else { return Err(lease_lost()) };
        }
        self.store.release_cursor(&self.destination, self.ownership).await
    }

    /// When there is something to do next, unless something under way ends before.
    fn due(&mut self, now: Instant) -> Instant {
        let write_at = match &self.writing {
            None => self.wrote_at + self.write_interval(),
            Some(write) => write.sent_at + self.options.lease,
        };
        let poll_at = self.wants_more().then_some(self.poll_at);
        let answer_at = self.queue.asked_at().map(|at| at + self.options.lease);
        let queue_at = self.queue.due(now);
        [queue_at, poll_at, answer_at].into_iter().flatten().fold(write_at, Instant::min)
    }

    fn wants_more(&self) -> bool {
        let (messages, bytes) = self.queue.buffered();
        self.fetching.is_none()
            && !self.ended
            && self.queue.ready() < self.options.page
            && messages < BUFFERED_MAX
            && bytes < BUFFERED_BYTES_MAX
            && self.queue.open() < READ_AHEAD_MAX
            && self.queue.has_room()
    }

    fn start_fetching(&mut self, now: Instant) {
        if self.wants_more() && now >= self.poll_at {
            self.store.thin();
            let age =
                if std::mem::take(&mut self.is_stale) { Duration::ZERO } else { self.poll_interval(now) };
            let parked_of =
                (self.options.parking && self.reading.repeated > 0).then(|| self.destination.clone());
            let replay = self.options.replay.clone();
            let page = fetch(self.store.clone(), self.reading.clone(), age, parked_of, replay);
            let task = tokio::spawn(page);
            self.fetching = Some(AbortOnDropHandle::new(task));
        }
    }

    fn poll_interval(&self, now: Instant) -> Duration {
        let flows = self.flowed_at.is_some_and(|at| now - at < Duration::from_secs(1));
        if flows { POLL_BUSY } else { POLL_IDLE }
    }

    fn take_in(&mut self, fetched: Fetched) {
        let now = Instant::now();
        self.reading.inherited = None;
        self.ended |= fetched.ended;
        let Some(window) = fetched.window else {
            self.poll_at = now + self.poll_interval(now);
            return;
        };
        let bytes: usize = fetched.rows.iter().map(|(_, message)| message.bytes()).sum();
        if !fetched.rows.is_empty() {
            self.flowed_at = Some(now);
            let average = (bytes / fetched.rows.len()).max(1);
            let grown = self.reading.limit.saturating_mul(4);
            self.reading.limit = (PAGE_BYTES / average).clamp(1, self.options.page).min(grown);
        }
        for (position, message) in fetched.rows {
            self.reading.after = position;
            let after = Cursor { p: window.p, w: window.w, position };
            if self.queue.is_done(position) || fetched.parked.contains(&position) {
                self.queue.pass_by(after);
            } else {
                self.queue.push(message, after, self.reading.repeated > 0);
            }
        }
        self.reading.window = Some(window.clone());
        if fetched.exhausted {
            self.queue.end_window(Cursor { p: window.w, w: window.w, position: 0 });
            self.reading = Reading {
                window: None,
                p: window.w,
                after: 0,
                repeated: self.reading.repeated.saturating_sub(1),
                snapshot: Some(window.to),
                ..self.reading.clone()
            };
        }
        self.queue.is_reread(self.reading.repeated > 0);
        self.poll_at = if fetched.exhausted { now + POLL_BUSY } else { now };
    }

    /// A cursor that moved is written soon, one that did not in time for the lease.
    fn write_interval(&self) -> Duration {
        if *self.queue.settled() == self.recorded { self.options.lease / 4 } else { CURSOR_INTERVAL }
    }

    fn start_writing(&mut self, now: Instant) {
        if self.writing.is_none() && now >= self.wrote_at + self.write_interval() {
            let to = *self.queue.settled();
            let task = AbortOnDropHandle::new(tokio::spawn(self.write(to)));
            self.wrote_at = now;
            self.writing = Some(Write { to, sent_at: now, task });
        }
    }

    fn write(&self, to: Cursor) -> impl Future<Output = Result<Advanced, Error>> + Send + 'static {
        let (store, destination) = (self.store.clone(), self.destination.clone());
        let (lease, ownership, from) = (self.options.lease, self.ownership, self.recorded);
        let replay = self.options.replay.clone();
        let ahead = self.reading.window.as_ref().map_or(self.reading.p, |window| window.w);
        let ahead = (self.reading.p, ahead);
        async move {
            let replayed = replay.as_ref().map(|replay| &*replay.destination);
            store.advance_cursor(&destination, lease, ownership, (from, to), ahead, replayed).await
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

pub(crate) fn lease_lost() -> Error {
    Error::new(ErrorKind::LeaseLost, "another process owns the cursor now")
}

impl<DB: Dialect> fmt::Debug for Reader<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("destination", &self.destination)
            .field("epoch", &self.ownership.epoch)
            .field("settled", self.queue.settled())
            .field("open", &self.queue.open())
            .finish_non_exhaustive()
    }
}
