//! How many answers are given again.
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// Since the process began, for each scope.
#[derive(Debug, Default)]
pub(crate) struct ReplayRate(Mutex<HashMap<String, Counted>>);

#[derive(Debug, Default)]
struct Counted {
    created: u64,
    replayed: u64,
}

impl ReplayRate {
    pub(crate) fn created(&self, scope: &str) {
        self.count(scope, |counted| counted.created += 1);
    }

    pub(crate) fn replayed(&self, scope: &str) {
        self.count(scope, |counted| counted.replayed += 1);
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    fn count(&self, scope: &str, count: impl FnOnce(&mut Counted)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(scope) {
            all.insert(scope.to_owned(), Counted::default());
        }
        let Some(counted) = all.get_mut(scope) else { return };
        count(counted);
        let rate = counted.replayed as f64 / (counted.created + counted.replayed).max(1) as f64;
        metrics::gauge!("idempotent.replay_rate", "scope" => scope.to_owned()).set(rate);
    }
}
