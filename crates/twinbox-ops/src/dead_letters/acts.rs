//! Listing, redriving and discarding dead letters.
use crate::Ops;
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{Message, crash};
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    dead_letters::{
        DeadLetter, DeadLetterAction, DeadLetterFilter, DeadLetterId, Place, consumer_fingerprint, page_after,
    },
    engine::{MessageColumns, Query, bind_message, query},
    inbox::REDRIVE_ATTEMPTS,
    stored_text,
};

/// Dead letters that one statement reads.
const PAGE: u32 = 1000;
/// Dead letters that one transaction changes.
const BATCH: usize = 200;

impl<DB: Dialect> Ops<DB> {
    /// Calls `see` with each dead letter that matches the filter: those of consumers first, oldest first.
    /// Reads in pages of 1,000, without the messages.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn each_dead_letter(
        &self,
        filter: &DeadLetterFilter,
        mut see: impl FnMut(DeadLetter),
    ) -> Result<(), Error> {
        let now = self.store.now().await?;
        for owner in self.dead_letter_owners(filter).await? {
            let mut after = Place::START;
            loop {
                let mut conn = self.engine.connection().await?;
                let group = filter.group();
                let page = page_after(&self.engine, &mut conn, &owner, group, after, now, PAGE).await?;
                conn.done().await?;
                let is_full = page.len() == PAGE as usize;
                after = page.last().map_or(after, Place::of);
                page.into_iter().filter(|one| filter.matches(one)).for_each(&mut see);
                if !is_full {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Redrives dead letters, one after each interval `spacing`. A process that runs the consumer tries its
    /// dead letters within a few seconds, up to [`REDRIVE_ATTEMPTS`] times; a relay tries those of its
    /// destination as if they had failed once. Later messages of their keys may have been delivered before
    /// them. Returns how many there still were. Dead letters that are redriven already stay as they are.
    ///
    /// Killed half-way, some are redriven; run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn redrive(&self, dead_letters: &[DeadLetterId], spacing: Duration) -> Result<u64, Error> {
        self.act_on(dead_letters, DeadLetterAction::Redrive, spacing).await
    }

    /// Deletes dead letters for good. Their messages never run: a consumer keeps its claim on them, a relay
    /// has passed them. Returns how many there still were.
    ///
    /// Killed half-way, some are deleted; run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn discard(&self, dead_letters: &[DeadLetterId]) -> Result<u64, Error> {
        self.act_on(dead_letters, DeadLetterAction::Discard, Duration::ZERO).await
    }

    async fn act_on(
        &self,
        dead_letters: &[DeadLetterId],
        action: DeadLetterAction,
        spacing: Duration,
    ) -> Result<u64, Error> {
        let (mut changed, mut delays) = (0, (0u32..).map(|n| spacing.saturating_mul(n)));
        for some in dead_letters.chunks(BATCH) {
            let mut tx = self.engine.begin().await?;
            for (dead_letter, delay) in some.iter().zip(&mut delays) {
                changed += u64::from(action.apply(&self.engine, &mut tx, dead_letter, delay).await?);
            }
            tx.commit().await?;
            crash::point("letters.after_change");
        }
        Ok(changed)
    }

    /// Adds messages to the dead letters of one consumer and redrives them at once. That consumer alone
    /// handles them, as it handles redriven dead letters. Leaves out messages that it has claimed, or that
    /// are among its dead letters. Returns how many were added.
    ///
    /// Killed half-way, some are added; run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn import_dead_letters(&self, consumer: &str, messages: &[Message]) -> Result<u64, Error> {
        let mut imported = 0;
        for some in messages.chunks(BATCH) {
            let mut tx = self.engine.begin().await?;
            for message in some {
                let id = message.message_id().as_uuid();
                let fingerprint = consumer_fingerprint(
                    consumer,
                    &message.event_type,
                    "imported",
                    "imported, not tried yet",
                );
                let import = query::<DB>(&self.engine.sql().dead_letters.import)
                    .bind(consumer.to_owned())
                    .bind(fingerprint)
                    .bind(i64::from(REDRIVE_ATTEMPTS));
                let import = bind_message(import, message)
                    .bind(stored_text(&message.id).into_owned())
                    .bind(consumer.to_owned())
                    .bind(id)
                    .bind(consumer.to_owned())
                    .bind(id);
                imported += DB::rows_affected(&import.execute(&mut *tx).await?);
            }
            tx.commit().await?;
            crash::point("letters.after_change");
        }
        Ok(imported)
    }

    /// Returns the message of a dead letter.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn dead_letter_message(&self, id: &DeadLetterId) -> Result<Message, Error> {
        let sql = self.engine.sql();
        let row = match id {
            DeadLetterId::OfConsumer(id) => {
                self.engine.fetch_optional(&sql.dead_letters.message, |query| query.bind(*id)).await?
            }
            DeadLetterId::OfDestination(destination, position) => {
                let find = &sql.parked_messages.dead_message;
                let bind = |query: Query<'static, DB>| query.bind(*position).bind(destination.clone());
                self.engine.fetch_optional(find, bind).await?
            }
        };
        let Some(row) = row else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no dead letter {id}")));
        };
        let sequence = match id {
            DeadLetterId::OfConsumer(_) => row.try_get("sequence")?,
            DeadLetterId::OfDestination(_, position) => Some(*position),
        };
        MessageColumns::of::<DB>(&row)?.read::<DB>(&row, self.engine.service(), sequence)
    }
}
