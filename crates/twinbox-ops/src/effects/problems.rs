//! How many side effects need a person.
use crate::Ops;
use std::time::Duration;
use twinbox_sql::{
    Dialect, Error,
    engine::{count, micros, scalar},
};

/// The most effects of a state that are counted.
pub const PROBLEMS_MAX: u32 = 10_000;

/// How many side effects need a person, each counted up to [`PROBLEMS_MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectProblems {
    /// How many effects are unknown.
    pub unknown: u64,
    /// How many effects failed and are not purged.
    pub failed: u64,
    /// How many effects failed lately.
    pub failed_lately: u64,
}

impl<DB: Dialect> Ops<DB> {
    /// Counts the effects that need a person. `lately`: the time within which a failure is recent.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn effect_problems(&self, lately: Duration) -> Result<EffectProblems, Error> {
        let (sql, limit) = (self.engine.sql(), i64::from(PROBLEMS_MAX));
        let mut conn = self.engine.connection().await?;
        let mut counts = [0; 2];
        for (found, state) in counts.iter_mut().zip(["unknown", "failed"]) {
            let of_state = scalar::<DB, i64>(&sql.effects.count_problems).bind(state.to_owned()).bind(limit);
            *found = count(of_state.fetch_one(&mut *conn).await?);
        }
        let lately = scalar::<DB, i64>(&sql.effect_acts.count_failed_since).bind(micros(lately)).bind(limit);
        let failed_lately = count(lately.fetch_one(&mut *conn).await?);
        conn.done().await?;
        let [unknown, failed] = counts;
        Ok(EffectProblems { unknown, failed, failed_lately })
    }
}
