//! Sending a batch, request by request.
use super::classify::{self, TIMED_OUT, Verdict};
use aws_sdk_eventbridge::{Client, types::PutEventsRequestEntry};
use std::{
    error::Error,
    sync::{Arc, OnceLock},
    time::SystemTime,
};
use tokio::{
    sync::{Semaphore, oneshot},
    time::{Instant, timeout_at},
};
use twinbox_core::{PublishError, PublishErrorKind as K, destination::Receipt};

type EventResult = Result<Receipt, PublishError>;

/// An event and the channel for its result. The channel is closed if the acknowledgement was dropped.
pub(crate) struct PendingEvent {
    pub(crate) entry: PutEventsRequestEntry,
    pub(crate) result: oneshot::Sender<EventResult>,
}

/// The state that the requests of one batch share.
pub(crate) struct Batch {
    pub(crate) client: Client,
    pub(crate) deadline: Instant,
    /// One permit for each request in flight.
    pub(crate) permits: Arc<Semaphore>,
    /// Set once no more requests may be sent.
    pub(crate) stopped: OnceLock<Verdict>,
}

/// Earlier requests took all the time: the service works, but more slowly than the relay publishes.
const BACKLOG: Verdict = Verdict::new(K::Throttled, "eventbridge.backlog");

/// A request that failed as a whole.
struct RequestError {
    verdict: Verdict,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl RequestError {
    fn error(&self) -> PublishError {
        match &self.source {
            Some(source) => self.verdict.error().with_source(source.clone()),
            None => self.verdict.error(),
        }
    }
}

impl Batch {
    /// Waits for a permit, sends one request, and reports the result of each event in it.
    pub(crate) async fn send(self: Arc<Self>, events: Vec<PendingEvent>) {
        let permit = timeout_at(self.deadline, self.permits.acquire()).await;
        let (entries, channels): (Vec<_>, Vec<_>) = events.into_iter().map(|e| (e.entry, e.result)).unzip();
        let results = match permit {
            // A request that has just timed out frees its permit at the deadline, which is too late to send.
            Ok(_permit) if Instant::now() < self.deadline => self.put(entries).await,
            _ => {
                let verdict = self.stopped.get().copied().unwrap_or(BACKLOG);
                entries.iter().map(|_| Err(verdict.error())).collect()
            }
        };
        for (channel, result) in channels.into_iter().zip(results) {
            let _ = channel.send(result);
        }
    }

    /// Sends events together, or one by one if they are refused together, so that each fails only for its own
    /// fault.
    async fn put(&self, entries: Vec<PutEventsRequestEntry>) -> Vec<EventResult> {
        let count = entries.len();
        match self.request(entries.clone()).await {
            Ok(results) => results,
            Err(failed) if failed.verdict.kind == K::RefusedForGood && count > 1 => {
                let mut results = Vec::with_capacity(count);
                for entry in entries {
                    match self.request(vec![entry]).await {
                        Ok(result) => results.extend(result),
                        Err(failed) => results.push(Err(failed.error())),
                    }
                }
                results
            }
            Err(failed) => (0..count).map(|_| Err(failed.error())).collect(),
        }
    }

    async fn request(&self, entries: Vec<PutEventsRequestEntry>) -> Result<Vec<EventResult>, RequestError> {
        if let Some(verdict) = self.stopped.get() {
            return Err(RequestError { verdict: *verdict, source: None });
        }
        let count = entries.len();
        let sent = self.client.put_events().set_entries(Some(entries)).send();
        let response = match timeout_at(self.deadline, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let verdict = classify::of_request(&error, SystemTime::now());
                self.stop_after(verdict);
                return Err(RequestError { verdict, source: Some(Arc::new(error)) });
            }
            // Other requests continue: a slow bus may still respond to them.
            Err(_) => return Err(RequestError { verdict: TIMED_OUT, source: None }),
        };
        let entries = response.entries();
        let results = classify::results_of(count, entries).into_iter().enumerate().map(|(at, result)| {
            result.map_err(|verdict| {
                if verdict.kind == K::Throttled {
                    self.stop_after(verdict);
                }
                let words = entries.get(at).and_then(|entry| {
                    Some(format!("{}: {}", entry.error_code()?, entry.error_message().unwrap_or_default()))
                });
                match words {
                    Some(words) => verdict.error().with_source(words),
                    None => verdict.error(),
                }
            })
        });
        Ok(results.collect())
    }

    /// Stops the waiting requests if the failure concerns the destination.
    fn stop_after(&self, verdict: Verdict) {
        let kind = match verdict.kind {
            K::Unavailable | K::InDoubt => K::Unavailable,
            kind @ (K::Throttled | K::Misconfigured) => kind,
            _ => return,
        };
        let _ = self.stopped.set(Verdict { retry_after: verdict.retry_after, ..not_sent(kind) });
    }
}

const fn not_sent(kind: K) -> Verdict {
    Verdict::new(kind, "eventbridge.not_sent")
}
