//! Things that stay undone for too long: effects, operations, readers of the log, messages of consumers.
use super::{
    findings::{Findings, Found},
    report::CheckReport,
    sweep::FINDINGS_MAX,
};
use sqlx::Row as _;
use std::time::Duration;
use twinbox_sql::{
    Dialect, Error,
    engine::{Engine, Query, Statement, TextColumns, count, hex, micros, query},
};
use uuid::Uuid;

/// The most messages that are counted as the backlog of a reader.
const BACKLOG_MAX: i64 = 1000;

/// As many as a run writes.
const LIMIT: i64 = FINDINGS_MAX as i64;

/// Finds what has not moved for a time.
pub(super) async fn check<DB: Dialect>(
    engine: &Engine<DB>,
    run_id: Uuid,
    age: Duration,
) -> Result<Vec<CheckReport>, Error> {
    let found = [
        ("overdue", overdue(engine, age).await?),
        ("unknown", stuck(engine, &engine.sql().drift.unknown, age).await?),
        ("failed", stuck(engine, &engine.sql().drift.failed, age).await?),
        ("unfinished", operations(engine, age).await?),
        ("backlog", readers(engine, age).await?),
        ("failing", messages(engine, age).await?),
    ];
    let mut reports = Vec::new();
    for (check, found) in found {
        let mut findings = Findings::new(engine, run_id, check, "", "");
        findings.examined(found.len());
        findings.write(&found).await?;
        findings.resolve_unseen().await?;
        reports.push(findings.report().await?);
    }
    Ok(reports)
}

/// Effects that are due and not sent.
async fn overdue<DB: Dialect>(engine: &Engine<DB>, age: Duration) -> Result<Vec<Found>, Error> {
    let (sql, mut found) = (&engine.sql().drift, Vec::new());
    for row in engine.fetch_all(&sql.due_vendors, |query| query.bind(LIMIT)).await? {
        let vendor: String = row.text("vendor")?;
        let due = |query: Query<'static, DB>| query.bind(vendor).bind(micros(age)).bind(LIMIT);
        found.extend(effects::<DB>(&engine.fetch_all(&sql.overdue, due).await?)?);
        if found.len() >= FINDINGS_MAX {
            break;
        }
    }
    Ok(found)
}

/// Effects of a state that waits for a person.
async fn stuck<DB: Dialect>(
    engine: &Engine<DB>,
    statement: &Statement,
    age: Duration,
) -> Result<Vec<Found>, Error> {
    let bind = |query: Query<'static, DB>| query.bind(micros(age)).bind(LIMIT);
    effects::<DB>(&engine.fetch_all(statement, bind).await?)
}

fn effects<DB: Dialect>(rows: &[DB::Row]) -> Result<Vec<Found>, Error> {
    let read = |row: &DB::Row| {
        let [kind, vendor, state] = ["kind", "vendor", "state"].map(|name| row.text(name));
        let detail = format!("{} for {}, {}", kind?, vendor?, state?);
        Ok(found(row.try_get::<i64, _>("position")?.to_string(), None, detail))
    };
    rows.iter().map(read).collect()
}

/// Requests that called a vendor, or may have, and that nobody continues.
async fn operations<DB: Dialect>(engine: &Engine<DB>, age: Duration) -> Result<Vec<Found>, Error> {
    let unfinished = &engine.sql().drift.unfinished;
    let age = micros(age);
    let rows = engine.fetch_all(unfinished, |query| query.bind(age).bind(age).bind(LIMIT)).await?;
    let read = |row: &DB::Row| {
        let slot = hex(&row.try_get::<Vec<u8>, _>("slot")?);
        Ok(found(slot, None, row.text("scope")?))
    };
    rows.iter().map(read).collect()
}

/// How long the oldest expired idempotency key has waited for its purge. Zero if none has expired.
pub(super) async fn oldest_expired<DB: Dialect>(engine: &Engine<DB>) -> Result<Duration, Error> {
    let row = engine.fetch_optional(&engine.sql().drift.first_expiry, |query| query).await?;
    let expires_in: Option<i64> = row.map(|row| row.try_get("expires_in")).transpose()?.flatten();
    Ok(Duration::from_micros(count(-expires_in.unwrap_or(0))))
}

/// Readers of the log whose oldest message waits too long.
async fn readers<DB: Dialect>(engine: &Engine<DB>, age: Duration) -> Result<Vec<Found>, Error> {
    let sql = engine.sql();
    let mut conn = engine.connection().await?;
    let mut behind = Vec::new();
    for row in query::<DB>(&sql.cursors.list).fetch_all(&mut *conn).await? {
        let name: String = row.text("destination")?;
        let backlog = query::<DB>(&sql.log.backlog).bind(name.clone()).bind(BACKLOG_MAX);
        let backlog = backlog.fetch_one(&mut *conn).await?;
        let oldest = Duration::from_micros(count(backlog.try_get("oldest_age")?));
        if oldest > age {
            let waits = oldest.as_secs() / 60;
            let detail = format!("its oldest message has waited for {waits} min");
            behind.push(found(name, Some(backlog.try_get("messages")?), detail));
        }
    }
    conn.done().await?;
    Ok(behind)
}

/// Messages that a consumer tries in vain.
async fn messages<DB: Dialect>(engine: &Engine<DB>, age: Duration) -> Result<Vec<Found>, Error> {
    let (failing, age) = (&engine.sql().drift.failing, micros(age));
    let rows = engine.fetch_all(failing, |query| query.bind(age).bind(LIMIT)).await?;
    let read = |row: &DB::Row| {
        let (consumer, message): (String, Uuid) = (row.text("consumer")?, row.try_get("message_id")?);
        let failures = row.try_get("failures")?;
        Ok(found(format!("{consumer} {message}"), Some(failures), "failed attempts of a handler".to_owned()))
    };
    rows.iter().map(read).collect()
}

fn found(object: String, actual: Option<i64>, detail: String) -> Found {
    Found { object, expected: None, actual, detail: Some(detail) }
}
