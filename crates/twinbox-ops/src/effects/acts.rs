//! Decisions of a person about a side effect.
use super::{
    item::{self, EffectInfo},
    list::no_effect,
};
use crate::Ops;
use sqlx::Row as _;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, EffectId, Error, ErrorKind,
    engine::{Statement, bounded, query},
};

/// The finding of a person at the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The vendor acted.
    Applied,
    /// The vendor did nothing, and no earlier send can act any more.
    NotApplied,
}

/// A change of an effect that an operator may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Sends a failed effect again, whose vendor surely did nothing.
    Retry,
    /// Ends the doubt about an effect.
    Resolve(Resolution),
}

impl Change {
    /// Refuses an effect that the change does not fit. The text says what to do.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`].
    pub fn check(self, effect: &EffectInfo) -> Result<(), Error> {
        let EffectInfo { position, state, .. } = effect;
        let refuse = |why: String| {
            Err(Error::new(ErrorKind::Conflict, format!("the effect {position} is {state}: {why}")))
        };
        match self {
            _ if ["pending", "fired"].contains(&&**state) => {
                refuse("a dispatcher works on it, and nobody has to decide".to_owned())
            }
            _ if !["unknown", "failed"].contains(&&**state) => refuse("it has ended".to_owned()),
            Self::Retry if effect.is_in_doubt() => refuse(format!(
                "its vendor may have acted, so another send could act twice. Look there, and use \
                 `twinbox effects resolve {position} applied` or `not-applied`"
            )),
            Self::Resolve(_) if !effect.is_in_doubt() => refuse(format!(
                "its vendor did nothing, so there is no doubt. Use `twinbox effects retry {position}`"
            )),
            Self::Retry | Self::Resolve(_) => Ok(()),
        }
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Changes an effect, and wakes the next one of its key. `note` is kept with the effect.
    ///
    /// [`Change::Retry`] and [`Resolution::NotApplied`] send it again, under a new key for the vendor, as
    /// often as a new effect. Effects of its key that were sent meanwhile stay before it.
    /// [`Resolution::Applied`] confirms it, and if it compensates another effect, that one is compensated.
    ///
    /// In one transaction: killed half-way, it has changed nothing.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::Conflict`]: the change does not fit the effect, see
    /// [`Change::check`], or its compensation is planned. Or the database refused or is away.
    pub async fn change_effect(&self, id: EffectId, change: Change, note: &str) -> Result<EffectInfo, Error> {
        let sql = self.engine.sql();
        let mut tx = self.engine.begin().await?;
        let position = match id {
            EffectId::Position(position) => position,
            EffectId::Id(one) => {
                let found = query::<DB>(&sql.effects.get_by_id).bind(one).fetch_optional(&mut *tx).await?;
                found.ok_or_else(|| no_effect(id))?.try_get("position")?
            }
        };
        let found = query::<DB>(&sql.effects.lock).bind(position).fetch_optional(&mut *tx).await?;
        let effect = item::read::<DB>(&found.ok_or_else(|| no_effect(id))?)?;
        change.check(&effect)?;
        let is_applied = change == Change::Resolve(Resolution::Applied);
        if !is_applied {
            self.refuse_compensated(&mut tx, &effect).await?;
        }
        let act = if is_applied { &sql.effect_acts.confirm } else { &sql.effect_acts.renew };
        query::<DB>(act).bind(bounded(note)).bind(position).execute(&mut *tx).await?;
        let among = async |conn: &mut DB::Connection, statement: &Statement, position: i64| {
            let positions = format!("[{position}]");
            query::<DB>(statement).bind(positions).execute(conn).await.map(|_| ())
        };
        among(&mut tx, &sql.effects.wake, position).await?;
        if let Some(original) = effect.compensates.filter(|_| is_applied) {
            among(&mut tx, &sql.effects.compensate, position).await?;
            among(&mut tx, &sql.effects.wake, original).await?;
        }
        crash::point("effects.before_change_commit");
        tx.commit().await?;
        Ok(effect)
    }

    /// A second send and its undoing would race.
    async fn refuse_compensated(&self, conn: &mut DB::Connection, effect: &EffectInfo) -> Result<(), Error> {
        let compensation = query::<DB>(&self.engine.sql().effects.compensation);
        let compensation = compensation.bind(effect.id).bind(effect.position).fetch_optional(conn).await?;
        let Some(row) = compensation else { return Ok(()) };
        let compensation: i64 = row.try_get("position")?;
        Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "the effect {} is undone by the effect {compensation}, so it is not sent again: plan another",
                effect.position
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use twinbox_core::Timestamp;
    use uuid::Uuid;

    fn effect(state: &str, error_code: Option<&str>) -> EffectInfo {
        EffectInfo {
            position: 7,
            id: None,
            source_id: Uuid::nil(),
            kind: "email.welcome:ada".to_owned(),
            vendor: "mail".to_owned(),
            key: None,
            state: state.to_owned(),
            compensates: None,
            generation: 0,
            attempts: 1,
            failures: 1,
            next_attempt_at: None,
            fired_at: None,
            ended_at: None,
            provider_ref: None,
            http_code: None,
            error_code: error_code.map(str::to_owned),
            last_error: None,
            created_at: Timestamp::from_micros(0),
        }
    }

    /// D29: another key only where the vendor surely did nothing.
    #[test]
    fn only_the_change_that_fits_is_made() {
        let (retry, resolve) = (Change::Retry, Change::Resolve(Resolution::NotApplied));
        for (state, code, fits) in [
            ("pending", None, None),
            ("fired", None, None),
            ("confirmed", None, None),
            ("compensated", None, None),
            ("unknown", Some("PROVIDER.key_expired"), Some(resolve)),
            ("unknown", None, Some(resolve)),
            ("failed", Some("PROVIDER.indeterminate"), Some(resolve)),
            ("failed", Some("VALIDATION.rejected"), Some(retry)),
            ("failed", None, Some(retry)),
        ] {
            for change in [retry, resolve] {
                let checked = change.check(&effect(state, code));
                assert_eq!(checked.is_ok(), fits == Some(change), "{state} {code:?} {change:?}: {checked:?}");
            }
        }
        let refused = retry.check(&effect("unknown", None)).unwrap_err().to_string();
        assert!(refused.contains("`twinbox effects resolve 7 applied`"), "{refused}");
    }
}
