//! The row that says how far a reader is, and who may say so.
use super::{Cursor, ReaderOptions, Start};
use crate::{
    Dialect, Error, ErrorKind, Store,
    micros::{Micros, micros},
    sql::{query, scalar, tables},
};
use sqlx::{AssertSqlSafe, Row as _};
use std::time::Duration;
use twinbox_core::{Timestamp, limits};
use uuid::Uuid;

/// An owned cursor.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) cursor: Cursor,
    pub(crate) ownership: Ownership,
    pub(crate) held: Option<String>,
}

/// What an owner knows its cursor by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// Grows with each takeover.
    pub(crate) epoch: i64,
    /// Epochs begin anew when a destination is retired and made again.
    pub(crate) owner: Uuid,
    /// The run of the server in which it was taken: what was read in another may be forgotten.
    pub(crate) run: i64,
}

/// What became of a write of the cursor.
#[derive(Debug)]
pub(crate) enum Advanced {
    /// It is written, and somebody may hold the destination back.
    Ours { held: Option<String> },
    /// The cursor is another's.
    Lost,
}

impl<DB: Dialect> Store<DB> {
    /// Takes the lease of a cursor, after making it if it does not exist. None: another process has it.
    pub(crate) async fn take_cursor(
        &self,
        destination: &str,
        owner: Uuid,
        options: &ReaderOptions,
    ) -> Result<Option<Owned>, Error> {
        if destination.is_empty() || destination.len() > limits::NAME_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!("the destination id {destination:?} must have 1 to {} bytes", limits::NAME_BYTES_MAX),
            ));
        }
        // That of a replay was made with it, and is given up when it ends.
        if options.replay.is_none() {
            self.ensure_cursor(destination, options).await?;
        }
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let run = self.run(&mut conn).await?;
        let taken = query::<DB>(&self.statements().cursor_take)
            .bind(owner)
            .bind(micros(options.lease))
            .bind(micros(options.lease))
            .bind(destination.to_owned())
            .bind(owner)
            .execute(&mut *conn)
            .await?;
        if DB::rows_affected(&taken) == 0 {
            conn.done().await?;
            return Ok(None);
        }
        let row = query::<DB>(&self.statements().cursor_read)
            .bind(destination.to_owned())
            .bind(owner)
            .fetch_one(&mut *conn)
            .await?;
        conn.done().await?;
        let cursor = Cursor { p: row.try_get(0)?, w: row.try_get(1)?, position: row.try_get(2)? };
        let ownership = Ownership { epoch: row.try_get(3)?, owner, run };
        Ok(Some(Owned { cursor, ownership, held: row.try_get(4)? }))
    }

    async fn ensure_cursor(&self, destination: &str, options: &ReaderOptions) -> Result<(), Error> {
        let partitions = options.partitions.map(i64::from);
        let permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let found = query::<DB>(&self.statements().cursor_exists)
            .bind(destination.to_owned())
            .fetch_optional(&mut *conn)
            .await?;
        if let Some(row) = found {
            if row.try_get(1)? {
                return Err(Error::new(
                    ErrorKind::Detached,
                    format!(
                        "destination {destination:?} was detached: it was so far behind that messages which it had \
                         not settled may be gone. Retire it (`twinbox-relay retire {destination}`), start it again \
                         at the beginning of what the log still has, now, or at a time, and backfill what is gone"
                    ),
                ));
            }
            let kept: Option<i64> = row.try_get(0)?;
            if kept == partitions {
                return conn.done().await;
            }
            return Err(Error::new(
                ErrorKind::Configuration,
                format!(
                    "destination {destination:?} spreads its keys over {} partitions and is asked for {}: that \
                     would break the order of keys. Drain it, stop every consumer that reads it in order, and \
                     start a destination with another id and another subject prefix",
                    kept.map_or("no".to_owned(), |n| n.to_string()),
                    partitions.map_or("none".to_owned(), |n| n.to_string()),
                ),
            ));
        }
        let statements = self.statements();
        let start = match options.start {
            Start::Beginning => 0,
            Start::IfEmpty => {
                if query::<DB>(&statements.log_any).fetch_optional(&mut *conn).await?.is_some() {
                    return Err(Error::new(
                        ErrorKind::Configuration,
                        format!(
                            "destination {destination:?} is new, and the log has messages: say where it starts, \
                             at the beginning, now, or at a time. If it is an old one with a new name, give it \
                             its old name back"
                        ),
                    ));
                }
                0
            }
            Start::Now => loop {
                let now = scalar::<DB, i64>(&statements.log_start_now);
                if let Some(now) = now.fetch_optional(&mut *conn).await? {
                    break now;
                }
            },
            Start::At(time) => {
                conn.done().await?;
                drop(permit);
                return self.create_cursor_at(destination, time, partitions).await;
            }
        };
        query::<DB>(&statements.cursor_create)
            .bind(destination.to_owned())
            .bind(start)
            .bind(start)
            .bind(partitions)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// Finds the tick of a time and makes a cursor that names it. Ticks are kept meanwhile, for whoever thins or purges
    /// them sees no cursor before the commit.
    async fn create_cursor_at(
        &self,
        destination: &str,
        time: Timestamp,
        partitions: Option<i64>,
    ) -> Result<(), Error> {
        let statements = self.statements();
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        self.keep_ticks(tx.connection()).await?;
        let at = scalar::<DB, i64>(&statements.log_start_at).bind(Micros(time));
        let at = at.fetch_one(&mut *tx).await?;
        query::<DB>(&statements.cursor_create)
            .bind(destination.to_owned())
            .bind(at)
            .bind(at)
            .bind(partitions)
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }

    /// Keeps ticks from being thinned and purged until the transaction ends.
    pub(crate) async fn keep_ticks(&self, conn: &mut DB::Connection) -> Result<(), Error> {
        if let Some(lock) = DB::KEEP_TICKS {
            let lock = AssertSqlSafe(tables::<DB>(&self.statements().namespace, lock));
            sqlx::raw_sql(lock).execute(conn).await?;
        }
        Ok(())
    }

    /// Writes the cursor and renews the lease. `ahead`: the ticks that the reader reads between, which it needs. A
    /// replay is held with the destination that it is to.
    pub(crate) async fn advance_cursor(
        &self,
        destination: &str,
        lease: Duration,
        ownership: Ownership,
        (from, to): (Cursor, Cursor),
        ahead: (i64, i64),
        replayed: Option<&str>,
    ) -> Result<Advanced, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let written = query::<DB>(&self.statements().cursor_advance)
            .bind(to.p)
            .bind(to.w)
            .bind(to.position)
            .bind(ahead.0)
            .bind(ahead.1)
            .bind(micros(lease))
            .bind(destination.to_owned())
            .bind(ownership.epoch)
            .bind(ownership.owner)
            .bind(from.p)
            .bind(from.w)
            .bind(from.position)
            .bind(ownership.run)
            .fetch_optional(&mut *conn)
            .await?;
        let mut held = None;
        if let (Some(destination), Some(_)) = (replayed, &written) {
            let of =
                scalar::<DB, Option<String>>(&self.statements().replay_held).bind(destination.to_owned());
            held = of.fetch_optional(&mut *conn).await?.flatten();
        }
        conn.done().await?;
        Ok(match written {
            Some(row) => Advanced::Ours { held: row.try_get::<Option<String>, _>(0)?.or(held) },
            None => Advanced::Lost,
        })
    }

    /// Ends the lease, so that another process can take over at once.
    pub(crate) async fn release_cursor(&self, destination: &str, ownership: Ownership) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().cursor_release)
            .bind(destination.to_owned())
            .bind(ownership.epoch)
            .bind(ownership.owner)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }
}
