//! The row that says how far a reader is, and who may say so.
use super::{Cursor, ReaderOptions, Start};
use crate::{
    Dialect, Error, ErrorKind, Store,
    micros::Micros,
    sql::{query, scalar},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::limits;
use uuid::Uuid;

/// An owned cursor.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) cursor: Cursor,
    pub(crate) epoch: i64,
    pub(crate) held: Option<String>,
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
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        // That of a replay was made with it, and is given up when it ends.
        if options.replay.is_none() {
            self.ensure_cursor(&mut conn, destination, options).await?;
        }
        let taken = query::<DB>(&self.statements().cursor_take)
            .bind(owner)
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
        Ok(Some(Owned { cursor, epoch: row.try_get(3)?, held: row.try_get(4)? }))
    }

    async fn ensure_cursor(
        &self,
        conn: &mut DB::Connection,
        destination: &str,
        options: &ReaderOptions,
    ) -> Result<(), Error> {
        let partitions = options.partitions.map(i64::from);
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
                return Ok(());
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
                let at = scalar::<DB, i64>(&statements.log_start_at).bind(Micros(time));
                at.fetch_one(&mut *conn).await?
            }
        };
        query::<DB>(&statements.cursor_create)
            .bind(destination.to_owned())
            .bind(start)
            .bind(start)
            .bind(partitions)
            .execute(conn)
            .await?;
        Ok(())
    }

    /// Writes the cursor and renews the lease. A replay is held with the destination that it is to.
    pub(crate) async fn advance_cursor(
        &self,
        destination: &str,
        lease: Duration,
        epoch: i64,
        from: Cursor,
        to: Cursor,
        replayed: Option<&str>,
    ) -> Result<Advanced, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let written = query::<DB>(&self.statements().cursor_advance)
            .bind(to.p)
            .bind(to.w)
            .bind(to.position)
            .bind(micros(lease))
            .bind(destination.to_owned())
            .bind(epoch)
            .bind(from.p)
            .bind(from.w)
            .bind(from.position)
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
    pub(crate) async fn release_cursor(&self, destination: &str, epoch: i64) -> Result<(), Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        query::<DB>(&self.statements().cursor_release)
            .bind(destination.to_owned())
            .bind(epoch)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
