//! Effects whose row of the application is gone.
use super::{
    expectation::Expectation,
    findings::{Findings, Found},
    report::CheckReport,
    sweep::{PAGE, SEGMENTS, Sweep},
};
use sqlx::Row as _;
use std::collections::BTreeSet;
use twinbox_core::retry::random;
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, Query, SourceStatements},
};
use uuid::Uuid;

/// Looks for effects of one kind that belong to no row of any table that is expected to have them.
pub(super) async fn check<DB: Dialect>(
    engine: &Engine<DB>,
    run_id: Uuid,
    expectations: &[&Expectation],
    sweep: Sweep,
) -> Result<Option<CheckReport>, Error> {
    let Some(first) = expectations.first() else { return Ok(None) };
    let statements = |one: &&Expectation| one.source.statements::<DB>(engine.catalog());
    let mut check = Orphans {
        engine,
        prefix: first.prefix(),
        sql: expectations.iter().map(statements).collect(),
        findings: Findings::new(engine, run_id, "orphan", first.kind, first.kind),
    };
    check.look_again().await?;
    check.sweep(sweep).await?;
    check.findings.report().await.map(Some)
}

struct Orphans<'a, DB: Dialect> {
    engine: &'a Engine<DB>,
    prefix: String,
    sql: Vec<SourceStatements>,
    findings: Findings<'a, DB>,
}

impl<DB: Dialect> Orphans<'_, DB> {
    async fn look_again(&mut self) -> Result<(), Error> {
        let mut after = String::new();
        loop {
            let objects = self.findings.open_after(&after, PAGE).await?;
            let Some(last) = objects.last() else { return Ok(()) };
            after.clone_from(last);
            let mut resolved = Vec::new();
            for object in objects {
                let position = object.parse().unwrap_or(0);
                if self.orphans(position - 1, position).await?.is_empty() {
                    resolved.push(object);
                }
            }
            self.findings.resolve(&resolved).await?;
        }
    }

    async fn sweep(&mut self, sweep: Sweep) -> Result<(), Error> {
        let row = self.engine.fetch_optional(&self.engine.sql().drift.positions, |query| query).await?;
        let Some(row) = row else { return Ok(()) };
        let ends: (Option<i64>, Option<i64>) = (row.try_get("lowest")?, row.try_get("highest")?);
        let (Some(lowest), Some(highest)) = ends else { return Ok(()) };
        let most = match sweep {
            Sweep::Full => i64::MAX,
            Sweep::Sample(effects) => i64::from(effects),
        };
        if highest - lowest < most {
            return self.walk(lowest - 1, highest).await;
        }
        let segments = SEGMENTS as i64;
        let each = (most + segments - 1) / segments;
        for _ in 0..segments.min(most) {
            let room = highest - lowest - each;
            let start = lowest - 1 + (room.max(0) as f64 * random()) as i64;
            self.walk(start, start + each).await?;
        }
        Ok(())
    }

    /// Looks at a range of positions.
    async fn walk(&mut self, mut after: i64, upto: i64) -> Result<(), Error> {
        while after < upto && !self.findings.is_full() {
            let end = upto.min(after + PAGE as i64);
            let orphans = self.orphans(after, end).await?;
            self.findings.examined(usize::try_from(end - after).unwrap_or(0));
            let found = |position: i64| Found {
                object: position.to_string(),
                expected: None,
                actual: None,
                detail: None,
            };
            self.findings.write(&Vec::from_iter(orphans.into_iter().map(found))).await?;
            after = end;
        }
        Ok(())
    }

    /// The effects of a range that no table has a row for.
    async fn orphans(&self, after: i64, upto: i64) -> Result<BTreeSet<i64>, Error> {
        let mut orphans: Option<BTreeSet<i64>> = None;
        for sql in &self.sql {
            let prefix = self.prefix.clone();
            let bind =
                |query: Query<'static, DB>| query.bind(after).bind(upto).bind(prefix.clone()).bind(prefix);
            let rows = self.engine.fetch_all(&sql.orphans, bind).await?;
            let found = rows.iter().map(|row| Ok(row.try_get("position")?));
            let found = found.collect::<Result<BTreeSet<i64>, Error>>()?;
            orphans = Some(match orphans {
                None => found,
                Some(before) => before.intersection(&found).copied().collect(),
            });
        }
        Ok(orphans.unwrap_or_default())
    }
}
