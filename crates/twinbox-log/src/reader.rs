//! The engine that reads the log.
use crate::{
    cursor,
    look::{self, Look},
    options::{BUFFERED_BYTES_MAX, BUFFERED_MAX, PAGE_BYTES, POLL_BUSY, READ_AHEAD_MAX, ReaderOptions},
    owned_cursor::Ownership,
    page::fetch,
    parking::{CursorOwner, Owner, ParkedState, Queue},
    reading::{Page, Reading},
    shares::{Share, Shares},
    task::{finished, in_time},
    write_task::WriteTask,
};
use futures::FutureExt as _;
use std::{
    fmt,
    time::{Duration, Instant},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{
    Message,
    destination::SendOrder,
    lanes::{Budget, Entry, Ticket},
    task_name::TaskName,
};
use twinbox_sql::{
    Dialect, Error, ErrorKind, Store,
    engine::{Cursor, Engine},
};
use uuid::Uuid;

/// Reads the log for one destination or consumer: with a lease, in order by key, with parking. It owns a
/// cursor by lease, reads pages ahead, hands out the messages of a key one at a time and in order, and
/// records how far everything is settled.
///
/// After any error it cannot go on: drop it and open another, which reads the cursor again. Messages that
/// were handed out and not recorded as settled are then handed out again. No message is skipped.
pub struct Reader<DB: Dialect> {
    pub(crate) engine: Engine<DB>,
    pub(crate) destination: String,
    pub(crate) options: ReaderOptions,
    pub(crate) ownership: Ownership,
    pub(crate) queue: Queue<DB, Box<Message>, Cursor>,
    pub(crate) reading: Reading,
    fetching: Option<AbortOnDropHandle<Result<Page, Error>>>,
    poll_at: Instant,
    flowed_at: Option<Instant>,
    /// This process has committed since the last look at the log.
    is_stale: bool,
    found: watch::Receiver<i64>,
    committed: watch::Receiver<()>,
    searched: watch::Receiver<i64>,
    /// The newest tick that the row names.
    pub(crate) named: i64,
    pub(crate) recorded: Cursor,
    pub(crate) writing: Option<WriteTask>,
    pub(crate) wrote_at: Instant,
    /// The messages that were settled when the cursor was written last.
    pub(crate) settles_written: u64,
    pub(crate) lease_end: Instant,
    lease_margin: Duration,
    /// Why an operator paused the destination.
    pub(crate) pause_reason: Option<String>,
    /// The share of this process, in which the destination counts.
    pub(crate) share: Option<Share>,
    /// All messages of a replay are read.
    ended: bool,
}

/// How long taking a cursor may last.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// The messages of the first page: few, because their size is unknown.
const FIRST_PAGE: usize = 200;

impl<DB: Dialect> Reader<DB> {
    /// Opens a reader: takes the lease of the cursor `destination` for `owner`. The owner must be another one
    /// in every process, and the same for all readers that a process opens one after another. None: another
    /// process has the lease.
    ///
    /// # Errors
    /// The store must not be read (see [`Store::check`]), or the cursor has another number of partitions. The
    /// database did not answer within 5 s: the lease may be taken then, and the same `owner` takes it again.
    pub async fn open(
        store: &Store<DB>,
        destination: &str,
        owner: Uuid,
        options: ReaderOptions,
    ) -> Result<Option<Self>, Error> {
        let engine = store.engine();
        let taking = async {
            store.check().await?;
            let sent_at = Instant::now();
            Ok((sent_at, cursor::take(engine, destination, owner, &options).await?))
        };
        let (sent_at, taken) = in_time(OPEN_MAX, taking).await?;
        let Some(owned) = taken else { return Ok(None) };
        let cursor = owned.start;
        let ownership = owned.ownership;
        tracing::debug!(destination, epoch = ownership.epoch, ?cursor, "took the cursor");
        let owner = CursorOwner { destination: destination.to_owned(), ownership };
        let mut queue = Queue::new(store, Owner::cursor(owner), cursor, options.parking);
        queue.dead_letter_events(options.dead_letter_events);
        // The row names one window, and the reader before this one may have been in the next one.
        let repeated = if ownership.epoch > 1 { 2 } else { 0 };
        queue.is_reread(repeated > 0);
        let searched = watch::Sender::new(cursor.w);
        let mut reader = Self {
            engine: engine.clone(),
            destination: destination.to_owned(),
            ownership,
            queue,
            reading: Reading {
                window: None,
                p: cursor.p,
                server_run: ownership.server_run,
                snapshot: None,
                inherited: (cursor.w > cursor.p).then_some(cursor.w),
                searched: searched.clone(),
                after: cursor.position,
                limit: FIRST_PAGE.min(options.page),
                repeated,
            },
            fetching: None,
            poll_at: sent_at,
            flowed_at: None,
            is_stale: false,
            found: engine.state::<Look>().found(),
            committed: engine.committed(),
            searched: searched.subscribe(),
            named: cursor.w,
            recorded: owned.recorded,
            writing: None,
            wrote_at: sent_at,
            settles_written: 0,
            lease_end: sent_at + options.lease,
            lease_margin: Duration::ZERO,
            pause_reason: None,
            share: None,
            ended: false,
            options,
        };
        reader.note_pause(owned.pause_reason);
        Ok(Some(reader))
    }

    /// Sets how long before the end of the lease no message is handed out any more: the time that a publish
    /// may take, so that none is in flight when another process takes over.
    pub fn stop_before_lease_end(&mut self, margin: Duration) {
        self.lease_margin = margin;
    }

    /// Counts the destination in the share of this process. The token is cancelled when another process, with
    /// a smaller share, is to have the destination: [close](Self::close) the reader then, and do not open it
    /// again at once.
    pub fn join(&mut self, shares: &Shares) -> CancellationToken {
        self.share.insert(shares.join(self.ownership.owner)).leave()
    }

    /// Returns why an operator paused the destination, or `None` if it is not paused. No message is handed
    /// out meanwhile.
    pub fn pause_reason(&self) -> Option<&str> {
        self.pause_reason.as_deref()
    }

    /// Returns whether this reader executes a [replay](ReaderOptions::replay).
    pub fn is_replay(&self) -> bool {
        self.options.replay.is_some()
    }

    /// Returns whether every message of the [replay](ReaderOptions::replay) is settled. Never true for other
    /// readers.
    pub fn has_ended(&self) -> bool {
        self.ended && self.queue.is_idle()
    }

    /// Tells the reader how the destination orders messages, before the first message is handed out. An
    /// [ordered](SendOrder::Ordered) one gets several messages of a key, one after another.
    pub fn order(&mut self, order: SendOrder) {
        self.queue.order(order);
    }

    /// Waits for messages that may be sent, and hands out as many as there is room for. Without room it hands
    /// out none, and renews lease and cursor. It returns no message only when a replay [has
    /// ended](Self::has_ended). Cancel safe.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: stop all messages in flight. After another error of the database, or a page
    /// that could not be read within 30 s, open another reader.
    pub async fn next(&mut self, room: impl Into<Budget>) -> Result<Vec<Entry>, Error> {
        let room = room.into();
        loop {
            let now = Instant::now();
            // Before messages are handed out, so that the next page is read while this one is sent.
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
            if !room.is_none() && self.pause_reason.is_none() && now + self.lease_margin < self.lease_end {
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
                Ok(()) = self.searched.changed() => {}
                () = tokio::time::sleep_until(due.into()) => {}
            }
        }
    }

    /// Settles a message: it is not handed out again, and the cursor may pass it.
    pub fn settle(&mut self, ticket: Ticket) {
        self.queue.settle(ticket);
    }

    /// Returns whether an earlier message of the key has no result yet. Then a failure of this one says
    /// nothing: [`retry`](Self::retry) hands it out after that one.
    pub fn is_behind(&self, ticket: Ticket) -> bool {
        self.queue.is_behind(ticket)
    }

    /// Hands a message out again after `delay`. Later messages of its key wait behind it. `counted`: as
    /// another attempt.
    pub fn retry(&mut self, entry: Entry, delay: Duration, counted: bool) {
        self.queue.retry(entry, delay, counted);
    }

    /// Takes messages back that were not sent. They are handed out again in order, before later messages of
    /// their keys. No attempt is counted.
    pub fn give_back(&mut self, entries: Vec<Entry>) {
        self.queue.give_back(entries);
    }

    /// Parks a message, if the reader has the option [`parking`](ReaderOptions::parking). `attempts` is the
    /// number of its attempts, `error` a code of its last failure. No later message of its key is handed out
    /// before that is committed.
    ///
    /// After a crash before the commit the message is handed out again.
    ///
    /// # Panics
    /// The reader was opened without parking.
    pub fn park(&mut self, entry: Entry, state: ParkedState, attempts: u32, error: &str) {
        self.queue.park(entry, state, attempts, error);
    }

    /// Returns the number of messages from the lowest unsettled one to the newest that was read.
    pub fn open_messages(&self) -> usize {
        self.queue.open()
    }

    /// Writes the cursor and gives up the lease.
    ///
    /// # Errors
    /// The database is away, or the lease was lost: messages that were settled last are handed out again.
    pub async fn close(self) -> Result<(), Error> {
        let lease = self.options.lease;
        tokio::time::timeout(lease, self.record_and_release()).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::LeaseLost, "the database did not answer within the lease"))
        })
    }

    /// The time of the next step, unless a task ends before.
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
            look::thin_ticks(&self.engine);
            let age =
                if std::mem::take(&mut self.is_stale) { Duration::ZERO } else { self.poll_interval(now) };
            let parked_of =
                (self.options.parking && self.reading.repeated > 0).then(|| self.destination.clone());
            let replay = self.options.replay.clone();
            let page = fetch(self.engine.clone(), self.reading.clone(), age, parked_of, replay);
            let task = tokio::spawn(TaskName::Page.of(page));
            self.fetching = Some(AbortOnDropHandle::new(task));
        }
    }

    fn poll_interval(&self, now: Instant) -> Duration {
        let flows = self.flowed_at.is_some_and(|at| now - at < Duration::from_secs(1));
        if flows { POLL_BUSY } else { self.options.idle_poll }
    }

    fn take_in(&mut self, fetched: Page) {
        let now = Instant::now();
        self.reading.inherited = None;
        self.ended |= fetched.has_ended;
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
            if self.queue.is_settled(position) || fetched.parked.contains(&position) {
                self.queue.push_settled(after);
            } else {
                self.queue.push(message, after, self.reading.repeated > 0);
            }
        }
        self.reading.window = Some(window.clone());
        if fetched.is_last {
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
        self.poll_at = if fetched.is_last { now + POLL_BUSY } else { now };
    }
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
