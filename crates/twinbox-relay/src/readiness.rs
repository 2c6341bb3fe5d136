//! Whether the program can relay, for `/readyz` and for systemd.
use crate::{
    circuit_breaker::{CircuitBreakerState, CircuitBreakerStatus},
    config::Config,
    error::Error,
    schemas::Schemas,
};
use futures::future::join_all;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::time::timeout;
use twinbox_ops::Ops;
use twinbox_sql::Dialect;

/// How long the database may take to respond to a probe.
pub(crate) const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The program is ready if the database responds, the tables of every schema fit, each destination has a
/// cursor in the log, and the configuration of at least one is right. No message that is published from then
/// on is missed.
///
/// A destination that is down does not count: another relay could not reach it either. A lease does not count
/// either: a second relay is ready to take over.
pub(crate) struct Readiness<DB: Dialect> {
    pub(crate) schemas: Arc<Schemas<DB>>,
    /// The ids of the destinations, each with its schema.
    destinations: Vec<(String, String)>,
    broken: Broken,
    /// Each destination has had a cursor, or was broken.
    has_cursors: AtomicBool,
}

impl<DB: Dialect> Readiness<DB> {
    pub(crate) fn new(schemas: &Arc<Schemas<DB>>, config: &Config, broken: &Broken) -> Self {
        let ids = config.destinations.keys();
        Self {
            schemas: schemas.clone(),
            destinations: ids.map(|id| (id.clone(), config.namespace_of(id).to_owned())).collect(),
            broken: broken.clone(),
            has_cursors: AtomicBool::new(false),
        }
    }

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
        if reasons.is_empty() && !self.has_cursors.load(Ordering::Relaxed) {
            reasons = match timeout(DATABASE_TIMEOUT, self.without_cursor()).await {
                Ok(Ok(missing)) => missing,
                Ok(Err(error)) => vec![format!("database: {error}")],
                Err(_) => vec!["database: no response".to_owned()],
            };
            self.has_cursors.store(reasons.is_empty(), Ordering::Relaxed);
        }
        let broken = self.broken.all();
        if reasons.is_empty() && (broken.is_empty() || broken.len() < self.destinations.len()) {
            return Ok(broken);
        }
        reasons.extend(broken);
        Err(reasons)
    }

    /// One line for each destination that no process has ever run.
    async fn without_cursor(&self) -> Result<Vec<String>, twinbox_sql::Error> {
        let mut missing = Vec::new();
        for schema in self.schemas.all() {
            let readers = Ops::new(&schema.store).readers().await?;
            let of_schema = self.destinations.iter().filter(|(_, name)| *name == schema.name);
            let without = of_schema.filter(|(id, _)| readers.iter().all(|reader| reader.name != *id));
            let waiting = without.filter(|(id, _)| !self.broken.has(id));
            missing.extend(waiting.map(|(id, _)| format!("destination {id}: its cursor")));
        }
        Ok(missing)
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

    fn has(&self, destination: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(destination)
    }

    /// One line for each destination.
    pub(crate) fn all(&self) -> Vec<String> {
        let mut broken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        broken.retain(|_, (_, breaker)| breaker.state() != CircuitBreakerState::Closed);
        broken.iter().map(|(id, (error, _))| format!("destination {id}: {error}")).collect()
    }
}
