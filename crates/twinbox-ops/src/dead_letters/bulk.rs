//! Acts on all dead letters that match a filter.
use super::groups::END;
use crate::{AuditIntent, Ops};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    dead_letters::{
        BulkAction, BulkActionState, DEAD_LETTERS_MAX, DeadLetter, DeadLetterAction, DeadLetterFilter,
        DeadLetterOwner,
    },
    engine::{Micros, bounded, count, inserted_id, micros, query},
};

/// The most dead letters of a sample.
const SAMPLE: usize = 5;
/// Dead letters that are read for a sample of those that an index counts: some may be redriven already.
const SAMPLED: usize = 50;

/// How many dead letters match, the redriven ones included.
struct Count {
    all: u64,
    redriven: u64,
}

/// The dead letters that a bulk action would change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkPlan {
    /// The act.
    pub action: DeadLetterAction,
    /// The dead letters. The filter names one consumer or one destination.
    pub filter: DeadLetterFilter,
    /// How many dead letters it would change, counted up to [`DEAD_LETTERS_MAX`].
    pub matching: u64,
    /// How many more match, and are redriven already.
    pub redriven: u64,
    /// Whether there may be more than were counted.
    pub has_more: bool,
    /// The newest of them.
    pub sample: Vec<DeadLetter>,
}

impl BulkPlan {
    /// Returns whether the action would change nothing. With [`has_more`](Self::has_more), older dead letters
    /// may match.
    pub fn is_empty(&self) -> bool {
        self.matching == 0 && !self.has_more
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Counts the dead letters that a bulk action would change. Writes nothing. An index counts all of an
    /// owner or of a group, up to a time; with other conditions it reads at most
    /// [`DEAD_LETTERS_SCANNED_MAX`](super::DEAD_LETTERS_SCANNED_MAX) dead letters, the newest first.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: the filter names no owner, or two. The database refused or is away.
    pub async fn plan_bulk_action(
        &self,
        action: DeadLetterAction,
        filter: &DeadLetterFilter,
    ) -> Result<BulkPlan, Error> {
        let Some(owner) = filter.owner() else {
            let what = "a bulk action is for the dead letters of one consumer or one destination: name it";
            return Err(Error::new(ErrorKind::Configuration, what));
        };
        let count = self.count_by_index(&owner, filter).await?;
        let read = if count.is_some() { SAMPLED } else { DEAD_LETTERS_MAX as usize };
        let page = self.dead_letters(&owner, filter, None, read).await?;
        let is_redrive = action == DeadLetterAction::Redrive;
        let (redriven, changes): (Vec<_>, Vec<_>) =
            page.dead_letters.into_iter().partition(|one| is_redrive && one.is_redriven);
        let (matching, redriven, has_more) = match count {
            Some(Count { all, redriven }) => {
                let (counted, has_more) = (all.min(DEAD_LETTERS_MAX.into()), all > DEAD_LETTERS_MAX.into());
                let redriven = if is_redrive { redriven.min(counted) } else { 0 };
                (counted - redriven, redriven, has_more)
            }
            None => (changes.len() as u64, redriven.len() as u64, page.next.is_some()),
        };
        let sample = changes.into_iter().take(SAMPLE).collect();
        Ok(BulkPlan { action, filter: filter.clone(), matching, redriven, has_more, sample })
    }

    /// Counts one more than [`DEAD_LETTERS_MAX`] at most. None: the filter has conditions that are in no
    /// index, or an old last time: the index on groups would pass over all that came later.
    async fn count_by_index(
        &self,
        owner: &DeadLetterOwner,
        filter: &DeadLetterFilter,
    ) -> Result<Option<Count>, Error> {
        let by_index =
            DeadLetterFilter { until: filter.until, ..DeadLetterFilter::of(owner).with_group_of(filter) };
        if by_index != *filter {
            return Ok(None);
        }
        let (sql, group) = (self.engine.sql(), filter.group());
        if let (Some(until), None) = (filter.until, group)
            && until < self.lately().await?
        {
            return Ok(None);
        }
        let count_of = match (owner, group) {
            (DeadLetterOwner::Consumer(_), None) => &sql.dead_letters.count_of_consumer,
            (DeadLetterOwner::Consumer(_), Some(_)) => &sql.dead_letters.count_of_group,
            (DeadLetterOwner::Destination(_), None) => &sql.parked_messages.count_of_destination,
            (DeadLetterOwner::Destination(_), Some(_)) => &sql.parked_messages.count_of_group,
        };
        let mut counts = query::<DB>(count_of).bind(owner.name().to_owned());
        if let Some(group) = group {
            counts = counts.bind(group.to_owned());
        }
        let counts =
            counts.bind(Micros(filter.until.unwrap_or(END.time))).bind(i64::from(DEAD_LETTERS_MAX) + 1);
        let mut conn = self.engine.connection().await?;
        let row = counts.fetch_one(&mut *conn).await?;
        conn.done().await?;
        let [all, redriven] = [row.try_get("dead_letters")?, row.try_get("redriven")?].map(count);
        Ok(Some(Count { all, redriven }))
    }

    /// Makes a bulk action of a plan, with its entry in the audit. A process that runs a relay or a consumer
    /// carries it out, beginning within a few seconds, on every dead letter that matches and was given up by
    /// now. `spacing`: the time between two redriven dead letters.
    ///
    /// In one transaction: killed half-way, nothing is made.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`]: nothing matches. The database refused or is away; with
    /// [`ErrorKind::CommitUnknown`] it may have been made.
    pub async fn make_bulk_action(
        &self,
        plan: &BulkPlan,
        spacing: Duration,
        intent: &AuditIntent<'_>,
    ) -> Result<BulkAction, Error> {
        if plan.is_empty() {
            return Err(Error::new(ErrorKind::Conflict, "nothing matches, so nothing is to be done"));
        }
        let sql = self.engine.sql();
        let mut tx = self.engine.begin_short().await?;
        let audit = self.insert_audit(&mut tx, intent).await?;
        let create = query::<DB>(&sql.bulk_actions.create)
            .bind(plan.action.as_str().to_owned())
            .bind(plan.filter.to_json())
            .bind(micros(spacing))
            .bind(i64::try_from(plan.matching).unwrap_or(i64::MAX))
            .bind(audit)
            .bind(bounded(intent.operator))
            .bind(intent.reason.map(bounded));
        let id = inserted_id::<DB>(&mut tx, create).await?;
        crash::point("bulk.before_make");
        tx.commit().await?;
        self.bulk_action(id).await.map_err(|error| {
            let what = format!("the bulk action {id} is made, and cannot be read");
            Error::new(ErrorKind::CommitUnknown, what).with_source(error)
        })
    }

    /// Returns the newest bulk actions, newest first. Those that cannot be read and have not failed yet are
    /// left out, with a warning.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn bulk_actions(&self, limit: u32) -> Result<Vec<BulkAction>, Error> {
        let list = &self.engine.sql().bulk_actions.list;
        let rows = self.engine.fetch_all(list, |query| query.bind(i64::from(limit))).await?;
        let mut actions = Vec::new();
        for row in &rows {
            match BulkAction::read::<DB>(row) {
                Ok(action) => actions.push(action),
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "a bulk action is left out");
                }
            }
        }
        Ok(actions)
    }

    /// Returns one bulk action by its id.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn bulk_action(&self, id: i64) -> Result<BulkAction, Error> {
        let find = &self.engine.sql().bulk_actions.find;
        let row = self.engine.fetch_optional(find, |query| query.bind(id)).await?;
        let action = row.as_ref().map(BulkAction::read::<DB>).transpose()?;
        action.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no bulk action {id}")))
    }

    /// Cancels a bulk action for good. What it has changed stays changed, and the audit gets that number.
    /// False: it had ended.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn cancel_bulk_action(&self, id: i64) -> Result<bool, Error> {
        let (action, sql) = (self.bulk_action(id).await?, &self.engine.sql().bulk_actions);
        let mut tx = self.engine.begin_short().await?;
        let cancel = query::<DB>(&sql.finish).bind(BulkActionState::Cancelled.as_str().to_owned()).bind(id);
        let is_cancelled = DB::rows_affected(&cancel.execute(&mut *tx).await?) > 0;
        if is_cancelled {
            query::<DB>(&sql.end_audit).bind(id).bind(action.audit_id).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(is_cancelled)
    }
}
