//! Moving messages to the log when their time has come.
use crate::{Log, PAGE_BYTES};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::crash;
use twinbox_sql::{
    Dialect, Error,
    engine::{Micros, count, query},
};

/// The messages that are locked first.
const LOCKED_FIRST: i64 = 32;

/// The result of [`Log::move_due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoveReport {
    /// How many messages were moved to the log.
    pub messages: u64,
    /// The time until the next message is due, by the clock of the database: zero if one is due. None: no
    /// message waits.
    pub next_due: Option<Duration>,
}

impl<DB: Dialect> Log<DB> {
    /// Moves due messages to the log, at most `limit` of them, in the order of their times and in one
    /// transaction. It takes no further message after 4 MiB of payloads. While none is due it costs one look
    /// at an index.
    ///
    /// They keep id, key, headers, correlation and trace context. Their time is that of the move, unless the
    /// draft set one. Where another program has left one that the log does not take, it is that of the move
    /// too. Of several processes one moves at a time. A process that crashes has moved a message or not: run
    /// it again.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn move_due(&self, limit: u32) -> Result<MoveReport, Error> {
        let sql = &self.engine.sql().delayed;
        let next_due = self.next_due().await?;
        if next_due.is_none_or(|due| !due.is_zero()) {
            return Ok(MoveReport { messages: 0, next_due });
        }
        let mut tx = self.engine.begin_short().await?;
        let limit = i64::from(limit);
        let messages = if sql.lock_due.is_absent() {
            let move_due = query::<DB>(&sql.move_due).bind(limit).bind(PAGE_BYTES as i64);
            let moved = move_due.execute(&mut *tx).await?;
            crash::point("log.before_forget_moved");
            DB::rows_affected(&moved)
        } else {
            let due = self.lock_due(&mut tx, limit).await?;
            let numbers = format!("[{}]", due.join(","));
            DB::move_due(&mut tx, self.engine.catalog(), &numbers).await?;
            crash::point("log.before_forget_moved");
            query::<DB>(&sql.delete_moved).bind(numbers).execute(&mut *tx).await?;
            due.len() as u64
        };
        crash::point("log.before_move");
        tx.commit().await?;
        crash::point("log.after_move");
        Ok(MoveReport { messages, next_due: self.next_due().await? })
    }

    /// Locks due messages, and returns their numbers: at most `limit`, and none after 4 MiB. It begins with
    /// few, because MySQL reads a payload for its length.
    async fn lock_due(&self, conn: &mut DB::Connection, limit: i64) -> Result<Vec<String>, Error> {
        let mut few = LOCKED_FIRST.min(limit);
        loop {
            let rows =
                query::<DB>(&self.engine.sql().delayed.lock_due).bind(few).fetch_all(&mut *conn).await?;
            let (mut due, mut bytes) = (Vec::with_capacity(rows.len()), 0);
            for row in &rows {
                if bytes >= PAGE_BYTES as u64 {
                    break;
                }
                bytes += count(row.try_get("bytes")?);
                due.push(row.try_get::<i64, _>("insert_order")?.to_string());
            }
            if few == limit || i64::try_from(due.len()).is_ok_and(|found| found < few) {
                return Ok(due);
            }
            few = few.saturating_mul(4).min(limit);
        }
    }

    async fn next_due(&self) -> Result<Option<Duration>, Error> {
        let row = self.engine.fetch_optional(&self.engine.sql().delayed.next, |query| query).await?;
        let Some(row) = row else { return Ok(None) };
        let (due, now): (Micros, Micros) = (row.try_get("not_before")?, row.try_get("now")?);
        let micros = due.0.as_micros().saturating_sub(now.0.as_micros());
        Ok(Some(Duration::from_micros(count(micros))))
    }
}
