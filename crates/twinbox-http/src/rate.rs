//! How many answers are given again.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Since the process began.
#[derive(Debug, Default)]
pub(crate) struct ReplayRate {
    created: AtomicU64,
    replayed: AtomicU64,
}

impl ReplayRate {
    pub(crate) fn created(&self, scope: &str) {
        self.created.fetch_add(1, Relaxed);
        self.tell(scope);
    }

    pub(crate) fn replayed(&self, scope: &str) {
        self.replayed.fetch_add(1, Relaxed);
        self.tell(scope);
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    fn tell(&self, scope: &str) {
        let (created, replayed) = (self.created.load(Relaxed), self.replayed.load(Relaxed));
        let rate = replayed as f64 / (created + replayed).max(1) as f64;
        metrics::gauge!("idempotent.replay_rate", "scope" => scope.to_owned()).set(rate);
    }
}
