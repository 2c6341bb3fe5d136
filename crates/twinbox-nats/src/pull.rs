//! Pulling messages from a consumer on the server.
use crate::{
    connect::Connection,
    consumer,
    deliveries::{Arrival, Deliveries, Delivery, Status, Subscription},
    error::{Error, source_unavailable},
    replay_mark::ReplayKeys,
    stored::{self, StoredMessage},
    stream,
};
use async_nats::jetstream::consumer::Info;
use std::{mem, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{SourceError, SourceErrorKind, task_name::TaskName};

/// The interval at which the server confirms that it still holds a pull request.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long the server holds a pull request.
const PULL_EXPIRES: Duration = Duration::from_secs(10);
/// Silences of two heartbeats after which the consumer is checked.
const SILENCES_MAX: u32 = 2;
/// Checks in a row that find messages which the consumer does not deliver, after which the source fails.
const STALLS_MAX: u32 = 2;
/// One of so many checks of an idle consumer also reads the end of the stream: once a minute.
const CHECKS_PER_END: u32 = 6;
/// How often the keys that sign replays are read again, at most.
const KEYS_INTERVAL: Duration = Duration::from_secs(1);
/// The most messages of one pull request.
const PULL_MAX: usize = 1024;
/// The most bytes of one pull request.
const PULL_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The status text of a request whose bytes have no room for the next message.
const BYTES_ARE_FULL: &str = "Message Size Exceeds MaxBytes";
/// The status text behind the last message of a request with a bound in bytes. Often the next request is on
/// its way already.
const BATCH_IS_COMPLETE: &str = "Batch Completed";

// Statuses of a pull request, by the server's numbers.
const IDLE_HEARTBEAT: u16 = 100;
const NOT_FOUND: u16 = 404;
const REQUEST_EXPIRED: u16 = 408;
const NO_RESPONDERS: u16 = 503;

/// The state of the consumer, and the last message of the stream if that was read.
struct ConsumerCheck {
    info: Result<Info, Error>,
    stream_end: Option<StoredMessage>,
}

/// Pulls messages, with one request at a time for as many as the caller takes. So no message waits in this
/// process while its ack wait runs.
pub(crate) struct PullConsumer {
    pub(crate) connection: Arc<Connection>,
    /// The name on the server.
    name: String,
    /// The name in logs and errors.
    pub(crate) label: String,
    deliveries: Subscription,
    /// Holds the connection that the subscription needs.
    _connection: Arc<Deliveries>,
    /// Messages that the server may still deliver for the last request. 0: the request has ended.
    requested: usize,
    /// When the server last sent something, or a request was sent. A field, because a caller may drop and
    /// repeat its wait before a silence is detected.
    last_activity: Instant,
    /// Silences since the server last sent something.
    silences: u32,
    /// Checks in a row that found messages which the consumer does not deliver.
    stalls: u32,
    /// The check in progress. A field, because a caller may drop and repeat its wait before the check ends.
    check: Option<AbortOnDropHandle<ConsumerCheck>>,
    checks: u32,
    /// The end of the stream up to which everything was delivered, where each delivery comes once.
    pub(crate) caught_up_to: Option<StoredMessage>,
    /// The number of the last delivery that arrived, where each delivery comes once.
    pub(crate) last_delivery: Option<u64>,
    /// Messages that wait on the server, as last reported.
    pub(crate) lag: Option<u64>,
    /// Deliveries that were not returned yet. A field, because a caller may drop and repeat its wait.
    taken: Vec<Delivery>,
    /// The keys that sign replays, and when they were read.
    pub(crate) keys: ReplayKeys,
    keys_read_at: Option<Instant>,
}

impl PullConsumer {
    pub(crate) async fn open(
        connection: Arc<Connection>,
        deliveries: Arc<Deliveries>,
        name: String,
        label: String,
        keys: ReplayKeys,
    ) -> Result<Self, SourceError> {
        let subscription = deliveries.subscribe(&connection.client.new_inbox()).await;
        Ok(Self {
            connection,
            name,
            label,
            deliveries: subscription.ok_or_else(connection_ended)?,
            _connection: deliveries,
            requested: 0,
            last_activity: Instant::now(),
            silences: 0,
            stalls: 0,
            check: None,
            checks: 0,
            caught_up_to: None,
            last_delivery: None,
            lag: None,
            taken: Vec::new(),
            keys,
            keys_read_at: None,
        })
    }

    /// Waits for at least one message and returns at most `max`. Cancel safe.
    pub(crate) async fn next(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        self.fill(max).await?;
        Ok(self.return_taken(max))
    }

    /// Waits until at least one message is [taken](Self::return_taken). Cancel safe.
    pub(crate) async fn fill(&mut self, max: usize) -> Result<(), SourceError> {
        if self.taken.is_empty() {
            self.taken = self.take(max.clamp(1, PULL_MAX)).await?;
        }
        self.learn_keys().await;
        Ok(())
    }

    /// Removes messages from those that are taken, and returns them.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        self.taken.extract_if(.., |delivery| is_removed(delivery)).collect()
    }

    /// Returns at most `max` of the messages that are taken.
    pub(crate) fn return_taken(&mut self, max: usize) -> Vec<Delivery> {
        let rest = self.taken.split_off(max.clamp(1, PULL_MAX).min(self.taken.len()));
        mem::replace(&mut self.taken, rest)
    }

    /// Returns the deliveries that arrived and were not returned.
    pub(crate) fn take_unreturned(&mut self) -> Vec<Delivery> {
        self.deliveries.end();
        let mut all = mem::take(&mut self.taken);
        while let Some(arrival) = self.deliveries.next_waiting() {
            if let Arrival::Delivery(delivery) = arrival {
                all.push(delivery);
            }
        }
        all
    }

    /// Reads the keys of the stream again if a delivery is signed with another one: a relay may have begun
    /// since.
    async fn learn_keys(&mut self) {
        let is_due = self.keys_read_at.is_none_or(|at| at.elapsed() >= KEYS_INTERVAL);
        if !is_due || !self.taken.iter().any(|delivery| self.keys.lack_key_of(&delivery.headers)) {
            return;
        }
        let stream = &self.connection.options.stream;
        match stream::info(&self.connection, stream).await {
            Ok(info) => self.keys = ReplayKeys::of(&info.config.metadata),
            Err(error) => tracing::warn!(stream, %error, "the keys that sign replays cannot be read"),
        }
        self.keys_read_at = Some(Instant::now());
    }

    async fn take(&mut self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        loop {
            if let Some(check) = &mut self.check {
                let checked = check.await;
                self.check = None;
                let failed = |e| source_unavailable("the check of the consumer failed").with_source(e);
                self.evaluate(checked.map_err(failed)?)?;
            }
            if self.requested == 0 {
                self.request(max).await?;
            }
            let Ok(next) = timeout_at(self.last_activity + 2 * HEARTBEAT, self.deliveries.next()).await
            else {
                self.handle_silence();
                continue;
            };
            let arrival = next.ok_or_else(connection_ended)?;
            let is_status = matches!(arrival, Arrival::Status(_));
            if let Some(first) = self.accept(arrival)? {
                self.stalls = 0;
                return Ok(self.with_buffered(first, max));
            }
            if is_status && self.requested == 0 {
                self.start_check();
            }
        }
    }

    async fn request(&mut self, max: usize) -> Result<(), SourceError> {
        let options = &self.connection.options;
        let subject = options.api_subject(&format!("CONSUMER.MSG.NEXT.{}.{}", options.stream, self.name));
        // Room for one message at least: with less the server would deliver nothing.
        let bytes = PULL_BYTES_MAX.max(2 * self.connection.client.server_info().max_payload);
        let request = format!(
            "{{\"batch\":{max},\"max_bytes\":{bytes},\"expires\":{},\"idle_heartbeat\":{}}}",
            PULL_EXPIRES.as_nanos(),
            HEARTBEAT.as_nanos()
        );
        // Before the wait: a request that is dropped half-way then looks like one that the server lost.
        (self.requested, self.last_activity) = (max, Instant::now());
        if self.deliveries.request(&subject, request).await { Ok(()) } else { Err(connection_ended()) }
    }

    /// Handles a time without messages and heartbeats. The first silence may be the network. After the second
    /// the consumer is checked; if it exists, the request is repeated.
    fn handle_silence(&mut self) {
        self.silences += 1;
        tracing::warn!(consumer = self.label, silences = self.silences, "NATS sends no heartbeat");
        if self.silences >= SILENCES_MAX {
            self.silences = 0;
            self.start_check();
        }
        self.requested = 0;
    }

    fn start_check(&mut self) {
        let (connection, name) = (self.connection.clone(), self.name.clone());
        let reads_end = self.last_delivery.is_some() && self.checks.is_multiple_of(CHECKS_PER_END);
        self.checks = self.checks.wrapping_add(1);
        let check = tokio::spawn(TaskName::NatsConsumerCheck.of(async move {
            // Before the state of the consumer, which then covers everything up to this end.
            let stream_end = if reads_end { stored::last(&connection).await.ok().flatten() } else { None };
            ConsumerCheck { info: consumer::info(&connection, &name).await, stream_end }
        }));
        self.check = Some(AbortOnDropHandle::new(check));
    }

    /// Fails if the consumer should have delivered something. An idle consumer is right if the stream holds
    /// nothing for it, or if other processes hold as many deliveries as the consumer may have.
    fn evaluate(&mut self, ConsumerCheck { info, stream_end }: ConsumerCheck) -> Result<(), SourceError> {
        let info = info.map_err(|e| e.into_source_error(SourceErrorKind::Unavailable))?;
        if info.num_pending == 0 && self.last_delivery == Some(info.delivered.consumer_sequence) {
            self.caught_up_to = stream_end.or(self.caught_up_to.take());
        }
        self.lag = Some(info.num_pending);
        let most = info.config.max_ack_pending;
        let is_full = most > 0 && i64::try_from(info.num_ack_pending).is_ok_and(|n| n >= most);
        let has_missed = self.last_delivery.is_some_and(|last| info.delivered.consumer_sequence > last);
        self.stalls = if has_missed || info.num_pending > 0 && !is_full { self.stalls + 1 } else { 0 };
        if self.stalls >= STALLS_MAX {
            return Err(source_unavailable(format!(
                "the consumer `{}` has {} messages and delivers none, or a delivery was lost on its way: \
                 check whether the consumer is paused on the server",
                self.label, info.num_pending
            )));
        }
        Ok(())
    }

    /// Returns a delivery, or None if the arrival is about the pull request itself.
    fn accept(&mut self, arrival: Arrival) -> Result<Option<Delivery>, SourceError> {
        (self.last_activity, self.silences) = (Instant::now(), 0);
        match arrival {
            Arrival::Delivery(delivery) => {
                self.requested = self.requested.saturating_sub(1);
                Ok(Some(delivery))
            }
            Arrival::Reconnected => {
                self.requested = 0;
                Ok(None)
            }
            Arrival::Status(status) => self.accept_status(status).map(|()| None),
        }
    }

    fn accept_status(&mut self, status: Status) -> Result<(), SourceError> {
        let problem = match (status.code, &*status.text) {
            (IDLE_HEARTBEAT, _) | (_, BATCH_IS_COMPLETE) => return Ok(()),
            (NOT_FOUND | REQUEST_EXPIRED, _) | (_, BYTES_ARE_FULL) => {
                self.requested = 0;
                return Ok(());
            }
            (_, "Consumer Deleted") => "was deleted".to_owned(),
            (NO_RESPONDERS, _) => "does not exist".to_owned(),
            (code, _) => format!("cannot deliver (status {code})"),
        };
        tracing::warn!(consumer = self.label, %problem, "the consumer delivers nothing more");
        Err(source_unavailable(format!("the consumer `{}` {problem}", self.label)))
    }

    /// Adds the messages that have already arrived, without a wait. A fault among them is ignored here: it
    /// comes up again at the next request.
    fn with_buffered(&mut self, first: Delivery, max: usize) -> Vec<Delivery> {
        let mut taken = vec![first];
        while taken.len() < max {
            let Some(arrival) = self.deliveries.next_waiting() else { break };
            match self.accept(arrival) {
                Ok(more) => taken.extend(more),
                Err(_) => {
                    self.requested = 0;
                    break;
                }
            }
        }
        taken
    }
}

fn connection_ended() -> SourceError {
    source_unavailable("the connection to NATS has ended")
}
