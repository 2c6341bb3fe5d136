//! What may be done to a dead letter.
use super::id::DeadLetterId;
use crate::{Dialect, Error, engine::Engine, inbox::REDRIVE_ATTEMPTS, micros::micros, statement::query};
use std::{fmt, time::Duration};

/// An act of an operator on dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterAction {
    /// Hands the message to its consumer or its destination again.
    Redrive,
    /// Deletes the dead letter for good.
    Discard,
}

impl DeadLetterAction {
    /// Returns the word for this action.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Discard => "discard",
        }
    }

    pub(super) fn parse(word: &str) -> Option<Self> {
        [Self::Redrive, Self::Discard].into_iter().find(|one| one.as_str() == word)
    }

    /// Does it to one dead letter, inside the transaction of the caller. `delay`: the time until a redriven
    /// one is tried. Returns whether the dead letter was still there, and not redriven already.
    ///
    /// # Errors
    /// The database refused or is away.
    #[doc(hidden)]
    pub async fn apply<DB: Dialect>(
        self,
        engine: &Engine<DB>,
        conn: &mut DB::Connection,
        id: &DeadLetterId,
        delay: Duration,
    ) -> Result<bool, Error> {
        let (consumers, destinations) = (&engine.sql().dead_letters, &engine.sql().parked_messages);
        let act = match (self, id) {
            (Self::Redrive, DeadLetterId::OfConsumer(id)) => query::<DB>(&consumers.redrive)
                .bind(micros(delay))
                .bind(i64::from(REDRIVE_ATTEMPTS))
                .bind(*id),
            (Self::Redrive, DeadLetterId::OfDestination(destination, position)) => {
                let redrive = query::<DB>(&destinations.redrive).bind(micros(delay));
                redrive.bind(destination.clone()).bind(*position)
            }
            (Self::Discard, DeadLetterId::OfConsumer(id)) => query::<DB>(&consumers.delete).bind(*id),
            (Self::Discard, DeadLetterId::OfDestination(destination, position)) => {
                query::<DB>(&destinations.discard).bind(destination.clone()).bind(*position)
            }
        };
        Ok(DB::rows_affected(&act.execute(conn).await?) > 0)
    }
}

impl fmt::Display for DeadLetterAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
