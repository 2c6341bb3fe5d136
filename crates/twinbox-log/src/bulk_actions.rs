//! Carrying out the acts of operators on many dead letters.
use sqlx::Row as _;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use twinbox_core::{Timestamp, crash, retry};
use twinbox_sql::{
    Dialect, Error, ErrorKind, Store,
    dead_letters::{BulkAction, BulkActionState, DeadLetterOwner, Place, page_after},
    engine::{Engine, Micros, bounded, micros, query, scalar},
};
use uuid::Uuid;

/// The shortest time between two looks for an action.
const POLL: Duration = Duration::from_secs(2);
/// After how long another process goes on with the action of one that died.
const LEASE: Duration = Duration::from_secs(15);
/// How long an action that this version does not know is left to a newer one. In a rollout both run.
const NEWER_VERSION_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Dead letters that one transaction looks at.
const PAGE: u32 = 200;

/// Carries out the [bulk actions](BulkAction) of a store until `stop` is cancelled.
///
/// Relay and consumer run one. Any number may run on one database: a lease decides which process works on an
/// action. Each transaction changes up to 200 dead letters and records how far the action is, so a process
/// that dies half-way leaves nothing to repeat, and another goes on after 15 s. An action that cannot be read
/// ends as failed; one that a newer version may have made is left to that version for a day first. It waits
/// out outages of the database. In one process a store is looked at once, however many relays and consumers
/// use it.
///
/// `poll`: the time between two looks, at least two seconds.
pub async fn run_bulk_actions<DB: Dialect>(store: Store<DB>, poll: Duration, stop: CancellationToken) {
    let (engine, poll) = (store.engine(), poll.max(POLL));
    let (owner, turns) = (Uuid::now_v7(), engine.state::<Turns>());
    loop {
        // Spread over time, because processes often start together.
        let pause = poll.mul_f64(0.5 + retry::random() / 2.0);
        if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        let Some(_turn) = turns.take() else { continue };
        match stop.run_until_cancelled(work(engine, owner)).await {
            None => return,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(error = cause, "bulk actions of operators could not be looked at");
            }
        }
    }
}

/// Which task of this process looks at the actions of a store.
#[derive(Debug, Default)]
struct Turns(Arc<Mutex<Look>>);

#[derive(Debug, Default)]
struct Look {
    is_under_way: bool,
    ended_at: Option<Instant>,
}

/// Until it is dropped, no other task looks.
struct Turn(Arc<Mutex<Look>>);

impl Turns {
    fn take(&self) -> Option<Turn> {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = look.ended_at.is_some_and(|at| at.elapsed() < POLL / 2);
        if look.is_under_way || is_early {
            return None;
        }
        look.is_under_way = true;
        Some(Turn(self.0.clone()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut look = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *look = Look { is_under_way: false, ended_at: Some(Instant::now()) };
    }
}

/// Works on actions until nothing is left to do. One that fails keeps no other.
async fn work<DB: Dialect>(engine: &Engine<DB>, owner: Uuid) -> Result<(), Error> {
    let (next, mut after) = (&engine.sql().bulk_actions.next, 0i64);
    while let Some(row) = engine.fetch_optional(next, |query| query.bind(after).bind(owner)).await? {
        let id = row.try_get("id")?;
        if let Err(error) = step(engine, owner, id).await {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(action = id, error = cause, "a bulk action of an operator could not go on");
            after = id;
        }
    }
    Ok(())
}

/// Does a part of an action in one transaction.
async fn step<DB: Dialect>(engine: &Engine<DB>, owner: Uuid, id: i64) -> Result<(), Error> {
    let sql = &engine.sql().bulk_actions;
    let mut tx = engine.begin_short().await?;
    let take = query::<DB>(&sql.take).bind(owner).bind(micros(LEASE)).bind(id).bind(owner);
    if DB::rows_affected(&take.execute(&mut *tx).await?) == 0 {
        // Another process has taken it, or an operator has cancelled it.
        return tx.rollback().await;
    }
    // Read behind the lock of the row.
    let row = query::<DB>(&sql.find).bind(id).fetch_one(&mut *tx).await?;
    let has_ended = match read::<DB>(&row) {
        Ok((action, owner)) => {
            let is_done = change_page(engine, &mut tx, &action, &owner).await?;
            if is_done {
                let finish = query::<DB>(&sql.finish).bind(BulkActionState::Done.as_str().to_owned());
                finish.bind(id).execute(&mut *tx).await?;
            }
            is_done
        }
        Err(error) => {
            let made_at = row.try_get::<Micros, _>("made_at")?.0;
            if error.kind() == ErrorKind::Schema && is_recent(engine, &mut tx, made_at).await? {
                // Without a lease on it, so that a newer process can take it at once.
                tx.rollback().await?;
                return Err(error);
            }
            tracing::error!(
                action = id,
                error = &error as &dyn std::error::Error,
                "a bulk action of an operator has failed"
            );
            let fail = query::<DB>(&sql.fail).bind(bounded(&error.to_string())).bind(id);
            fail.execute(&mut *tx).await?;
            true
        }
    };
    if has_ended {
        let audit_id: i64 = row.try_get("audit_id")?;
        query::<DB>(&sql.end_audit).bind(id).bind(audit_id).execute(&mut *tx).await?;
    }
    crash::point("bulk.before_commit");
    tx.commit().await?;
    crash::point("bulk.after_commit");
    Ok(())
}

/// Reads an action, with the consumer or the destination that it is for.
fn read<DB: Dialect>(row: &DB::Row) -> Result<(BulkAction, DeadLetterOwner), Error> {
    let action = BulkAction::read::<DB>(row)?;
    let owner = action.filter.owner().ok_or_else(|| {
        let what = "the filter of a bulk action names no consumer and no destination, or both";
        Error::new(ErrorKind::Configuration, what)
    })?;
    Ok((action, owner))
}

/// Whether a newer version may still carry out an action, by the clock of the database. A time far ahead is
/// that of no version.
async fn is_recent<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    made_at: Timestamp,
) -> Result<bool, Error> {
    let now = scalar::<DB, Micros>(&engine.sql().setup.now).fetch_one(&mut *conn).await?.0;
    let since = Duration::from_micros(now.as_micros().abs_diff(made_at.as_micros()));
    Ok(since < NEWER_VERSION_WAIT)
}

/// Changes the next dead letters. Returns whether they were the last.
async fn change_page<DB: Dialect>(
    engine: &Engine<DB>,
    conn: &mut DB::Connection,
    action: &BulkAction,
    owner: &DeadLetterOwner,
) -> Result<bool, Error> {
    let (group, up_to) = (action.filter.group(), action.made_at);
    let page = page_after(engine, conn, owner, group, action.after, up_to, PAGE).await?;
    let mut changed = 0u32;
    for dead_letter in page.iter().filter(|one| action.filter.matches(one)) {
        let nth = u32::try_from(action.changed).unwrap_or(u32::MAX).saturating_add(changed);
        let delay = action.spacing.saturating_mul(nth);
        changed += u32::from(action.action.apply(engine, conn, &dead_letter.id, delay).await?);
    }
    let place = page.last().map_or(action.after, Place::of);
    query::<DB>(&engine.sql().bulk_actions.advance)
        .bind(Micros(place.time))
        .bind(place.number)
        .bind(i64::try_from(page.len()).unwrap_or(i64::MAX))
        .bind(i64::from(changed))
        .bind(action.id)
        .execute(conn)
        .await?;
    Ok(page.len() < PAGE as usize)
}
