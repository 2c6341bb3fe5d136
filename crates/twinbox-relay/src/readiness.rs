//! Whether the program can relay, for `/readyz` and for systemd.
use crate::{
    circuit_breaker::{CircuitBreakerState, CircuitBreakerStatus},
    config::Config,
    error::Error,
    schemas::{Schema, Schemas},
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

/// The program is ready if a database responds whose tables fit, each destination has a cursor in the log,
/// and the configuration of at least one is right. No message that is published from then on is missed,
/// except in a database that does not respond or fit while another one does.
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
            destinations: ids.map(|id| (id.clone(), config.outbox_of(id).to_owned())).collect(),
            broken: broken.clone(),
            has_cursors: AtomicBool::new(false),
        }
    }

    /// Returns the faults that concern only some destinations, or all faults if the program is not ready.
    pub(crate) async fn check(&self) -> Result<Vec<String>, Vec<String>> {
        let databases = self.schemas.by_database();
        let looks = join_all(databases.iter().map(|schemas| self.look(schemas))).await;
        let is_usable = looks.iter().any(|look| look.unfit.is_empty());
        let is_waiting = looks.iter().any(|look| !look.waiting.is_empty());
        let mut faults: Vec<_> =
            looks.into_iter().flat_map(|look| look.unfit.into_iter().chain(look.waiting)).collect();
        self.has_cursors.fetch_or(faults.is_empty(), Ordering::Relaxed);
        let broken = self.broken.all();
        let is_right = broken.is_empty() || broken.len() < self.destinations.len();
        faults.extend(broken);
        if is_usable && !is_waiting && is_right { Ok(faults) } else { Err(faults) }
    }

    /// Looks at the schemas of one database.
    async fn look(&self, schemas: &[&Schema<DB>]) -> Look {
        let fits =
            schemas.iter().map(async |schema| match timeout(DATABASE_TIMEOUT, schema.store.check()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(format!("{}: {error}", schema.title)),
                Err(_) => Some(format!("{}: no response", schema.title)),
            });
        let unfit = Vec::from_iter(join_all(fits).await.into_iter().flatten());
        if !unfit.is_empty() || self.has_cursors.load(Ordering::Relaxed) {
            return Look { unfit, waiting: Vec::new() };
        }
        let title = &schemas[0].title;
        match timeout(DATABASE_TIMEOUT, self.without_cursor(schemas)).await {
            Ok(Ok(waiting)) => Look { unfit, waiting },
            Ok(Err(error)) => Look { unfit: vec![format!("{title}: {error}")], waiting: Vec::new() },
            Err(_) => Look { unfit: vec![format!("{title}: no response")], waiting: Vec::new() },
        }
    }

    /// One line for each destination that no process has ever run.
    async fn without_cursor(&self, schemas: &[&Schema<DB>]) -> Result<Vec<String>, twinbox_sql::Error> {
        let mut missing = Vec::new();
        for schema in schemas {
            let readers = Ops::new(&schema.store).readers().await?;
            let of_schema = self.destinations.iter().filter(|(_, name)| *name == schema.name);
            let without = of_schema.filter(|(id, _)| readers.iter().all(|reader| reader.name != *id));
            let waiting = without.filter(|(id, _)| !self.broken.has(id));
            missing.extend(waiting.map(|(id, _)| format!("destination {id}: its cursor")));
        }
        Ok(missing)
    }
}

/// The faults that a look at a database has found.
struct Look {
    /// One line for each schema that does not respond, or whose tables do not fit.
    unfit: Vec<String>,
    /// One line for each destination without a cursor.
    waiting: Vec<String>,
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
