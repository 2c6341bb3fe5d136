//! Drift between the application's rows and their side effects.
use crate::Ops;
use sqlx::Row as _;
use twinbox_core::Timestamp;
use twinbox_sql::{
    Dialect, Error,
    engine::{Micros, TextColumns, count},
};

/// The most checks that are listed.
const CHECKS_MAX: i64 = 1000;

/// A check of drift with open findings.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriftCheck {
    /// What is compared, such as `missing webhook.payment_captured per payments`.
    pub check: String,
    /// How many findings are open.
    pub findings: u64,
    /// One of the rows, effects, operations or readers.
    pub example: String,
    /// When the oldest of them was seen first.
    pub first_seen: Timestamp,
    /// When the newest of them was seen last.
    pub last_seen: Timestamp,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns the checks of drift that have open findings, by name. A run of drift keeps at most 1,000
    /// findings of a check.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn drift(&self) -> Result<Vec<DriftCheck>, Error> {
        let open = &self.engine.sql().drift.open_checks;
        let rows = self.engine.fetch_all(open, |query| query.bind(CHECKS_MAX)).await?;
        let read = |row: &DB::Row| {
            Ok(DriftCheck {
                check: row.text("check_id")?,
                findings: count(row.try_get("findings")?),
                example: row.text("example")?,
                first_seen: row.try_get::<Micros, _>("first_seen")?.0,
                last_seen: row.try_get::<Micros, _>("last_seen")?.0,
            })
        };
        rows.iter().map(read).collect()
    }
}
