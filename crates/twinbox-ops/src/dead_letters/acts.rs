//! Listing, redriving and discarding dead letters.
use super::{
    filter::DeadLetterFilter,
    id::DeadLetterId,
    item::{DeadLetter, DeadLetterGroup},
};
use crate::Ops;
use sqlx::Row as _;
use std::{collections::BTreeMap, time::Duration};
use twinbox_core::{Message, MessageId, crash};
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{MessageColumns, Micros, TextColumns, bind_message, micros, query, small_count},
    inbox::REDRIVE_ATTEMPTS,
};
use uuid::Uuid;

/// Dead letters that one statement reads.
const PAGE: i64 = 1000;
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
        let sql = self.engine.sql();
        let (mut after, mut is_full) = (0i64, filter.destination.is_none());
        while is_full {
            let page = self.engine.fetch_all(&sql.dead_letters.page, |query| query.bind(after).bind(PAGE));
            let page = page.await?;
            is_full = page.len() as i64 == PAGE;
            for row in &page {
                after = row.try_get("id")?;
                let dead_letter = read::<DB>(row, DeadLetterId::OfConsumer(after), row.text("consumer")?)?;
                if filter.matches(&dead_letter) {
                    see(dead_letter);
                }
            }
        }
        let (mut destination, mut position) = (String::new(), 0i64);
        is_full = filter.consumer.is_none();
        while is_full {
            let after = (destination.clone(), position);
            let bind = |query: sqlx::query::Query<'static, DB, DB::Arguments>| {
                query.bind(after.0).bind(after.1).bind(PAGE)
            };
            let page = self.engine.fetch_all(&sql.parked_messages.dead_page, bind).await?;
            is_full = page.len() as i64 == PAGE;
            for row in &page {
                (destination, position) = (row.text("destination")?, row.try_get("position")?);
                let id = DeadLetterId::OfDestination(destination.clone(), position);
                let mut dead_letter = read::<DB>(row, id, destination.clone())?;
                if dead_letter.source.is_empty() {
                    self.engine.service().clone_into(&mut dead_letter.source);
                    dead_letter.message_id = MessageId::of(&dead_letter.source, &dead_letter.event_id);
                }
                if filter.matches(&dead_letter) {
                    see(dead_letter);
                }
            }
        }
        Ok(())
    }

    /// Returns dead letters grouped by their cause, the largest group first.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn dead_letter_groups(&self, filter: &DeadLetterFilter) -> Result<Vec<DeadLetterGroup>, Error> {
        let mut groups: BTreeMap<String, DeadLetterGroup> = BTreeMap::new();
        self.each_dead_letter(filter, |dead_letter| {
            let fingerprint = dead_letter.fingerprint();
            let group = groups.entry(fingerprint.clone()).or_insert_with(|| DeadLetterGroup {
                fingerprint,
                newest: dead_letter.clone(),
                dead_letters: 0,
                redriven: 0,
                first_given_up_at: dead_letter.given_up_at,
            });
            group.dead_letters += 1;
            group.redriven += u64::from(dead_letter.is_redriven);
            group.first_given_up_at = group.first_given_up_at.min(dead_letter.given_up_at);
            if dead_letter.given_up_at >= group.newest.given_up_at {
                group.newest = dead_letter;
            }
        })
        .await?;
        let mut groups = Vec::from_iter(groups.into_values());
        groups.sort_by(|a, b| {
            b.dead_letters.cmp(&a.dead_letters).then_with(|| a.fingerprint.cmp(&b.fingerprint))
        });
        Ok(groups)
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
        let sql = self.engine.sql();
        let delays = (0u32..).map(|n| micros(spacing.saturating_mul(n)));
        let delayed: Vec<_> = dead_letters.iter().zip(delays).collect();
        let mut redriven = 0;
        for some in delayed.chunks(BATCH) {
            let mut tx = self.engine.begin().await?;
            for (dead_letter, delay) in some {
                let redrive = match dead_letter {
                    DeadLetterId::OfConsumer(id) => query::<DB>(&sql.dead_letters.redrive)
                        .bind(*delay)
                        .bind(i64::from(REDRIVE_ATTEMPTS))
                        .bind(*id),
                    DeadLetterId::OfDestination(destination, position) => {
                        query::<DB>(&sql.parked_messages.redrive)
                            .bind(*delay)
                            .bind(destination.clone())
                            .bind(*position)
                    }
                };
                redriven += DB::rows_affected(&redrive.execute(&mut *tx).await?);
            }
            tx.commit().await?;
            crash::point("letters.after_change");
        }
        Ok(redriven)
    }

    /// Deletes dead letters for good. Their messages never run: a consumer keeps its claim on them, a relay
    /// has passed them. Returns how many there still were.
    ///
    /// Killed half-way, some are deleted; run it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn discard(&self, dead_letters: &[DeadLetterId]) -> Result<u64, Error> {
        let sql = self.engine.sql();
        let mut discarded = 0;
        for some in dead_letters.chunks(BATCH) {
            let mut tx = self.engine.begin().await?;
            for dead_letter in some {
                let discard = match dead_letter {
                    DeadLetterId::OfConsumer(id) => query::<DB>(&sql.dead_letters.delete).bind(*id),
                    DeadLetterId::OfDestination(destination, position) => {
                        let discard = query::<DB>(&sql.parked_messages.discard);
                        discard.bind(destination.clone()).bind(*position)
                    }
                };
                discarded += DB::rows_affected(&discard.execute(&mut *tx).await?);
            }
            tx.commit().await?;
            crash::point("letters.after_change");
        }
        Ok(discarded)
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
                let import = query::<DB>(&self.engine.sql().dead_letters.import)
                    .bind(consumer.to_owned())
                    .bind(i64::from(REDRIVE_ATTEMPTS));
                let import = bind_message(import, message)
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
                let bind = |query: sqlx::query::Query<'static, DB, DB::Arguments>| {
                    query.bind(*position).bind(destination.clone())
                };
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

/// Reads the columns that both pages have.
fn read<DB: Dialect>(row: &DB::Row, id: DeadLetterId, owner: String) -> Result<DeadLetter, Error> {
    let (source, event_id): (Option<String>, String) = (row.text_or_null("source")?, row.text("event_id")?);
    let source = source.unwrap_or_default();
    let message_id: Option<Uuid> = row.try_get("message_id")?;
    Ok(DeadLetter {
        id,
        owner,
        message_id: message_id.map_or_else(|| MessageId::of(&source, &event_id), MessageId::from_uuid),
        event_id,
        source,
        event_type: row.text("type")?,
        key: row.text_or_null("key")?,
        reason: row.text("reason")?,
        error: row.text("error")?,
        attempts: small_count(row.try_get("attempts")?),
        time: row.try_get::<Micros, _>("time")?.0,
        given_up_at: row.try_get::<Micros, _>("given_up_at")?.0,
        is_redriven: row.try_get("is_redriven")?,
    })
}
