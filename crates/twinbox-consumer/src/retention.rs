//! How long the inbox keeps claims, and the purge of older ones.
use crate::{
    error::{Error, ErrorKind},
    status::ConsumerStats,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::watch;
use twinbox_core::{MaxAge, retry};
use twinbox_sql::{Dialect, Inbox};

/// The shortest retention of [`InboxRetention::Automatic`].
const AUTOMATIC_MIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// Added to the age that the transport names: for its clock, and for a slow delivery.
const MARGIN: Duration = Duration::from_secs(24 * 3600);
/// The shortest time between two purges.
const PURGE_INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The longest time between two purges.
const PURGE_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// The longest time until the first purge, so that a process which does not run for long purges as well.
const FIRST_PURGE_MAX: Duration = Duration::from_secs(60);
/// Purges in one retention.
const PURGES_PER_RETENTION: u32 = 8;

/// How long the inbox keeps the claims of handled messages.
///
/// A message that comes after the purge of its claim does not run again. If it is as old as a message whose
/// claim was purged, it becomes a dead letter with the reason `in_doubt`, for a person to decide on. The age
/// of a message is its [time](twinbox_core::Draft::time): use [`Forever`](Self::Forever) where events are
/// published with a time that is long past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InboxRetention {
    /// Claims are kept a day longer than the transport can deliver a message, and at least 7 days. Forever
    /// where the transport keeps messages forever, or does not say for how long.
    #[default]
    Automatic,
    /// Claims are kept for this duration.
    ///
    /// [`Consumer::run`](crate::Consumer::run) refuses to start if the transport can deliver older messages.
    /// If the transport begins to do so while the consumer runs, no more claims are deleted.
    For(Duration),
    /// Claims are never deleted.
    Forever,
}

/// Deletes the old claims of one consumer.
pub(crate) struct InboxPurge {
    retention: InboxRetention,
    /// The age at which claims are deleted. None: no claim is deleted.
    claim_age: watch::Sender<Option<Duration>>,
    /// Whether a transport was opened with a retention that fits.
    is_running: AtomicBool,
}

impl InboxPurge {
    pub(crate) fn new(retention: InboxRetention) -> Self {
        Self { retention, claim_age: watch::Sender::new(None), is_running: AtomicBool::new(false) }
    }

    /// Sets how old the messages of the transport can be.
    ///
    /// # Errors
    /// The retention is too short. Only at the start: a running consumer continues, and deletes no more
    /// claims.
    pub(crate) fn set_max_age(&self, consumer: &str, max_age: MaxAge) -> Result<(), Error> {
        let claim_age = match claim_age(self.retention, consumer, max_age) {
            Err(error) if self.is_running.load(Relaxed) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(consumer, error = cause, "no more claims are deleted from the inbox");
                None
            }
            claim_age => claim_age?,
        };
        self.is_running.store(true, Relaxed);
        self.claim_age.send_replace(claim_age);
        Ok(())
    }

    /// Deletes old claims in intervals. Never returns.
    pub(crate) async fn run<DB: Dialect>(&self, inbox: &Inbox<DB>, stats: &ConsumerStats) {
        let consumer = inbox.consumer();
        let mut claim_age = self.claim_age.subscribe();
        let mut pause_max = FIRST_PURGE_MAX;
        loop {
            let Ok(Some(age)) = claim_age.wait_for(Option::is_some).await.map(|age| *age) else {
                return std::future::pending().await;
            };
            // Spread over time, reason processes often start together. On average it is one interval.
            let pause = purge_interval(age).min(pause_max);
            tokio::time::sleep(pause.mul_f64(0.5 + retry::random())).await;
            pause_max = Duration::MAX;
            let Some(age) = *claim_age.borrow() else { continue };
            match inbox.purge(age).await {
                Ok(0) => {}
                Ok(claims) => {
                    stats.add_purged(claims);
                    tracing::debug!(consumer, claims, ?age, "old claims were deleted from the inbox");
                }
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(consumer, error = cause, "old claims could not be deleted from the inbox");
                }
            }
        }
    }
}

fn purge_interval(age: Duration) -> Duration {
    (age / PURGES_PER_RETENTION).clamp(PURGE_INTERVAL_MIN, PURGE_INTERVAL_MAX)
}

/// Returns the age at which claims can be deleted.
fn claim_age(retention: InboxRetention, consumer: &str, max_age: MaxAge) -> Result<Option<Duration>, Error> {
    let age = match retention {
        InboxRetention::Forever => return Ok(None),
        InboxRetention::Automatic => {
            return Ok(match max_age {
                MaxAge::Settled => Some(AUTOMATIC_MIN),
                MaxAge::Within { age, .. } => Some(age.saturating_add(MARGIN).max(AUTOMATIC_MIN)),
                MaxAge::Unlimited { .. } => None,
            });
        }
        InboxRetention::For(age) => age,
    };
    let (reason, enough) = match max_age {
        MaxAge::Within { age: delivered, reason } if delivered > age => {
            (reason, format!("`InboxRetention::For` with at least {delivered:?}"))
        }
        MaxAge::Unlimited { reason } => (reason, "`InboxRetention::Forever`".to_owned()),
        _ => return Ok(Some(age)),
    };
    let message = format!(
        "the inbox of the consumer {consumer:?} deletes claims after {age:?}, but {reason}: \
         use {enough}, or `InboxRetention::Automatic`"
    );
    Err(Error::new(ErrorKind::Configuration, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn within(age: Duration) -> MaxAge {
        MaxAge::Within { age, reason: "the stream `EVENTS` keeps messages for a while".to_owned() }
    }

    fn unlimited() -> MaxAge {
        MaxAge::Unlimited { reason: "the stream `EVENTS` keeps messages forever".to_owned() }
    }

    #[test]
    fn automatic_retention_is_longer_than_the_transport_delivers() {
        let age = |max_age| claim_age(InboxRetention::Automatic, "billing", max_age).unwrap();
        assert_eq!(age(MaxAge::Settled), Some(7 * 24 * HOUR));
        assert_eq!(age(within(HOUR)), Some(7 * 24 * HOUR));
        assert_eq!(age(within(30 * 24 * HOUR)), Some(31 * 24 * HOUR));
        assert_eq!(age(unlimited()), None);
    }

    #[test]
    fn a_running_consumer_continues_and_deletes_no_more_claims() {
        let purge = InboxPurge::new(InboxRetention::For(HOUR));
        purge.set_max_age("billing", within(HOUR)).unwrap();
        assert_eq!(*purge.claim_age.borrow(), Some(HOUR));
        purge.set_max_age("billing", within(2 * HOUR)).unwrap();
        assert_eq!(*purge.claim_age.borrow(), None);
        purge.set_max_age("billing", within(HOUR)).unwrap();
        assert_eq!(*purge.claim_age.borrow(), Some(HOUR));
        let fresh = InboxPurge::new(InboxRetention::For(HOUR));
        assert!(fresh.set_max_age("billing", within(2 * HOUR)).is_err());
    }

    #[test]
    fn a_retention_that_is_too_short_is_refused_with_both_durations() {
        let refused =
            |max_age| claim_age(InboxRetention::For(HOUR), "billing", max_age).unwrap_err().to_string();
        let error = refused(within(2 * HOUR));
        for part in ["\"billing\"", "3600s", "at least 7200s", "`EVENTS`"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let error = refused(unlimited());
        assert!(error.contains("`EVENTS`") && error.contains("InboxRetention::Forever"), "{error}");
        let age = |retention, max_age| claim_age(retention, "billing", max_age).unwrap();
        assert_eq!(age(InboxRetention::For(HOUR), within(HOUR)), Some(HOUR));
        assert_eq!(age(InboxRetention::For(HOUR), MaxAge::Settled), Some(HOUR));
        assert_eq!(age(InboxRetention::Forever, unlimited()), None);
    }
}
