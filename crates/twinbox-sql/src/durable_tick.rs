//! The newest tick that is on the disk of a server of MySQL.
use std::sync::{Mutex, PoisonError};

/// The newest tick whose commit this process has seen return. What it covers is on the disk of the server in
/// whose run that was. Another server can give the ids of ticks again.
#[derive(Debug, Default)]
pub(crate) struct DurableTick(Mutex<Option<(i64, i64)>>);

impl DurableTick {
    /// Without a server run it is not known, and nothing is remembered.
    pub(crate) fn note(&self, run: Option<i64>, tick: i64) {
        let mut durable = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = durable.filter(|(of, _)| Some(*of) == run).map_or(tick, |(_, newest)| newest.max(tick));
        *durable = run.map(|run| (run, newest));
    }

    pub(crate) fn covers(&self, run: Option<i64>, tick: i64) -> bool {
        let durable = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        durable.is_some_and(|(of, newest)| Some(of) == run && tick <= newest)
    }
}
