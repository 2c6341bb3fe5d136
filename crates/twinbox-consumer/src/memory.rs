//! For how long it is remembered what was handled.
use crate::{Error, ErrorKind, status::Progress};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::watch;
use twinbox_core::{Horizon, retry};
use twinbox_sql::{Dialect, Store};

/// What is kept at least where nobody says how long.
const AUTOMATIC_MIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// What is kept on top of what the transport says: for its clock, and for a delivery that is slow.
const MARGIN: Duration = Duration::from_secs(24 * 3600);
/// Between two purges, at most and at least.
const INTERVALS: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(1));
/// Until the first, at most.
const FIRST_MAX: Duration = Duration::from_secs(60);
/// Purges in the time that is remembered.
const PURGES: u32 = 8;

/// For how long the inbox remembers what a consumer has handled.
///
/// A message that comes after its claim was deleted is not run again: if it is as old as one whose claim was deleted it
/// becomes a dead letter with the reason `in_doubt`, for a person to decide on. How old it is says its
/// [time](twinbox_core::Draft::time). Where events are published with times that are long past, say
/// [`Forever`](Self::Forever).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InboxRetention {
    /// A day longer than the transport can deliver a message, and at least 7 days. For ever where the transport
    /// keeps messages for ever, or does not say for how long.
    #[default]
    Automatic,
    /// That long. [`Consumer::run`](crate::Consumer::run) refuses at its start if the transport can deliver a message
    /// later; if it says so only when it is subscribed to again, nothing more is deleted.
    For(Duration),
    /// That long, with a warning if the transport can deliver a message later.
    EvenIfShorter(Duration),
    /// Nothing is deleted.
    Forever,
}

/// What one consumer remembers.
pub(crate) struct Memory {
    retention: InboxRetention,
    /// None: nothing is deleted.
    keep: watch::Sender<Option<Duration>>,
    /// It was asked how old a delivery can be, and all was well.
    is_running: AtomicBool,
}

impl Memory {
    pub(crate) fn new(retention: InboxRetention) -> Self {
        Self { retention, keep: watch::Sender::new(None), is_running: AtomicBool::new(false) }
    }

    /// From now on the transport delivers messages that are as old as this. An error only at first: a consumer that runs
    /// goes on, and forgets nothing more.
    pub(crate) fn reach(&self, consumer: &str, horizon: Horizon) -> Result<(), Error> {
        let keep = match kept(self.retention, consumer, horizon) {
            Err(error) if self.is_running.load(Relaxed) => {
                tracing::error!(consumer, "nothing is forgotten from now on: {error}");
                None
            }
            keep => keep?,
        };
        self.is_running.store(true, Relaxed);
        self.keep.send_replace(keep);
        Ok(())
    }

    /// Deletes what is old enough, now and then, for ever.
    pub(crate) async fn forget<DB: Dialect>(&self, store: &Store<DB>, consumer: &str, progress: &Progress) {
        let mut keep = self.keep.subscribe();
        // So that a process that does not live for long forgets as well.
        let mut pause_max = FIRST_MAX;
        loop {
            let Ok(Some(age)) = keep.wait_for(Option::is_some).await.map(|keep| *keep) else {
                return std::future::pending().await;
            };
            // Of processes that start together not all at once. On the average one interval.
            let pause = interval(age).min(pause_max);
            tokio::time::sleep(pause.mul_f64(0.5 + retry::random())).await;
            pause_max = Duration::MAX;
            let Some(age) = *keep.borrow() else { continue };
            match store.purge_inbox(consumer, age).await {
                Ok(0) => {}
                Ok(claims) => {
                    progress.add_purged(claims);
                    tracing::debug!(consumer, claims, ?age, "forgot what was handled");
                }
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(consumer, error = cause, "what was handled is not forgotten in time");
                }
            }
        }
    }
}

fn interval(age: Duration) -> Duration {
    (age / PURGES).clamp(INTERVALS.1, INTERVALS.0)
}

fn kept(retention: InboxRetention, consumer: &str, horizon: Horizon) -> Result<Option<Duration>, Error> {
    let (keep, is_risked) = match retention {
        InboxRetention::Forever => return Ok(None),
        InboxRetention::Automatic => {
            return Ok(match horizon {
                Horizon::Settled => Some(AUTOMATIC_MIN),
                Horizon::Within { age, .. } => Some(age.saturating_add(MARGIN).max(AUTOMATIC_MIN)),
                Horizon::Unlimited { .. } => None,
            });
        }
        InboxRetention::For(keep) => (keep, false),
        InboxRetention::EvenIfShorter(keep) => (keep, true),
    };
    let (because, enough) = match horizon {
        Horizon::Within { age, because } if age > keep => (because, format!("at least {age:?}")),
        Horizon::Unlimited { because } => (because, "ever (`InboxRetention::Forever`)".to_owned()),
        _ => return Ok(Some(keep)),
    };
    let what = format!(
        "the inbox of the consumer {consumer:?} forgets what was handled after {keep:?}, and {because}"
    );
    if is_risked {
        tracing::warn!("{what}: what is delivered later becomes a dead letter");
        return Ok(Some(keep));
    }
    let fix = format!(
        "{what}: remember for {enough}, or say `InboxRetention::EvenIfShorter` if what is delivered later may become a \
         dead letter"
    );
    Err(Error::new(ErrorKind::Configuration, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn within(age: Duration) -> Horizon {
        Horizon::Within { age, because: "the stream `EVENTS` keeps messages for a while".to_owned() }
    }

    #[test]
    fn by_default_it_is_longer_than_the_transport_delivers() {
        let kept = |horizon| kept(InboxRetention::Automatic, "billing", horizon).unwrap();
        assert_eq!(kept(Horizon::Settled), Some(7 * 24 * HOUR));
        assert_eq!(kept(within(HOUR)), Some(7 * 24 * HOUR));
        assert_eq!(kept(within(30 * 24 * HOUR)), Some(31 * 24 * HOUR));
        assert_eq!(kept(unlimited()), None);
    }

    fn unlimited() -> Horizon {
        Horizon::Unlimited { because: "the stream `EVENTS` keeps messages for ever".to_owned() }
    }

    #[test]
    fn one_that_runs_goes_on_and_forgets_nothing_more() {
        let memory = Memory::new(InboxRetention::For(HOUR));
        memory.reach("billing", within(HOUR)).unwrap();
        assert_eq!(*memory.keep.borrow(), Some(HOUR));
        memory.reach("billing", within(2 * HOUR)).unwrap();
        assert_eq!(*memory.keep.borrow(), None);
        memory.reach("billing", within(HOUR)).unwrap();
        assert_eq!(*memory.keep.borrow(), Some(HOUR));
        assert!(Memory::new(InboxRetention::For(HOUR)).reach("billing", within(2 * HOUR)).is_err());
    }

    #[test]
    fn what_is_shorter_is_refused_with_both_numbers() {
        let refused = |horizon| kept(InboxRetention::For(HOUR), "billing", horizon).unwrap_err().to_string();
        let error = refused(within(2 * HOUR));
        for part in ["\"billing\"", "3600s", "7200s", "`EVENTS`", "EvenIfShorter"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = refused(unlimited());
        assert!(error.contains("`EVENTS`") && error.contains("InboxRetention::Forever"), "{error}");
        let kept = |retention, horizon| kept(retention, "billing", horizon).unwrap();
        assert_eq!(kept(InboxRetention::For(HOUR), within(HOUR)), Some(HOUR));
        assert_eq!(kept(InboxRetention::For(HOUR), Horizon::Settled), Some(HOUR));
        assert_eq!(kept(InboxRetention::EvenIfShorter(HOUR), within(2 * HOUR)), Some(HOUR));
        assert_eq!(kept(InboxRetention::Forever, unlimited()), None);
    }
}
