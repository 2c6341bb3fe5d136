//! Blanking the payloads of a key.
use crate::Ops;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Error,
    engine::{Statement, query, scalar, text},
};

/// Rows that one transaction looks at.
const PAGE: u32 = 1000;
/// The headers of a blanked message.
const MARK: &str = r#"{"twinbox-redacted":"true"}"#;

/// The result of [`Ops::redact`](crate::Ops::redact): how many messages were blanked, by table. Messages that
/// were blank before are counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RedactReport {
    /// How many messages of the log were blanked.
    pub outbox: u64,
    /// How many delayed messages were blanked.
    pub delayed: u64,
    /// How many parked deliveries of consumers were blanked.
    pub parked_deliveries: u64,
    /// How many dead letters of consumers were blanked.
    pub dead_letters: u64,
}

impl<DB: Dialect> Ops<DB> {
    /// Blanks the payload of every message of a key: in the log, among the delayed messages and parked
    /// deliveries, and among the dead letters. Payload and headers are deleted, and with a dead letter its
    /// error text. The header [`twinbox-redacted`](twinbox_core::message::header::REDACTED) takes their
    /// place. Id, type, key, subject and times stay, so that order and sequence stay whole: have no personal
    /// data in them.
    ///
    /// Relays send such a message blank. A consumer acknowledges it without running its handler, without a
    /// dead letter, and without the alarm that its id had another payload before.
    ///
    /// **Out of reach:** copies in a broker; rows that a handler wrote to tables of its own, and data that it
    /// sent elsewhere; error texts of attempts at unsettled messages; the SHA-256 of a payload in the inbox;
    /// messages in the memory of a relay or a consumer; the WAL, free space of the database's files until it
    /// is vacuumed, replicas that lag, and backups. A message that is published, moved or dead-lettered
    /// meanwhile may escape: stop the publishers of the key, or run it again.
    ///
    /// Reads each table once, in transactions of 1,000 rows, so that nothing waits for it. Killed half-way,
    /// it has blanked some; run it again, which is safe at any time. Needs the rights that `GRANTS.md` names.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn redact(&self, key: &str) -> Result<RedactReport, Error> {
        let sql = &self.engine.sql().redaction;
        // In the order in which a message moves, so that none is missed.
        Ok(RedactReport {
            delayed: self.redact_table(key, &sql.delayed_page, &sql.delayed).await?,
            outbox: self.redact_table(key, &sql.log_page, &sql.log).await?,
            parked_deliveries: self.redact_table(key, &sql.deliveries_page, &sql.deliveries).await?,
            dead_letters: self.redact_table(key, &sql.dead_letters_page, &sql.dead_letters).await?,
        })
    }

    async fn redact_table(&self, key: &str, page: &Statement, redact: &Statement) -> Result<u64, Error> {
        let (mut blank, mut after) = (0, i64::MIN);
        loop {
            let mut tx = self.engine.begin().await?;
            let end = scalar::<DB, Option<i64>>(page).bind(after).bind(i64::from(PAGE));
            let Some(end) = end.fetch_one(&mut *tx).await? else {
                tx.rollback().await?;
                break;
            };
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
}
