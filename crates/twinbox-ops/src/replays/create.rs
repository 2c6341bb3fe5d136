//! Making a replay of a plan.
use super::plan::ReplayPlan;
use crate::Ops;
use twinbox_core::{Timestamp, crash, limits};
use twinbox_sql::{
    Dialect, Error, ErrorKind, ReaderName,
    engine::{inserted_id, query, scalar, text},
    replay::Replay,
};
use uuid::Uuid;

/// The options of a new replay.
#[derive(Debug, Clone)]
#[must_use]
pub struct NewReplay {
    consumer: Option<String>,
    rate: Option<u32>,
    made_by: String,
    reason: Option<String>,
}

impl NewReplay {
    /// Returns options to send messages again to a destination that lost them. `made_by`: the operator.
    pub fn resend(made_by: impl Into<String>) -> Self {
        Self { consumer: None, rate: None, made_by: made_by.into(), reason: None }
    }

    /// Returns options to run messages again in one consumer, which runs them although it has handled them.
    /// Other consumers acknowledge them.
    pub fn reprocess(consumer: impl Into<String>, made_by: impl Into<String>) -> Self {
        Self { consumer: Some(consumer.into()), ..Self::resend(made_by) }
    }

    /// Returns the one consumer that reprocesses the messages.
    pub fn consumer(&self) -> Option<&str> {
        self.consumer.as_deref()
    }

    /// Sets the most messages that the replay sends a second. Without it, and above it, a quarter of the rate
    /// of new messages.
    pub fn rate(self, rate: Option<u32>) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), ..self }
    }

    /// Sets the reason of the replay, which the audit and lists show.
    pub fn reason(self, reason: Option<String>) -> Self {
        Self { reason, ..self }
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Creates a replay from a plan. The owner of the destination begins to execute it within a second.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: no message is selected; or the plan is so old that the log has moved on: plan
    /// again. The database refused or is away, and nothing is made; with [`ErrorKind::CommitUnknown`] it may
    /// have been.
    pub async fn make_replay(&self, plan: &ReplayPlan, new: NewReplay) -> Result<Replay, Error> {
        if plan.selected == 0 {
            return Err(Error::new(ErrorKind::Conflict, "nothing is selected, so nothing is to be replayed"));
        }
        if let Some(consumer) = &new.consumer
            && (consumer.is_empty() || consumer.len() > limits::NAME_BYTES_MAX)
        {
            let what =
                format!("the consumer name {consumer:?} must have 1 to {} bytes", limits::NAME_BYTES_MAX);
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let (sql, bound) = (self.engine.sql(), plan.bound);
        let plain = |s: &String| text(s).into_owned();
        let now = self.store.now().await?;
        let mut tx = self.engine.begin_short().await?;
        // Between finding its tick and having a cursor that names it.
        if !sql.log.lock_ticks.is_absent() {
            query::<DB>(&sql.log.lock_ticks).execute(&mut *tx).await?;
        }
        let start = scalar::<DB, Option<i64>>(&sql.log.tick_before);
        let start = start.bind(plan.start).bind(bound.p).bind(bound.w).fetch_optional(&mut *tx).await?;
        let Some(start) = start.flatten() else {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the log has moved on since this was planned: plan again",
            ));
        };
        let create = query::<DB>(&sql.replays.create)
            .bind(token(now))
            .bind(plan.destination.clone())
            .bind(new.consumer.as_ref().map(plain))
            .bind(plan.selection.to_json())
            .bind(bound.p)
            .bind(bound.w)
            .bind(bound.position)
            .bind(plan.first)
            .bind(plan.last)
            .bind(i64::try_from(plan.selected).unwrap_or(i64::MAX))
            .bind(new.rate.map(i64::from))
            .bind(plain(&new.made_by))
            .bind(new.reason.as_ref().map(plain));
        let id = inserted_id::<DB>(&mut tx, create).await?;
        let w = if start < bound.p { bound.p } else { bound.w };
        let cursor = ReaderName::Replay(id).to_string();
        query::<DB>(&sql.replays.create_cursor).bind(cursor).bind(start).bind(w).execute(&mut *tx).await?;
        crash::point("replay.before_make");
        tx.commit().await?;
        crash::point("replay.after_make");
        self.replay(id).await.map_err(|error| {
            Error::new(ErrorKind::CommitUnknown, format!("replay {id} is made, and cannot be read"))
                .with_source(error)
        })
    }
}

/// A UUIDv7 by the clock of the database: older claims are taken back.
fn token(now: Timestamp) -> Uuid {
    let micros = u64::try_from(now.as_micros()).unwrap_or(0);
    let nanos = u32::try_from(micros % 1_000_000).unwrap_or(0) * 1000;
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, micros / 1_000_000, nanos))
}
