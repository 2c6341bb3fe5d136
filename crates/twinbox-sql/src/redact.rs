//! Forgetting what messages said.
use crate::{
    Dialect, Error, Store,
    sql::{Statement, query},
    text::text,
};
use sqlx::Row as _;
use twinbox_core::{Message, crash};

/// Rows that one transaction looks at.
const PAGE: u32 = 1000;
/// The headers of a message whose payload is blank.
const MARK: &str = r#"{"twinbox-redacted":"true"}"#;

/// What [`Store::redact`] found. All of it is blank now; what was before is counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redacted {
    /// Messages of the log.
    pub outbox: u64,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Deliveries that consumers have put aside.
    pub parked_deliveries: u64,
    /// Dead letters, of every consumer in this database.
    pub dead_letters: u64,
}

impl<DB: Dialect> Store<DB> {
    /// Blanks every message of a key: in the log, among those that wait for their time, and among the dead letters.
    /// Payload and headers go, and with a dead letter its error text. A header
    /// [`twinbox-redacted`](twinbox_core::message::header::REDACTED) is left in their place. Id, type, key, subject
    /// and times stay, so that order and sequence stay whole: have no personal data in them.
    ///
    /// Relays send such a message as it is, blank. A consumer acknowledges it without running its handler, without a
    /// dead letter, and without the alarm that its id had another payload before.
    ///
    /// **Out of reach:** copies in a broker; what a handler wrote to tables of its own or sent elsewhere; error texts
    /// of attempts at messages that are not done with; the SHA-256 of a payload in the inbox; what a relay or a consumer has read and holds in memory; the
    /// WAL, free space of the database's files until it is vacuumed, replicas that lag, and backups. A message
    /// that is published, moved or buried meanwhile may escape: have the key's publishers stopped, or run it again.
    ///
    /// Reads each table once, in transactions of 1,000 rows, so that nobody waits for it. Killed half-way, it has
    /// blanked some; run it again, which is safe at any time. Needs the rights that `GRANTS.md` names.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn redact(&self, key: &str) -> Result<Redacted, Error> {
        let s = self.statements();
        // In the order in which a message goes through them.
        Ok(Redacted {
            delayed: self.redact_table(key, &s.redact_delayed_page, &s.redact_delayed).await?,
            outbox: self.redact_table(key, &s.redact_log_page, &s.redact_log).await?,
            parked_deliveries: self.redact_table(key, &s.redact_parked_page, &s.redact_parked).await?,
            dead_letters: self.redact_table(key, &s.redact_letters_page, &s.redact_letters).await?,
        })
    }

    async fn redact_table(&self, key: &str, page: &Statement, redact: &Statement) -> Result<u64, Error> {
        let (mut blank, mut after) = (0, i64::MIN);
        loop {
            let mut tx = self.begin().await?;
            let end = query::<DB>(page).bind(after).bind(i64::from(PAGE)).fetch_one(&mut *tx).await?;
            let Some(end) = end.try_get::<Option<i64>, _>(0)? else { break };
            let redact = query::<DB>(redact)
                .bind(Vec::<u8>::new())
                .bind(MARK.to_owned())
                .bind(text(key).into_owned())
                .bind(after)
                .bind(end);
            blank += DB::rows_affected(&redact.execute(&mut *tx).await?);
            tx.commit().await?;
            crash::point("redact.after_page");
            after = end;
        }
        Ok(blank)
    }

    /// Forgets the failures of a message that no handler will get. Nothing to forget is no error.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn forget(&self, consumer: &str, message: &Message) -> Result<(), Error> {
        let mut tx = self.begin().await?;
        query::<DB>(&self.statements().forget_failures)
            .bind(consumer.to_owned())
            .bind(message.message_id().as_uuid())
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }
}
