//! The keeper: deletes what nobody needs any more, so that tables stay bounded without a timer outside.
mod metrics;
mod purges;
mod slot;

use crate::{Log, Retention};
use slot::Slot;
use std::{fmt, time::Duration};
use tokio_util::sync::CancellationToken;
use twinbox_core::{limits::bounded, retry, test_signal};
use twinbox_sql::{Dialect, Error, Store};
use uuid::Uuid;

pub use purges::KeeperReport;
pub use slot::KEEPER;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The shortest time between two runs.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// A keeper looks so many times as often as it runs, for a run that another process has left.
const LOOKS_PER_RUN: u32 = 24;
/// The longest time between two looks.
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// The longest time until the first look, so that a process which does not run for long looks as well.
const FIRST_LOOK_MAX: Duration = Duration::from_secs(60);

/// Deletes old rows of a store once a day: messages of the log, expired idempotency keys and receipts of
/// webhooks, and side effects, keys of clients and runs of jobs that have ended. Claims of an inbox are
/// deleted by its consumer.
///
/// Relay and consumer run one by default. Any number may run on one database: each day one of them does the
/// work, and another goes on if its process dies. It looks for the first time within a minute after its
/// start.
///
/// Messages that a reader of the log has not settled stay, and so do unfinished keys, and effects that are
/// open or unknown.
///
/// If its role may not delete rows, the keeper logs an error, sets the gauge `twinbox_keeper_lacks_rights` to
/// 1, and leaves the work to a keeper that may. Give it a store whose pool connects with another role then.
///
/// | Metric | Counts |
/// |---|---|
/// | `twinbox_keeper_rows_purged_total` | Deleted rows, by `table`. |
/// | `twinbox_keeper_runs_total` | Runs, by `outcome`: done, failed, forbidden. |
/// | `twinbox_keeper_lacks_rights` | Gauge: 1 if the role of the last run could not delete rows of a table. |
pub struct Keeper<DB: Dialect> {
    store: Store<DB>,
    retention: Retention,
    effects: Duration,
    failed_effects: Duration,
    job_runs: Duration,
    every: Duration,
    first_look: Duration,
}

impl<DB: Dialect> Keeper<DB> {
    /// Creates a keeper of a store with the default times: 7 days for messages, 30 days for side effects that
    /// are confirmed or compensated, for keys of clients and for runs of jobs, 90 days for effects that
    /// failed.
    pub fn new(store: &Store<DB>) -> Self {
        Self {
            store: store.clone(),
            retention: Retention::new(7 * DAY),
            effects: 30 * DAY,
            failed_effects: 90 * DAY,
            job_runs: 30 * DAY,
            every: DAY,
            first_look: FIRST_LOOK_MAX,
        }
    }

    /// Sets how long messages of the log are kept, and for whom.
    #[must_use]
    pub fn keep(self, retention: impl Into<Retention>) -> Self {
        Self { retention: retention.into(), ..self }
    }

    /// Sets how long side effects are kept after they were confirmed or compensated, and after they failed.
    /// Keys of clients are kept as long as confirmed ones. Failed ones are kept at least as long as the
    /// others.
    #[must_use]
    pub fn keep_effects(self, ended: Duration, failed: Duration) -> Self {
        Self { effects: bounded(ended), failed_effects: bounded(failed.max(ended)), ..self }
    }

    /// Sets how long runs of jobs are kept after they ended.
    #[must_use]
    pub fn keep_job_runs(self, ended: Duration) -> Self {
        Self { job_runs: bounded(ended), ..self }
    }

    /// Sets how often a keeper runs: once a day by default, and at least every second.
    #[must_use]
    pub fn every(self, every: Duration) -> Self {
        Self { every: bounded(every.max(EVERY_MIN)), ..self }
    }

    /// Sets within which time after its start a keeper looks for the first time: a minute by default. A
    /// process that does not run for that long deletes nothing.
    #[must_use]
    pub fn first_look(self, within: Duration) -> Self {
        Self { first_look: bounded(within), ..self }
    }

    /// Runs until `stop` is cancelled.
    ///
    /// It waits out outages of the database. A run that is interrupted has deleted some rows, and goes on
    /// later: nothing has to be cleaned up.
    pub async fn run(self, stop: CancellationToken) {
        metrics::describe();
        let interval = (self.every / LOOKS_PER_RUN).clamp(EVERY_MIN, LOOK_INTERVAL_MAX);
        let (owner, mut pause, mut settled) = (Uuid::now_v7(), interval.min(self.first_look), None);
        test_signal::pass("keeper.waits");
        loop {
            // Spread over time, because processes often start together.
            let pause_now = pause.mul_f64(0.5 + retry::random() / 2.0);
            if stop.run_until_cancelled(tokio::time::sleep(pause_now)).await.is_none() {
                return;
            }
            pause = interval;
            match stop.run_until_cancelled(self.look(owner, &mut settled)).await {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) if error.is_forbidden() => {
                    metrics::lacks_rights(true);
                    let cause = &error as &dyn std::error::Error;
                    tracing::error!(
                        error = cause,
                        "the keeper may not write its runs, so nothing is purged: {ASK}"
                    );
                }
                Some(Err(error)) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(error = cause, "the keeper could not run");
                }
            }
        }
    }

    /// Runs the keeper if its time has come and no other process does it. `settled`: the last slot that needs
    /// nothing more from this process.
    async fn look(&self, owner: Uuid, settled: &mut Option<Slot>) -> Result<(), Error> {
        let engine = self.store.engine();
        let slot = Slot::of(self.store.now().await?, self.every);
        if *settled == Some(slot) {
            return Ok(());
        }
        let Some(run) = slot.begin(engine, owner).await? else {
            if slot.has_ended(engine).await? {
                *settled = Some(slot);
            }
            return Ok(());
        };
        let report = tokio::select! {
            report = self.purge() => report,
            () = slot::keep_lease(engine, run) => {
                tracing::warn!("a run of the keeper was left: its lease was lost");
                return Ok(());
            }
        };
        if !report.forbidden.is_empty() {
            // Another process may have the rights.
            *settled = Some(slot);
            let tables = report.forbidden.join(", ");
            tracing::error!(tables, "the keeper may not delete old rows of these tables: {ASK}");
        }
        if let Some(error) = &report.error {
            let (tables, cause) = (report.failed.join(", "), error as &dyn std::error::Error);
            tracing::warn!(
                tables,
                error = cause,
                "the keeper could not delete all old rows of these tables, and tries again"
            );
        }
        slot::finish(engine, run, &report).await
    }

    /// Deletes old rows now, whoever else does so. A table that fails does not keep the others.
    pub async fn purge(&self) -> KeeperReport {
        let mut report = KeeperReport::default();
        match Log::new(&self.store).purge(self.retention).await {
            Ok(purged) => {
                report.add("outbox", Ok(purged.messages));
                if let Some(reader) = purged.slowest_reader {
                    tracing::warn!(
                        reader,
                        "messages that are old enough are kept for the reader, which is behind"
                    );
                }
                if !purged.lagging.is_empty() {
                    tracing::error!(readers = purged.lagging.join(", "), "these readers are too far behind");
                }
            }
            Err(error) => report.add("outbox", Err(error)),
        }
        let keys = self.store.idempotency_keys();
        report.add("idempotency_keys", keys.purge().await);
        report.add("webhook_receipts", keys.purge_webhooks().await);
        self.add_ended(&mut report).await;
        metrics::ran(&report);
        report
    }

    /// Deletes side effects, keys of clients and runs of jobs that have ended, and nothing else.
    pub async fn purge_ended(&self) -> KeeperReport {
        let mut report = KeeperReport::default();
        self.add_ended(&mut report).await;
        report
    }

    async fn add_ended(&self, report: &mut KeeperReport) {
        let engine = self.store.engine();
        report.add("side_effects", purges::effects(engine, self.effects, self.failed_effects).await);
        report.add("client_keys", purges::client_keys(engine, self.effects).await);
        report.add("job_runs", purges::job_runs(engine, self.job_runs).await);
    }
}

/// The advice about missing rights.
const ASK: &str = "grant its role the rights of a keeper, or give the keeper a database URL of its own";

impl<DB: Dialect> Clone for Keeper<DB> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), ..*self }
    }
}

impl<DB: Dialect> fmt::Debug for Keeper<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("store", &self.store)
            .field("retention", &self.retention)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
