//! Taking, writing and releasing the cursor of a reader.
use crate::{
    cursor_error::{check_settings, new_on_a_log},
    options::{ReaderOptions, StartPosition},
    owned_cursor::{CursorWrite, OwnedCursor, Ownership},
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_core::{Timestamp, limits};
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{Cursor, Engine, Micros, Text, changed_row, micros, optional_text, query, scalar},
};
use uuid::Uuid;

/// Takes the lease of a cursor, after making the cursor if it does not exist. None: another process has the
/// lease.
pub(crate) async fn take<DB: Dialect>(
    engine: &Engine<DB>,
    destination: &str,
    owner: Uuid,
    options: &ReaderOptions,
) -> Result<Option<OwnedCursor>, Error> {
    if destination.is_empty() || destination.len() > limits::NAME_BYTES_MAX {
        return Err(Error::new(
            ErrorKind::Configuration,
            format!("the destination id {destination:?} must have 1 to {} bytes", limits::NAME_BYTES_MAX),
        ));
    }
    // The cursor of a replay was made with it, and is detached when it ends.
    if options.replay.is_none() {
        ensure(engine, destination, options).await?;
    }
    let _permit = engine.write_permit().await?;
    let mut conn = engine.connection().await?;
    let server_run = engine.server_run(&mut conn).await?;
    let taken = query::<DB>(&engine.sql().cursors.take)
        .bind(owner)
        .bind(micros(options.lease))
        .bind(micros(options.lease))
        .bind(options.address.clone())
        .bind(destination.to_owned())
        .bind(owner)
        .bind(owner)
        .execute(&mut *conn)
        .await?;
    if DB::rows_affected(&taken) == 0 {
        conn.done().await?;
        return Ok(None);
    }
    let row = query::<DB>(&engine.sql().cursors.read)
        .bind(destination.to_owned())
        .bind(owner)
        .fetch_one(&mut *conn)
        .await?;
    conn.done().await?;
    let recorded = Cursor { p: row.try_get("p")?, w: row.try_get("w")?, position: row.try_get("position")? };
    let (kept_p, kept_w) = (row.try_get("kept_p")?, row.try_get("kept_w")?);
    let mut start = recorded;
    if (kept_p, kept_w) != (recorded.p, recorded.w) {
        start = Cursor { p: kept_p, w: kept_p, position: 0 };
        tracing::warn!(
            destination,
            ?recorded,
            ?start,
            "a tick of the cursor is gone: settled messages come again"
        );
    }
    let ownership = Ownership { epoch: row.try_get("epoch")?, owner, server_run };
    let pause_reason = optional_text::<DB>(&row, "pause_reason")?;
    Ok(Some(OwnedCursor { recorded, start, ownership, pause_reason }))
}

/// Makes a cursor that does not exist, and checks one that does.
async fn ensure<DB: Dialect>(
    engine: &Engine<DB>,
    destination: &str,
    options: &ReaderOptions,
) -> Result<(), Error> {
    let partitions = options.partitions.map(i64::from);
    let permit = engine.write_permit().await?;
    let mut conn = engine.connection().await?;
    let found = query::<DB>(&engine.sql().cursors.settings)
        .bind(destination.to_owned())
        .fetch_optional(&mut *conn)
        .await?;
    if let Some(row) = found {
        check_settings::<DB>(&row, destination, partitions)?;
        return conn.done().await;
    }
    let start = match options.start {
        StartPosition::IfEmpty => {
            if query::<DB>(&engine.sql().log.any).fetch_optional(&mut *conn).await?.is_some() {
                return Err(new_on_a_log(destination));
            }
            0
        }
        StartPosition::Now => loop {
            if let Some(now) = DB::tick_now(&mut conn, engine.catalog()).await? {
                break now;
            }
        },
        StartPosition::Beginning | StartPosition::At(_) => {
            conn.done().await?;
            drop(permit);
            let time = if let StartPosition::At(time) = options.start { Some(time) } else { None };
            return create_in_the_past(engine, destination, time, partitions).await;
        }
    };
    query::<DB>(&engine.sql().cursors.create)
        .bind(destination.to_owned())
        .bind(start)
        .bind(start)
        .bind(partitions)
        .execute(&mut *conn)
        .await?;
    conn.done().await
}

/// Finds the tick of a time, or the first one, and makes a cursor that names it. Ticks are locked meanwhile:
/// a task that thins or purges them, or their messages, sees no cursor before the commit.
async fn create_in_the_past<DB: Dialect>(
    engine: &Engine<DB>,
    destination: &str,
    time: Option<Timestamp>,
    partitions: Option<i64>,
) -> Result<(), Error> {
    let sql = engine.sql();
    let mut tx = engine.begin_short().await?;
    if !sql.log.lock_ticks.is_absent() {
        query::<DB>(&sql.log.lock_ticks).execute(&mut *tx).await?;
    }
    let at = match time {
        Some(time) => {
            let at = scalar::<DB, i64>(&sql.log.tick_at).bind(Micros(time));
            at.fetch_one(&mut *tx).await?
        }
        None => 0,
    };
    query::<DB>(&sql.cursors.create)
        .bind(destination.to_owned())
        .bind(at)
        .bind(at)
        .bind(partitions)
        .execute(&mut *tx)
        .await?;
    tx.commit().await
}

/// The values that a renewal of the lease writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    pub(crate) from: Cursor,
    pub(crate) to: Cursor,
    /// The ticks of the window that the reader reads or searches, which it needs.
    pub(crate) ahead: (i64, i64),
    /// How many destinations this process owns.
    pub(crate) owned: i64,
}

/// Writes the cursor and renews the lease. `replayed`: the destination of a replay, which is paused with it.
pub(crate) async fn advance<DB: Dialect>(
    engine: &Engine<DB>,
    destination: &str,
    lease: Duration,
    ownership: Ownership,
    Renewal { from, to, ahead, owned }: Renewal,
    replayed: Option<&str>,
) -> Result<CursorWrite, Error> {
    let _permit = engine.write_permit().await?;
    let mut conn = engine.connection().await?;
    let advance = query::<DB>(&engine.sql().cursors.advance)
        .bind(to.p)
        .bind(to.w)
        .bind(to.position)
        .bind(ahead.0)
        .bind(ahead.1)
        .bind(owned)
        .bind(micros(lease))
        .bind(destination.to_owned())
        .bind(ownership.epoch)
        .bind(ownership.owner)
        .bind(from.p)
        .bind(from.w)
        .bind(from.position)
        .bind(ownership.server_run);
    let read = || query::<DB>(&engine.sql().cursors.asked).bind(destination.to_owned());
    let written = changed_row::<DB>(&mut conn, advance, read).await?;
    let mut of_destination = None;
    if let (Some(destination), Some(_)) = (replayed, &written) {
        let reason = scalar::<DB, Option<Text>>(&engine.sql().cursors.asked);
        let reason = reason.bind(destination.to_owned()).fetch_optional(&mut *conn).await?;
        of_destination = reason.flatten().map(|reason| reason.0);
    }
    conn.done().await?;
    Ok(match written {
        Some(row) => {
            let reason = optional_text::<DB>(&row, "pause_reason")?;
            let wisher_owned = row.try_get("wisher_owned")?;
            CursorWrite::Written { pause_reason: reason.or(of_destination), wisher_owned }
        }
        None => CursorWrite::Lost,
    })
}

/// Returns the lease, so that another process can take over at once.
pub(crate) async fn release<DB: Dialect>(
    engine: &Engine<DB>,
    destination: &str,
    ownership: Ownership,
) -> Result<(), Error> {
    let _permit = engine.write_permit().await?;
    let mut conn = engine.connection().await?;
    query::<DB>(&engine.sql().cursors.release)
        .bind(destination.to_owned())
        .bind(ownership.epoch)
        .bind(ownership.owner)
        .execute(&mut *conn)
        .await?;
    conn.done().await
}
