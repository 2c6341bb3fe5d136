//! One batch on its way, request by request.
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

/// An event and who waits for its answer. Nobody, if the acknowledgement was dropped.
pub(crate) struct Parcel {
    pub(crate) entry: PutEventsRequestEntry,
    pub(crate) answer: oneshot::Sender<Result<Receipt, PublishError>>,
}

/// What the requests of one batch share.
pub(crate) struct Batch {
    pub(crate) client: Client,
    pub(crate) deadline: Instant,
    /// One for each request that may be under way.
    pub(crate) permits: Arc<Semaphore>,
    /// Why no more requests are sent.
    pub(crate) halt: OnceLock<Verdict>,
}

/// The requests before it took all the time: the service is there, and slower than it is given work.
const BACKLOG: Verdict = Verdict::new(K::Throttled, "eventbridge.backlog");

type Answer = Result<Receipt, PublishError>;

/// A request that failed as a whole.
struct Failed {
    verdict: Verdict,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Failed {
    fn error(&self) -> PublishError {
        match &self.source {
            Some(source) => self.verdict.error().with_source(source.clone()),
            None => self.verdict.error(),
        }
    }
}

impl Batch {
    /// Sends one request when it is its turn, and answers for each event in it.
    pub(crate) async fn deliver(self: Arc<Self>, parcels: Vec<Parcel>) {
        let permit = timeout_at(self.deadline, self.permits.acquire()).await;
        let (entries, waiting): (Vec<_>, Vec<_>) = parcels.into_iter().map(|p| (p.entry, p.answer)).unzip();
        let answers = match permit {
            // Not with the permit of one that has just run out of the same time.
            Ok(_permit) if Instant::now() < self.deadline => self.put(entries).await,
            _ => {
                let verdict = self.halt.get().copied().unwrap_or(BACKLOG);
                entries.iter().map(|_| Err(verdict.error())).collect()
            }
        };
        for (waiting, answer) in waiting.into_iter().zip(answers) {
            let _ = waiting.send(answer);
        }
    }

    /// One by one what is refused together, so that one event is not refused for another's sake.
    async fn put(&self, entries: Vec<PutEventsRequestEntry>) -> Vec<Answer> {
        let count = entries.len();
        match self.request(entries.clone()).await {
            Ok(answers) => answers,
            Err(failed) if failed.verdict.kind == K::RefusedForGood && count > 1 => {
                let mut answers = Vec::with_capacity(count);
                for entry in entries {
                    match self.request(vec![entry]).await {
                        Ok(answer) => answers.extend(answer),
                        Err(failed) => answers.push(Err(failed.error())),
                    }
                }
                answers
            }
            Err(failed) => (0..count).map(|_| Err(failed.error())).collect(),
        }
    }

    async fn request(&self, entries: Vec<PutEventsRequestEntry>) -> Result<Vec<Answer>, Failed> {
        if let Some(halt) = self.halt.get() {
            return Err(Failed { verdict: *halt, source: None });
        }
        let count = entries.len();
        let sent = self.client.put_events().set_entries(Some(entries)).send();
        let answered = match timeout_at(self.deadline, sent).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error)) => {
                let verdict = classify::of_request(&error, SystemTime::now());
                self.halt_on(verdict);
                return Err(Failed { verdict, source: Some(Arc::new(error)) });
            }
            // Nothing is known of the others: a slow bus answers them later.
            Err(_) => return Err(Failed { verdict: TIMED_OUT, source: None }),
        };
        let results = answered.entries();
        let answers = classify::answers(count, results).into_iter().enumerate().map(|(at, answer)| {
            answer.map_err(|verdict| {
                if verdict.kind == K::Throttled {
                    self.halt_on(verdict);
                }
                let words = results.get(at).and_then(|r| {
                    Some(format!("{}: {}", r.error_code()?, r.error_message().unwrap_or_default()))
                });
                match words {
                    Some(words) => verdict.error().with_source(words),
                    None => verdict.error(),
                }
            })
        });
        Ok(answers.collect())
    }

    /// What says that the destination is down spares it the requests that still wait.
    fn halt_on(&self, verdict: Verdict) {
        let kind = match verdict.kind {
            K::Unavailable | K::InDoubt => K::Unavailable,
            kind @ (K::Throttled | K::Misconfigured) => kind,
            _ => return,
        };
        let _ = self.halt.set(Verdict { retry_after: verdict.retry_after, ..not_sent(kind) });
    }
}

const fn not_sent(kind: K) -> Verdict {
    Verdict::new(kind, "eventbridge.not_sent")
}
