//! Undoing an effect with another one.
use crate::{
    effects::{Effects, Planned, planned_before},
    request::EffectRequest,
    side_effect::{self, EffectState, SideEffect},
    vendor::ErrorCode,
};
use twinbox_core::BoxFuture;
use twinbox_sql::{
    Dialect, EffectId, Error, ErrorKind, InTransaction,
    engine::{Caller, caller, query},
};

impl<DB: Dialect> Effects<DB> {
    /// Plans an effect that undoes another one, such as a refund of a charge, in the caller's transaction.
    ///
    /// The source of the new effect is the id of the original, so an original has one compensation: a second
    /// call changes nothing and returns [`Planned::Existing`], also with another kind or another request. The
    /// original becomes [`Compensated`](EffectState::Compensated) when its compensation is confirmed. Until
    /// then it keeps its state. A compensation that fails is retried by an operator, with
    /// `twinbox effects retry`. If the compensation is undone in its turn, the original stays compensated:
    /// the third effect replaces it.
    ///
    /// An original can be undone if its vendor has acted, or may have: if it is
    /// [`Confirmed`](EffectState::Confirmed), [`Unknown`](EffectState::Unknown), or
    /// [`Failed`](EffectState::Failed) after a send whose result is not known. Of the last two, undo with a
    /// request that does no harm where nothing was done. A compensation does not wait for an unknown original
    /// of its own key, nor for the effects behind it, which go on when the original is compensated.
    ///
    /// The row of the original stays locked until the transaction ends. A dry run plans nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: there is no such effect; it may have been purged, or it was planned in SQL
    /// and has no id yet. [`ErrorKind::Conflict`]: the vendor did nothing, or may still act, and the text
    /// says what to do. Or as [`plan`](Self::plan), but another request is no error.
    pub fn compensate<'a>(
        &'a self,
        tx: &'a mut impl InTransaction<DB>,
        original: impl Into<EffectId>,
        kind: &'a str,
        request: EffectRequest,
    ) -> BoxFuture<'a, Result<Planned, Error>> {
        let (caller, original) = (caller(tx), original.into());
        Box::pin(self.undo(caller, original, kind, request))
    }

    async fn undo(
        &self,
        caller: Caller<'_, DB>,
        original: EffectId,
        kind: &str,
        request: EffectRequest,
    ) -> Result<Planned, Error> {
        let original = self.lock(caller.conn, original).await?;
        let find = query::<DB>(&self.engine.sql().effects.compensation);
        let find = find.bind(original.id).bind(original.position);
        let Some(row) = find.fetch_optional(&mut *caller.conn).await? else {
            check(&original)?;
            return self.write(caller, original.id, kind, request, Some(original.position)).await;
        };
        let existing = side_effect::read::<DB>(&row)?;
        if existing.effect.kind != kind {
            return Ok(Planned::Existing { id: existing.effect.id, has_same_request: false });
        }
        request.check(kind)?;
        if caller.is_dry_run {
            return Ok(Planned::DryRun);
        }
        // It is not inserted once more: the insert would wait for a dispatcher that confirms the
        // compensation, and that waits for the original, which is locked here.
        Ok(planned_before(&existing.decode(self.engine.catalog())?, &request))
    }

    async fn lock(&self, conn: &mut DB::Connection, original: EffectId) -> Result<SideEffect, Error> {
        let sql = &self.engine.sql().effects;
        let position = match original {
            EffectId::Position(position) => Some(position),
            EffectId::Id(id) => {
                let found = query::<DB>(&sql.get_by_id).bind(id).fetch_optional(&mut *conn).await?;
                found.map(|row| side_effect::read::<DB>(&row)).transpose()?.map(|found| found.effect.position)
            }
        };
        let row = match position {
            Some(position) => query::<DB>(&sql.lock).for_caller().bind(position).fetch_optional(conn).await?,
            None => None,
        };
        // Its request is not needed, so it is not decoded.
        row.map(|row| side_effect::read::<DB>(&row)).transpose()?.map(|found| found.effect).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!("there is no effect {original} to compensate: it may have been purged"),
            )
        })
    }
}

/// Refuses an original whose vendor did nothing, or may still act.
fn check(original: &SideEffect) -> Result<(), Error> {
    let SideEffect { position, kind, state, .. } = original;
    let refuse = |why: &str| {
        let what = format!("the effect {position} ({kind:?}) is {state} and cannot be compensated: {why}");
        Err(Error::new(ErrorKind::Conflict, what))
    };
    let may_have_acted = original.error_code.as_deref() == Some(ErrorCode::Indeterminate.as_str());
    match state {
        EffectState::Confirmed | EffectState::Unknown => Ok(()),
        EffectState::Failed if may_have_acted => Ok(()),
        EffectState::Failed => refuse("its vendor did nothing, so there is nothing to undo"),
        EffectState::Compensated => refuse("it was undone before"),
        EffectState::Pending | EffectState::Fired => {
            refuse("its vendor may still act. Compensate it when it is confirmed or unknown")
        }
    }
}
