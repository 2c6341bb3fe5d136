//! Writing parked rows, and looking for due ones, in one transaction.
use super::{
    bounds::{DUE_MAX, PARKED_MAX, RUNS_MAX},
    owner::Owner,
    row::{Action, Change, Look, ParkedRow, Want},
    state::ParkedState,
};
use crate::task::in_time;
use sqlx::Row as _;
use std::{collections::HashMap, time::Duration};
use twinbox_core::{Message, crash};
use twinbox_sql::{
    Dialect, Error, ErrorKind, Outbox,
    dead_letters::destination_fingerprint,
    engine::{Engine, MessageColumns, TextColumns, micros, query, text},
};

/// How long it may take to publish the event of a dead letter.
const PUBLISH_MAX: Duration = Duration::from_secs(30);

/// Writes changes and looks at the rows, in one transaction behind the fence of the owner. Without changes it
/// only looks.
pub(super) async fn write_and_look<DB: Dialect>(
    engine: &Engine<DB>,
    owner: &Owner,
    changes: &[Change],
    want: Option<Want>,
) -> Result<Look, Error> {
    if changes.is_empty() {
        let mut conn = engine.connection().await?;
        let found = look(engine, &mut conn, owner, want).await?;
        conn.done().await?;
        return Ok(found);
    }
    let mut tx = engine.begin_short().await?;
    owner.fence(engine, &mut tx).await?;
    let (mut settled, mut rows) = (Vec::new(), Vec::new());
    for change in changes {
        match &change.action {
            Action::Delete(number) => settled.push(*number),
            Action::Park(row) => rows.push(&**row),
        }
    }
    for event in rows.iter().filter_map(|row| row.event.clone()) {
        match in_time(PUBLISH_MAX, Outbox::of(engine).publish_draft(&mut tx, event)).await {
            // Nothing was written. The message has to be parked all the same.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidDraft | ErrorKind::Codec) => {
                let cause = &error as &dyn std::error::Error;
                tracing::error!(error = cause, "the event of a dead letter cannot be published");
            }
            published => drop(published?),
        }
    }
    if !rows.is_empty() {
        write_rows(engine, &mut tx, owner, &rows).await?;
    }
    if !settled.is_empty() {
        let delete = owner.bind(query::<DB>(&owner.sql(engine).delete)).bind(numbers(&settled));
        delete.execute(&mut *tx).await?;
    }
    let found = look(engine, &mut tx, owner, want).await?;
    crash::point("log.before_park");
    tx.commit().await?;
    crash::point("log.after_park");
    Ok(found)
}

async fn write_rows<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    owner: &Owner,
    rows: &[&ParkedRow],
) -> Result<(), Error> {
    match owner {
        Owner::Cursor(cursor) => {
            let fingerprint = |row: &ParkedRow| {
                destination_fingerprint(&cursor.destination, &row.message.event_type, &row.error)
            };
            let json = rows.iter().map(|row| {
                serde_json::json!({
                    "position": position_of(&row.message),
                    "key": row.message.key,
                    "type": row.message.event_type,
                    "state": row.state.word(),
                    "blocks_key": row.state != ParkedState::Dead,
                    "attempts": row.attempts,
                    "delay": micros(row.state.delay()),
                    "error": text(&row.error),
                    "fingerprint": fingerprint(row),
                    "again": row.number.is_some(),
                })
            });
            let json = serde_json::Value::from_iter(json).to_string();
            let park =
                query::<DB>(&engine.sql().parked_messages.write).bind(cursor.destination.clone()).bind(json);
            let park = park.bind(cursor.destination.clone());
            park.execute(conn).await?;
        }
        Owner::Partition { consumer, fence } => {
            let new = rows.iter().filter(|row| row.number.is_none());
            let new = Vec::from_iter(new.map(|row| (&*row.message, row.state.delay())));
            DB::park_deliveries(conn, engine.catalog(), consumer, fence.partition, &new).await?;
            for (number, delay) in rows.iter().filter_map(|row| Some((row.number?, row.state.delay()))) {
                let postpone = query::<DB>(&engine.sql().deliveries.postpone).bind(micros(delay));
                owner.bind(postpone).bind(number).execute(&mut *conn).await?;
            }
        }
    }
    Ok(())
}

/// Looks at the rows, and reads those that are due and not taken up already.
async fn look<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    owner: &Owner,
    want: Option<Want>,
) -> Result<Look, Error> {
    let sql = owner.sql(engine);
    let mut found = Look::default();
    // Counting beyond the limit that stops the owner would change nothing.
    let most = i64::try_from(PARKED_MAX).unwrap_or(i64::MAX);
    let count = owner.bind(owner.bind(owner.bind(query::<DB>(&sql.counts)).bind(most)));
    let count = count.bind(owner.server_run()).fetch_one(&mut *conn).await?;
    // Another run may lack rows that later messages wait behind.
    if count.try_get::<Option<bool>, _>("is_server_run")? != Some(true) {
        return Err(Error::other_server_run());
    }
    found.waiting = usize::try_from(count.try_get::<i64, _>("waiting")?).unwrap_or(usize::MAX);
    found.is_blocking = count.try_get("any_blocks")?;
    if found.waiting == 0 && !count.try_get::<bool, _>("any_holds")? {
        return Ok(found);
    }
    let heads = owner.bind(owner.bind(owner.bind(query::<DB>(&sql.heads)))).fetch_all(&mut *conn).await?;
    let mut due = Vec::new();
    let mut next = None::<i64>;
    for head in heads {
        let key: String = head.text("key")?;
        let (row, left): (i64, Option<i64>) = (head.try_get("number")?, head.try_get("due_in")?);
        let is_taken = want.as_ref().is_none_or(|want| want.taken.contains(&row));
        match left.filter(|_| !is_taken) {
            Some(left) if left > 0 => next = Some(next.map_or(left, |next| next.min(left))),
            Some(left) => due.push((left, row, head.try_get::<i64, _>("attempts")?, key.clone())),
            None => {}
        }
        found.keys.push(key);
    }
    let Some(want) = want else { return Ok(found) };
    due.sort_unstable();
    let chosen = choose(engine, conn, owner, &want, due).await?;
    if chosen.len() < want.messages.min(DUE_MAX) {
        let keyless = owner.bind(query::<DB>(&sql.next_without_key)).fetch_optional(&mut *conn).await?;
        let left = keyless.map(|row| row.try_get::<i64, _>("due_in")).transpose()?;
        let left = left.filter(|left| *left > 0);
        next = next.into_iter().chain(left).min();
    }
    found.next = next.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or(0)));
    found.due = read_chosen(engine, conn, owner, &want, &chosen).await?;
    if found.due.len() < chosen.len() {
        found.next = Some(Duration::ZERO);
    }
    Ok(found)
}

/// Chooses rows to take up, with their attempts: runs of some keys, the first row of the others, and rows
/// without a key.
async fn choose<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    owner: &Owner,
    want: &Want,
    mut due: Vec<(i64, i64, i64, String)>,
) -> Result<Vec<(i64, i64)>, Error> {
    let (sql, most) = (owner.sql(engine), want.messages.min(DUE_MAX));
    due.truncate(most);
    let run = (most / due.len().max(1)).max(1);
    let mut chosen = Vec::new();
    for (nth, (_, head, attempts, key)) in due.into_iter().enumerate() {
        chosen.push((head, attempts));
        if nth >= RUNS_MAX || run == 1 {
            continue;
        }
        let rows = owner.bind(query::<DB>(&sql.run_of_key)).bind(key).bind(head);
        let rows = rows.bind(i64::try_from(run).unwrap_or(i64::MAX)).fetch_all(&mut *conn).await?;
        for row in rows.iter().skip(1) {
            let (number, is_due): (i64, bool) = (row.try_get("number")?, row.try_get("is_due")?);
            if !is_due || want.taken.contains(&number) {
                break;
            }
            chosen.push((number, row.try_get("attempts")?));
        }
    }
    if chosen.len() < most {
        // Rows that are taken up already are among the first.
        let limit = most - chosen.len() + want.taken.len();
        let keyless =
            owner.bind(query::<DB>(&sql.due_without_key)).bind(i64::try_from(limit).unwrap_or(i64::MAX));
        for row in keyless.fetch_all(&mut *conn).await? {
            let (number, attempts) = (row.try_get("number")?, row.try_get("attempts")?);
            if !want.taken.contains(&number) && chosen.len() < most {
                chosen.push((number, attempts));
            }
        }
    }
    Ok(chosen)
}

/// Reads as many of the chosen messages as there is room for, and one at least.
async fn read_chosen<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    owner: &Owner,
    want: &Want,
    chosen: &[(i64, i64)],
) -> Result<Vec<(i64, u32, Box<Message>)>, Error> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let sql = owner.sql(engine);
    let all = Vec::from_iter(chosen.iter().map(|(row, _)| *row));
    let sizes = owner.bind(query::<DB>(&sql.sizes)).bind(numbers(&all)).fetch_all(&mut *conn).await?;
    let mut size_of = HashMap::with_capacity(sizes.len());
    for size in sizes {
        size_of.insert(size.try_get::<i64, _>("number")?, size.try_get::<i64, _>("bytes")?);
    }
    let mut bytes = 0;
    let fits = |row: &&i64| {
        let fits = bytes < want.bytes;
        let size = size_of.get(*row).copied().unwrap_or(0);
        bytes = bytes.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
        fits
    };
    let some = Vec::from_iter(all.iter().take_while(fits).copied());
    let read = owner.bind_messages(query::<DB>(&sql.messages)).bind(numbers(&some));
    let mut messages = HashMap::with_capacity(some.len());
    let rows = read.fetch_all(&mut *conn).await?;
    let columns = rows.first().map(MessageColumns::of::<DB>).transpose()?;
    for (row, columns) in rows.iter().zip(columns.iter().cycle()) {
        let (number, message) = owner.read(engine, columns, row)?;
        messages.insert(number, message);
    }
    let attempts = chosen.iter().map(|(row, attempts)| (*row, u32::try_from(*attempts).unwrap_or(u32::MAX)));
    Ok(attempts.filter_map(|(row, attempts)| Some((row, attempts, messages.remove(&row)?))).collect())
}

fn numbers(rows: &[i64]) -> String {
    serde_json::Value::from_iter(rows.iter().copied()).to_string()
}

/// The position of a message in the log.
pub(super) fn position_of(message: &Message) -> i64 {
    message.sequence.and_then(|n| i64::try_from(n).ok()).unwrap_or_default()
}
