//! Asking a consumer of the server for messages.
use crate::{Error, NatsOptions, connect::Link, consumer, partition};
use async_nats::{Message, StatusCode, Subject, Subscriber, jetstream::consumer::Info};
use futures::{FutureExt as _, StreamExt as _};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use twinbox_core::{SourceError, SourceErrorKind};

/// How often the server says that it still holds the request for messages.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long a request for messages stays with the server.
const PULL_EXPIRES: Duration = Duration::from_secs(10);
/// Silences of two heartbeats after which the consumer is asked for.
const SILENCES_MAX: u32 = 2;
/// Looks at a consumer that delivers nothing although there is something, before it is opened anew.
const STALLS_MAX: u32 = 2;
/// Looks at a consumer that has nothing to deliver from one look at the end of the stream to the next: once a minute.
const LOOKS_OF_END: u32 = 6;
/// The most messages that are asked for at a time.
const PULL_MAX: usize = 1024;

const ENDED: &str = "the connection to NATS has ended";

/// What the server says of the consumer, and of the end of the stream if that was asked for.
type Look = (Result<Info, Error>, Option<End>);

/// The last message of a stream.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) sequence: u64,
    pub(crate) message: String,
}

/// Asks for as many messages as it may return, one request at a time, so that none waits here while its
/// time to be acknowledged runs.
pub(crate) struct Pull {
    pub(crate) link: Arc<Link>,
    /// The name on the server.
    name: String,
    /// What it is called here.
    pub(crate) label: String,
    inbox: Subject,
    pub(crate) deliveries: Subscriber,
    /// What the server may still deliver to the last request.
    asked: usize,
    /// When the server was last heard or asked. Kept, because whoever waits may wait anew before silence shows.
    heard_at: Instant,
    /// Silences since it was last heard.
    silences: u32,
    /// Looks in a row at a consumer that delivers nothing although there is something.
    stalls: u32,
    /// A look at the consumer that is under way. Kept, because whoever waits may wait anew before it ends.
    looking: Option<AbortOnDropHandle<Look>>,
    looks: u32,
    /// An end of the stream up to which all was delivered, where each delivery comes once.
    pub(crate) caught_up: Option<End>,
    /// The number of the last delivery that came, where each comes once.
    pub(crate) last: Option<u64>,
    /// Messages that wait at the server, as far as it has said so.
    pub(crate) lag: Option<u64>,
}

impl Pull {
    pub(crate) async fn open(link: Arc<Link>, name: String, label: String) -> Result<Self, SourceError> {
        let inbox = Subject::from(link.client.new_inbox());
        let deliveries = link.client.subscribe(inbox.clone()).await;
        let deliveries = deliveries.map_err(|e| unavailable(ENDED).with_source(e))?;
        Ok(Self {
            link,
            name,
            label,
            inbox,
            deliveries,
            asked: 0,
            heard_at: Instant::now(),
            silences: 0,
            stalls: 0,
            looking: None,
            looks: 0,
            caught_up: None,
            last: None,
            lag: None,
        })
    }

    /// Waits for at least one message and answers with at most `max`. Cancel safe.
    pub(crate) async fn next(&mut self, max: usize) -> Result<Vec<Message>, SourceError> {
        let max = max.clamp(1, PULL_MAX);
        loop {
            if let Some(looking) = &mut self.looking {
                let looked = looking.await;
                self.looking = None;
                let (info, end) =
                    looked.map_err(|e| unavailable("a look at the consumer ended").with_source(e))?;
                self.weigh(&info, end)?;
            }
            if self.asked == 0 {
                self.ask(max).await?;
            }
            let Ok(next) = timeout_at(self.heard_at + 2 * HEARTBEAT, self.deliveries.next()).await else {
                self.silence();
                continue;
            };
            let Some(message) = next else {
                return Err(unavailable(ENDED));
            };
            if let Some(first) = self.take(message)? {
                self.stalls = 0;
                return Ok(self.with_those_at_hand(first, max));
            }
            if self.asked == 0 {
                self.look();
            }
        }
    }

    fn options(&self) -> &NatsOptions {
        &self.link.options
    }

    async fn ask(&mut self, max: usize) -> Result<(), SourceError> {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.options().stream, self.name);
        let request = format!(
            "{{\"batch\":{max},\"expires\":{},\"idle_heartbeat\":{}}}",
            PULL_EXPIRES.as_nanos(),
            HEARTBEAT.as_nanos()
        );
        // Before the wait: a request that is dropped half-way looks like one that the server lost.
        (self.asked, self.heard_at) = (max, Instant::now());
        let sent = self.link.client.publish_with_reply(subject, self.inbox.clone(), request.into()).await;
        sent.map_err(|e| unavailable(ENDED).with_source(e))
    }

    /// Neither a message nor a heartbeat came. Once may be the network; then the consumer is asked for, and
    /// if it is there the request is made again.
    fn silence(&mut self) {
        self.silences += 1;
        tracing::warn!(consumer = self.label, silences = self.silences, "NATS is silent");
        if self.silences >= SILENCES_MAX {
            self.silences = 0;
            self.look();
        }
        self.asked = 0;
    }

    /// Asks for the consumer.
    fn look(&mut self) {
        let (link, name) = (self.link.clone(), self.name.clone());
        let is_due = self.last.is_some() && self.looks.is_multiple_of(LOOKS_OF_END);
        self.looks = self.looks.wrapping_add(1);
        let looking = tokio::spawn(async move {
            // Before the consumer: it tells of all that the stream has by then.
            let end = if is_due { partition::end(&link).await.ok().flatten() } else { None };
            (consumer::info(&link, &name).await, end)
        });
        self.looking = Some(AbortOnDropHandle::new(looking));
    }

    /// That nothing was delivered is right if there is nothing, and if others hold as many deliveries as the consumer
    /// may have.
    fn weigh(&mut self, found: &Result<Info, Error>, end: Option<End>) -> Result<(), SourceError> {
        let info = found.as_ref().map_err(|e| unavailable(e.to_string()))?;
        if info.num_pending == 0 && self.last == Some(info.delivered.consumer_sequence) {
            self.caught_up = end.or(self.caught_up.take());
        }
        self.lag = Some(info.num_pending);
        let most = info.config.max_ack_pending;
        let is_full = most > 0 && i64::try_from(info.num_ack_pending).is_ok_and(|n| n >= most);
        let has_missed = self.last.is_some_and(|last| info.delivered.consumer_sequence > last);
        self.stalls = if has_missed || info.num_pending > 0 && !is_full { self.stalls + 1 } else { 0 };
        if self.stalls >= STALLS_MAX {
            return Err(unavailable(format!(
                "the consumer `{}` has {} messages and delivers none, or lost one on its way: it may be paused",
                self.label, info.num_pending
            )));
        }
        Ok(())
    }

    /// A delivery, or nothing if the message is about the request itself.
    fn take(&mut self, message: Message) -> Result<Option<Message>, SourceError> {
        (self.heard_at, self.silences) = (Instant::now(), 0);
        match message.status {
            None | Some(StatusCode::OK) => {
                self.asked = self.asked.saturating_sub(1);
                Ok(Some(message))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(None),
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.asked = 0;
                Ok(None)
            }
            Some(status) => {
                let why = match (status, message.description.as_deref()) {
                    (_, Some("Consumer Deleted")) => "was deleted".to_owned(),
                    (StatusCode::NO_RESPONDERS, _) => "is not there".to_owned(),
                    _ => format!("cannot deliver (status {})", status.as_u16()),
                };
                tracing::warn!(consumer = self.label, %why, "the consumer cannot go on");
                Err(unavailable(format!("the consumer `{}` {why}", self.label)))
            }
        }
    }

    /// No wait in here: what was taken is returned. A fault that shows behind it shows again when the next
    /// call asks for more.
    fn with_those_at_hand(&mut self, first: Message, max: usize) -> Vec<Message> {
        let mut taken = vec![first];
        while taken.len() < max {
            let Some(Some(message)) = self.deliveries.next().now_or_never() else { break };
            match self.take(message) {
                Ok(more) => taken.extend(more),
                Err(_) => {
                    self.asked = 0;
                    break;
                }
            }
        }
        taken
    }
}

pub(crate) fn unavailable(what: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, what)
}
