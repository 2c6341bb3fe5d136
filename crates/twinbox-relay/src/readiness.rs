//! Whether the program can relay, for `/readyz` and for systemd.
use crate::{
    circuit_breaker::{CircuitBreakerState, CircuitBreakerStatus},
    error::Error,
    schemas::Schemas,
};
use futures::future::join_all;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::timeout;
use twinbox_sql::Dialect;

/// How long the database may take to respond to a probe.
pub(crate) const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The program is ready if the database responds, the tables of every schema fit, and the configuration of at
/// least one destination is right.
///
/// A destination that is down does not count: another relay could not reach it either. A lease does not count
/// either: a second relay is ready to take over.
pub(crate) struct Readiness<DB: Dialect> {
    pub(crate) schemas: Arc<Schemas<DB>>,
    pub(crate) destinations: usize,
    pub(crate) broken: Broken,
}

impl<DB: Dialect> Readiness<DB> {
    /// Returns the faults that concern only some destinations, or all faults if the program is not ready.
    pub(crate) async fn check(&self) -> Result<Vec<String>, Vec<String>> {
        let looks = self.schemas.all().iter().map(async |schema| {
            match timeout(DATABASE_TIMEOUT, schema.store.check()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{}: {error}", schema.title)),
                Err(_) => Some(format!("{}: no response", schema.title)),
            }
        });
        let mut reasons = Vec::from_iter(join_all(looks).await.into_iter().flatten());
        let broken = self.broken.all();
        if reasons.is_empty() && (broken.is_empty() || broken.len() < self.destinations) {
            return Ok(broken);
        }
        reasons.extend(broken);
        Err(reasons)
    }
}

/// Destinations whose last start failed because of their configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Broken(Arc<Mutex<BTreeMap<String, (String, CircuitBreakerStatus)>>>);

impl Broken {
    /// Adds a destination. It counts as broken until `next_breaker`, the circuit breaker of its next start,
    /// closes.
    pub(crate) fn add(&self, destination: &str, error: &Error, next_breaker: CircuitBreakerStatus) {
        let mut broken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        broken.insert(destination.to_owned(), (error.to_string(), next_breaker));
    }

    /// One line for each destination.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut broken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        broken.retain(|_, (_, breaker)| breaker.state() != CircuitBreakerState::Closed);
        broken.iter().map(|(id, (error, _))| format!("destination {id}: {error}")).collect()
    }
}
