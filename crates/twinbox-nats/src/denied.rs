//! The subjects to which the server denies publishing, and whether it denies the subject of answers.
//!
//! The server reports a denial as an error of the connection. The message itself gets no response, so the
//! client waits for its acknowledgement in vain.
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long a denial is remembered. Then a message is sent again, in case the permission was granted since.
const REMEMBERED: Duration = Duration::from_secs(5);
/// The most subjects that are remembered.
const SUBJECTS_MAX: usize = 10_000;

/// The code of a denial.
pub(crate) const DENIED: &str = "nats.permission";

/// The denials that one connection has reported.
#[derive(Debug, Default)]
pub(crate) struct DeniedSubjects {
    any: AtomicBool,
    subjects: Mutex<HashMap<String, Instant>>,
    inbox: AtomicBool,
    changed: watch::Sender<()>,
}

impl DeniedSubjects {
    /// Records an error of the server if it denies a publish or a subscription. Each subscription is an
    /// inbox.
    pub(crate) fn record(&self, error: &str) {
        let text = error.to_ascii_lowercase();
        if text.contains("permissions violation for subscription") {
            self.inbox.store(true, Relaxed);
            self.changed.send_replace(());
        }
        if !text.contains("permissions violation for publish") {
            return;
        }
        self.any.store(true, Relaxed);
        let Some(subject) = error.split('"').nth(1) else { return };
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        if subjects.len() >= SUBJECTS_MAX {
            subjects.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        if subjects.len() < SUBJECTS_MAX {
            subjects.insert(subject.to_owned(), Instant::now());
        }
        drop(subjects);
        self.changed.send_replace(());
    }

    /// Returns whether the server has ever denied a publish on this connection.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Returns whether the server has denied this subject in the last 5 s.
    pub(crate) fn contains(&self, subject: &str) -> bool {
        self.any() && {
            let subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
            subjects.get(subject).is_some_and(|at| at.elapsed() < REMEMBERED)
        }
    }

    /// Waits until the server denies this subject.
    pub(crate) async fn until_denied(&self, subject: &str) {
        let mut changed = self.changed.subscribe();
        while !self.contains(subject) {
            // It never fails: the sender is here.
            let _ = changed.changed().await;
        }
    }

    /// Waits until the server denies the inbox. No answer comes over this connection then.
    pub(crate) async fn until_inbox_denied(&self) {
        let mut changed = self.changed.subscribe();
        while !self.inbox.load(Relaxed) {
            let _ = changed.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_denied_subject_is_recorded() {
        let denied = DeniedSubjects::default();
        denied.record("Authorization Violation");
        denied.record("Permissions Violation for Subscription to \"_INBOX.x.*\"");
        assert!(!denied.any());
        denied.record("Permissions Violation for Publish to \"events.3.orders.placed\"");
        assert!(denied.contains("events.3.orders.placed") && !denied.contains("events.3.orders"));
        for n in 0..2 * SUBJECTS_MAX {
            denied.record(&format!("Permissions Violation for Publish to \"s.{n}\""));
        }
        assert!(denied.subjects.lock().unwrap().len() <= SUBJECTS_MAX);
    }
}
