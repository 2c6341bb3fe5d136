//! A run over all expectations.
use super::{expectation::Expectation, findings, orphans, report::DriftReport, sources, stuck, sweep::Sweep};
use crate::metrics;
use std::{collections::BTreeMap, fmt, time::Duration};
use twinbox_core::limits::bounded;
use twinbox_sql::{Dialect, Error, ErrorKind, Store};
use uuid::Uuid;

/// How long something may stay undone, unless said otherwise.
const STUCK_AFTER: Duration = Duration::from_secs(3600);

/// Compares rows of the application with their effects, and finds what stays undone.
///
/// A run reads tables by their primary keys, a thousand rows at a time, each page in a statement of its own.
/// It writes to the table `drift_findings` only, and sends nothing. A finding stays open until a run sees
/// that it no longer holds. Resolved findings are kept for 90 days.
pub struct Drift<DB: Dialect> {
    store: Store<DB>,
    expectations: Vec<Expectation>,
    stuck_after: Duration,
}

impl<DB: Dialect> Drift<DB> {
    /// Creates a check of a store without expectations, which finds what stays undone.
    pub fn new(store: &Store<DB>) -> Self {
        Self { store: store.clone(), expectations: Vec::new(), stuck_after: STUCK_AFTER }
    }

    /// Adds an expectation.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: a name is no identifier, something is missing, or the table has an
    /// expectation of this kind already.
    pub fn expect(mut self, expectation: Expectation) -> Result<Self, Error> {
        expectation.check()?;
        let name = expectation.name();
        if self.expectations.iter().any(|other| other.name() == name) {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!("the expectation of {name} is there twice"),
            ));
        }
        self.expectations.push(expectation);
        Ok(self)
    }

    /// Sets how long an effect may be due, unknown or failed, an operation unfinished, a message unread or
    /// failing, before it is a finding: one hour by default.
    #[must_use]
    pub fn stuck_after(self, stuck_after: Duration) -> Self {
        Self { stuck_after: bounded(stuck_after), ..self }
    }

    /// Runs all checks once, under a new id.
    ///
    /// # Errors
    /// The database refused, as it does when a table or a column of an expectation does not exist; or it is
    /// away. Findings that were written by then stay.
    pub async fn run_once(&self, sweep: Sweep) -> Result<DriftReport, Error> {
        self.run_as(Uuid::now_v7(), sweep).await
    }

    /// Runs all checks once, under the id of a scheduled run. The same id again, as after a crash, goes over
    /// the same findings.
    ///
    /// # Errors
    /// As [`run_once`](Self::run_once).
    pub async fn run_as(&self, run_id: Uuid, sweep: Sweep) -> Result<DriftReport, Error> {
        let (engine, at) = (self.store.engine(), self.store.now().await?);
        let mut checks = Vec::new();
        for expectation in &self.expectations {
            checks.extend(sources::check(engine, run_id, expectation, sweep).await?);
        }
        let mut by_kind: BTreeMap<&str, Vec<&Expectation>> = BTreeMap::new();
        for expectation in &self.expectations {
            by_kind.entry(expectation.kind).or_default().push(expectation);
        }
        for expectations in by_kind.values() {
            checks.extend(orphans::check(engine, run_id, expectations, sweep).await?);
        }
        checks.extend(stuck::check(engine, run_id, self.stuck_after).await?);
        findings::purge(engine).await?;
        let oldest_expired = stuck::oldest_expired(engine).await?;
        metrics::oldest_expired(oldest_expired);
        let report = DriftReport { run_id, sweep, at, checks, oldest_expired };
        metrics::drift(report.checks.iter().map(|check| (check.word(), &*check.kind, check.open)));
        Ok(report)
    }
}

impl<DB: Dialect> fmt::Debug for Drift<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drift").field("expectations", &self.expectations).finish_non_exhaustive()
    }
}
