//! Making a replay of a plan.
use super::{NewReplay, Replay, ReplayPlan, cursor};
use crate::{
    Dialect, Error, ErrorKind, Store,
    sql::{query, scalar},
    text::text,
};
use twinbox_core::{Timestamp, crash, limits};
use uuid::Uuid;

impl<DB: Dialect> Store<DB> {
    /// Makes a replay of what was planned. Whoever owns the destination begins to execute it within a second.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: nothing is selected; or the plan is so old that the log has moved on: plan again. The
    /// database refused or is away, and nothing is made; with [`ErrorKind::CommitUnknown`] it may have been.
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
        let (statements, bound) = (self.statements(), plan.bound);
        let plain = |s: &String| text(s).into_owned();
        let now = self.now().await?;
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        // Between finding its tick and having a cursor that names it.
        self.keep_ticks(tx.connection()).await?;
        let start = scalar::<DB, Option<i64>>(&statements.replay_start);
        let start = start.bind(plan.behind).bind(bound.p).bind(bound.w).fetch_optional(&mut *tx).await?;
        let Some(start) = start.flatten() else {
            return Err(Error::new(
                ErrorKind::Conflict,
                "the log has moved on since this was planned: plan again",
            ));
        };
        let id: i64 = scalar::<DB, i64>(&statements.replay_make)
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
            .bind(new.reason.as_ref().map(plain))
            .fetch_one(&mut *tx)
            .await?;
        let w = if start < bound.p { bound.p } else { bound.w };
        query::<DB>(&statements.replay_cursor).bind(cursor(id)).bind(start).bind(w).execute(&mut *tx).await?;
        crash::point("replay.before_make");
        tx.commit().await?;
        crash::point("replay.after_make");
        self.replay(id).await.map_err(|error| {
            Error::new(ErrorKind::CommitUnknown, format!("replay {id} is made, and cannot be read"))
                .with_source(error)
        })
    }
}

/// A UUIDv7 by the clock of the database: claims that are older are taken back.
fn token(now: Timestamp) -> Uuid {
    let micros = u64::try_from(now.as_micros()).unwrap_or(0);
    let nanos = u32::try_from(micros % 1_000_000).unwrap_or(0) * 1000;
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, micros / 1_000_000, nanos))
}
