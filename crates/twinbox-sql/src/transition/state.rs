//! Moving a row from one state to the next, once.
use super::column::{Column, wrong};
use crate::{Dialect, Error, InTransaction, row::TextColumns};
use sqlx::{Encode, Type};

/// The text column of a table that holds the state of each row.
///
/// ```
/// use twinbox_sql::transition::StateColumn;
///
/// const PAYMENT: StateColumn = StateColumn::new("payments", "payment_id", "status");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateColumn {
    column: Column,
    state_type: Option<&'static str>,
}

/// The result of moving a row to a state.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an effect belongs to `Applied` alone"]
pub enum Transition {
    /// The row was in one of the allowed states, and is in the new one now. Plan effects in this case only.
    Applied {
        /// The state before.
        previous: String,
    },
    /// The row is in the new state already, so nothing was written.
    AlreadyThere,
    /// The row is in a state from which the transition is not allowed. Nothing was written.
    Illegal {
        /// The state of the row.
        current: String,
    },
    /// There is no such row.
    NotFound,
}

impl StateColumn {
    /// Describes the column `state` of `table`, whose unique column `id` tells the rows apart. Names are
    /// written as in SQL, with a schema or quotes where they need them.
    pub const fn new(table: &'static str, id: &'static str, state: &'static str) -> Self {
        Self { column: Column { table, id, name: state }, state_type: None }
    }

    /// Sets the type of the column, if it is not text: an enum of Postgres.
    #[must_use]
    pub const fn state_type(self, state_type: &'static str) -> Self {
        Self { state_type: Some(state_type), ..self }
    }

    /// Moves the row `id` to the state `to` if it is in one of `from`, in the transaction. The row stays
    /// locked until the transaction ends, so of many equal transitions one gets [`Transition::Applied`].
    ///
    /// ```text
    /// match PAYMENT.transition(tx, payment_id, &["authorized"], "captured").await? {
    ///     Transition::Applied { .. } => tx.publish(&PaymentCaptured { payment_id }).await.map(drop)?,
    ///     Transition::AlreadyThere => {}
    ///     other => return Err(HandlerError::reject(format!("cannot capture: {other:?}"))),
    /// }
    /// ```
    ///
    /// # Errors
    /// The database refused or is away: the transaction is lost.
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration): the row has no state, a trigger keeps
    /// it, or `id` is not unique; roll back.
    pub async fn transition<'q, DB, Id>(
        &self,
        tx: &mut impl InTransaction<DB>,
        id: Id,
        from: &[&str],
        to: &str,
    ) -> Result<Transition, Error>
    where
        DB: Dialect,
        Id: Encode<'q, DB> + Type<DB> + Clone + Send + 'q,
    {
        let Column { table, name, .. } = self.column;
        let Some(row) = self.column.lock(tx, id.clone(), DB::FRAGMENTS.text).await? else {
            return Ok(Transition::NotFound);
        };
        let Some(current) = row.text_or_null("value")? else {
            return Err(wrong(format!("a row of {table} has no state: {name} is NULL")));
        };
        if current == to {
            return Ok(Transition::AlreadyThere);
        }
        if !from.contains(&&*current) {
            return Ok(Transition::Illegal { current });
        }
        let new = self.state_type.map_or_else(|| "?".to_owned(), |name| format!("CAST(? AS {name})"));
        self.column.set(tx, id, &new, to.to_owned()).await?;
        tracing::info!(table, from_state = current, to_state = to, "transition");
        Ok(Transition::Applied { previous: current })
    }
}
