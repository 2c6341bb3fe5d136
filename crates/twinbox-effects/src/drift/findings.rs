//! Findings in the database.
use super::{
    report::{CheckReport, DriftFinding},
    sweep::FINDINGS_MAX,
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, Micros, TextColumns, bounded, count, micros, query, scalar},
};
use uuid::Uuid;

/// How long resolved findings are kept.
const RESOLVED_KEEP: Duration = Duration::from_secs(90 * 24 * 3600);
/// The most resolved findings that a run deletes.
const PURGED_MAX: i64 = 10_000;

/// Something that does not agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) object: String,
    pub(super) expected: Option<i64>,
    pub(super) actual: Option<i64>,
    pub(super) detail: Option<String>,
}

/// Writes the findings of one check, and what became of earlier ones.
pub(super) struct Findings<'a, DB: Dialect> {
    engine: &'a Engine<DB>,
    run_id: Uuid,
    check: String,
    kind: &'a str,
    examined: u64,
    written: usize,
    resolved: u64,
}

impl<'a, DB: Dialect> Findings<'a, DB> {
    /// `check`: the word of the check. `of`: what it compares, if there are several. `kind`: of the effects.
    pub(super) fn new(engine: &'a Engine<DB>, run_id: Uuid, check: &str, of: &str, kind: &'a str) -> Self {
        let check = format!("{check} {of}").trim_end().to_owned();
        Self { engine, run_id, check, kind, examined: 0, written: 0, resolved: 0 }
    }

    pub(super) fn examined(&mut self, rows: usize) {
        self.examined += rows as u64;
    }

    /// Whether the run looks for no more of them.
    pub(super) fn is_full(&self) -> bool {
        self.written >= FINDINGS_MAX
    }

    /// Writes findings, in one transaction, up to the bound of a run.
    pub(super) async fn write(&mut self, found: &[Found]) -> Result<(), Error> {
        let found = &found[..found.len().min(FINDINGS_MAX - self.written)];
        if found.is_empty() {
            return Ok(());
        }
        let mut tx = self.engine.begin().await?;
        for one in found {
            let write = query::<DB>(&self.engine.sql().drift.write)
                .bind(self.check.clone())
                .bind(one.object.clone())
                .bind(one.expected)
                .bind(one.actual)
                .bind(one.detail.as_deref().map(bounded))
                .bind(self.run_id);
            write.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        self.written += found.len();
        Ok(())
    }

    /// The objects of open findings after one.
    pub(super) async fn open_after(&self, object: &str, limit: usize) -> Result<Vec<String>, Error> {
        let rows = self.open(object, limit).await?;
        Ok(rows.into_iter().map(|finding| finding.object).collect())
    }

    pub(super) async fn resolve(&mut self, objects: &[String]) -> Result<(), Error> {
        for object in objects {
            let (check, object) = (self.check.clone(), object.clone());
            let resolve = &self.engine.sql().drift.resolve;
            self.resolved += self.engine.execute(resolve, |query| query.bind(check).bind(object)).await?;
        }
        Ok(())
    }

    /// Resolves what this run has not seen, if it has looked for everything.
    pub(super) async fn resolve_unseen(&mut self) -> Result<(), Error> {
        if self.is_full() {
            return Ok(());
        }
        let (check, run) = (self.check.clone(), self.run_id);
        let resolve = &self.engine.sql().drift.resolve_unseen;
        self.resolved += self.engine.execute(resolve, |query| query.bind(check).bind(run)).await?;
        Ok(())
    }

    /// The findings of this check, with the open ones of earlier runs.
    pub(super) async fn report(self) -> Result<CheckReport, Error> {
        let findings = self.open("", FINDINGS_MAX).await?;
        let mut conn = self.engine.connection().await?;
        let open = scalar::<DB, i64>(&self.engine.sql().drift.count_open).bind(self.check.clone());
        let open = count(open.bind(FINDINGS_MAX as i64 * 10).fetch_one(&mut *conn).await?);
        conn.done().await?;
        Ok(CheckReport {
            is_cut: self.is_full(),
            kind: self.kind.to_owned(),
            check: self.check,
            examined: self.examined,
            open,
            resolved: self.resolved,
            findings,
        })
    }

    async fn open(&self, after: &str, limit: usize) -> Result<Vec<DriftFinding>, Error> {
        let (check, after) = (self.check.clone(), after.to_owned());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let open = &self.engine.sql().drift.open;
        let rows = self.engine.fetch_all(open, |query| query.bind(check).bind(after).bind(limit)).await?;
        let read = |row: &DB::Row| {
            Ok(DriftFinding {
                object: row.text("object_id")?,
                expected: row.try_get::<Option<i64>, _>("expected")?.map(count),
                actual: row.try_get::<Option<i64>, _>("actual")?.map(count),
                detail: row.text_or_null("detail")?,
                first_seen: row.try_get::<Micros, _>("first_seen")?.0,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// Deletes findings that were resolved long ago.
pub(super) async fn purge<DB: Dialect>(engine: &Engine<DB>) -> Result<(), Error> {
    let purge = &engine.sql().drift.purge;
    engine.execute(purge, |query| query.bind(micros(RESOLVED_KEEP)).bind(PURGED_MAX)).await?;
    Ok(())
}
