//! Rows of the application with too few or too many effects.
use super::{
    expectation::Expectation,
    findings::{Findings, Found},
    report::CheckReport,
    sweep::{PAGE, SEGMENTS, Sweep},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::retry::random;
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, Query, SourceStatements, Statement, micros},
};
use uuid::Uuid;

/// The age up to which a row is looked at again: what is missing stays missing.
const EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A row of the application.
struct Source {
    id: Uuid,
    /// How many effects it has. None: it is not expected to have any.
    effects: Option<i64>,
}

/// Compares the rows of a table with their effects.
pub(super) async fn check<DB: Dialect>(
    engine: &Engine<DB>,
    run_id: Uuid,
    expectation: &Expectation,
    sweep: Sweep,
) -> Result<[CheckReport; 2], Error> {
    let name = expectation.name();
    let findings = |check| Findings::new(engine, run_id, check, &name, expectation.kind);
    let mut check = Sources {
        engine,
        expectation,
        sql: expectation.source.statements::<DB>(engine.catalog()),
        missing: findings("missing"),
        extra: findings("extra"),
    };
    check.look_again().await?;
    match sweep {
        Sweep::Full => check.walk(Uuid::nil(), None, usize::MAX).await.map(|_| ())?,
        Sweep::Sample(rows) => check.sample(rows).await?,
    }
    Ok([check.missing.report().await?, check.extra.report().await?])
}

struct Sources<'a, DB: Dialect> {
    engine: &'a Engine<DB>,
    expectation: &'a Expectation,
    sql: SourceStatements,
    missing: Findings<'a, DB>,
    extra: Findings<'a, DB>,
}

impl<DB: Dialect> Sources<'_, DB> {
    /// Looks whether earlier findings still hold.
    async fn look_again(&mut self) -> Result<(), Error> {
        let expected = i64::from(self.expectation.count);
        for is_missing in [true, false] {
            let mut after = String::new();
            loop {
                let of = if is_missing { &self.missing } else { &self.extra };
                let objects = of.open_after(&after, PAGE).await?;
                let Some(last) = objects.last() else { break };
                after.clone_from(last);
                let mut resolved = Vec::new();
                for object in objects {
                    let id = object.parse().unwrap_or_default();
                    let row = self.rows(&self.sql.one, EVER, id, 1).await?.pop();
                    let holds = row.and_then(|row| row.effects).is_some_and(|effects| {
                        if is_missing { effects < expected } else { effects > expected }
                    });
                    if !holds {
                        resolved.push(object);
                    }
                }
                let of = if is_missing { &mut self.missing } else { &mut self.extra };
                of.resolve(&resolved).await?;
            }
        }
        Ok(())
    }

    /// Reads rows from some random places on, and goes on at the beginning after the end.
    async fn sample(&mut self, rows: u32) -> Result<(), Error> {
        let row = self.engine.fetch_optional(&self.sql.ids, |query| query).await?;
        let Some(row) = row else { return Ok(()) };
        let ids: (Option<Uuid>, Option<Uuid>) = (row.try_get("lowest")?, row.try_get("highest")?);
        let (Some(lowest), Some(highest)) = ids else { return Ok(()) };
        let rows = rows as usize;
        let each = rows.div_ceil(SEGMENTS).max(PAGE.min(rows));
        let mut left = rows;
        while left > 0 {
            let start = between(lowest, highest, random());
            let most = each.min(left);
            let read = self.walk(start, None, most).await?;
            let rest = self.walk(Uuid::nil(), Some(start), most - read).await?;
            left -= most;
            if read + rest < most {
                // That was the whole table.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads up to `most` rows after an id, up to another one. Returns how many there were.
    async fn walk(&mut self, mut after: Uuid, upto: Option<Uuid>, most: usize) -> Result<usize, Error> {
        let expected = i64::from(self.expectation.count);
        let mut read = 0;
        while read < most && !(self.missing.is_full() && self.extra.is_full()) {
            let limit = PAGE.min(most - read);
            let mut rows = self.rows(&self.sql.page, self.expectation.within, after, limit).await?;
            let is_last = rows.len() < limit;
            let in_range = |row: &Source| upto.is_none_or(|upto| row.id <= upto);
            let is_past = rows.last().is_some_and(|row| !in_range(row));
            rows.retain(in_range);
            read += rows.len();
            self.missing.examined(rows.len());
            self.extra.examined(rows.len());
            let found = |is_found: fn(&i64, &i64) -> bool| {
                let found = rows.iter().filter_map(|row| {
                    let actual = row.effects.filter(|actual| is_found(actual, &expected))?;
                    let object = row.id.to_string();
                    Some(Found { object, expected: Some(expected), actual: Some(actual), detail: None })
                });
                Vec::from_iter(found)
            };
            self.missing.write(&found(i64::lt)).await?;
            self.extra.write(&found(i64::gt)).await?;
            match rows.last() {
                Some(row) if !is_last && !is_past => after = row.id,
                _ => break,
            }
        }
        Ok(read)
    }

    async fn rows(
        &self,
        statement: &Statement,
        within: Duration,
        id: Uuid,
        limit: usize,
    ) -> Result<Vec<Source>, Error> {
        let after = self.expectation.after;
        let (prefix, limit) = (self.expectation.prefix(), i64::try_from(limit).unwrap_or(i64::MAX));
        let bind = |query: Query<'static, DB>| {
            let query = query.bind(prefix.clone()).bind(prefix);
            query.bind(micros(after)).bind(micros(within)).bind(id).bind(limit)
        };
        let rows = self.engine.fetch_all(statement, bind).await?;
        rows.iter()
            .map(|row| Ok(Source { id: row.try_get("id")?, effects: row.try_get("effects")? }))
            .collect()
    }
}

/// A place between two ids, as numbers: ids that begin with a time are spread over it.
fn between(lowest: Uuid, highest: Uuid, random: f64) -> Uuid {
    let (lowest, highest) = (lowest.as_u128(), highest.as_u128());
    let offset = (highest.saturating_sub(lowest)) as f64 * random;
    Uuid::from_u128(lowest.saturating_add(offset as u128).min(highest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_begins_anywhere_between_the_first_and_the_last() {
        let [low, high] = [10, 1_000_010].map(Uuid::from_u128);
        assert_eq!(between(low, high, 0.0), low);
        assert_eq!(between(low, high, 0.5), Uuid::from_u128(500_010));
        assert_eq!(between(low, high, 1.0), high);
        assert_eq!(between(high, low, 0.5), low);
        assert!(between(Uuid::nil(), Uuid::max(), 0.999_999) < Uuid::max());
    }
}
