//! Writing what is parked, and looking for what is due, in one transaction.
use super::{DUE_MAX, Owner, PARKED_MAX, Parked, RUNS_MAX, owner::Of};
use crate::{Dialect, Error, Store, micros::micros, run, sql::query, text::text};
use sqlx::Row as _;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use twinbox_core::{Draft, Message, crash, lanes::Ticket};

/// What is to be written of one message.
#[derive(Debug)]
pub(super) struct Change {
    /// What is settled once the change is committed.
    pub(super) ticket: Option<Ticket>,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// It was parked, and is done with.
    Done(i64),
    /// It is parked, anew or again.
    Park(Box<Row>),
}

#[derive(Debug)]
pub(super) struct Row {
    /// Its row, if it was parked before.
    pub(super) row: Option<i64>,
    /// Whole for a consumer. Shared, because what could not be written is written again.
    pub(super) message: Arc<Message>,
    pub(super) parked: Parked,
    pub(super) attempts: u32,
    pub(super) error: String,
    pub(super) announcement: Option<Draft>,
}

/// How much may be taken up, and what is taken up already.
#[derive(Debug)]
pub(super) struct Want {
    pub(super) taken: HashSet<i64>,
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Keys that others wait behind.
    pub(super) keys: Vec<String>,
    pub(super) waiting: usize,
    pub(super) is_blocking: bool,
    /// Rows, with their attempts.
    pub(super) due: Vec<(i64, u32, Box<Message>)>,
    /// Until more is due. None: nothing is, or not all that is was taken up.
    pub(super) next: Option<Duration>,
}

impl<DB: Dialect> Store<DB> {
    pub(super) async fn write_and_look(
        &self,
        owner: &Owner,
        changes: &[Change],
        want: Option<Want>,
    ) -> Result<Looked, Error> {
        if changes.is_empty() {
            let mut conn = self.connection().await?;
            let looked = self.look(&mut conn, owner, want).await?;
            conn.done().await?;
            return Ok(looked);
        }
        let mut tx = self.begin_with(DB::BEGIN_PARK).await?;
        owner.fence(self, tx.connection()).await?;
        let (mut done, mut rows) = (Vec::new(), Vec::new());
        for change in changes {
            match &change.what {
                What::Done(row) => done.push(*row),
                What::Park(row) => rows.push(&**row),
            }
        }
        for draft in rows.iter().filter_map(|row| row.announcement.clone()) {
            self.outbox().publish_draft(&mut tx, draft).await?;
        }
        if !rows.is_empty() {
            self.write_rows(tx.connection(), owner, &rows).await?;
        }
        if !done.is_empty() {
            let delete = owner.bind(query::<DB>(owner.statements(self).delete)).bind(numbers(&done));
            delete.execute(tx.connection()).await?;
        }
        let looked = self.look(tx.connection(), owner, want).await?;
        crash::point("log.before_park");
        tx.commit().await?;
        crash::point("log.after_park");
        Ok(looked)
    }

    async fn write_rows(&self, conn: &mut DB::Connection, owner: &Owner, rows: &[&Row]) -> Result<(), Error> {
        match owner {
            Owner::Cursor(cursor) => {
                let json = rows.iter().map(|row| {
                    serde_json::json!({
                        "position": position_of(&row.message),
                        "key": row.message.key,
                        "type": row.message.event_type,
                        "state": row.parked.state(),
                        "holds": row.parked != Parked::Dead,
                        "attempts": row.attempts,
                        "delay": micros(row.parked.delay()),
                        "error": text(&row.error),
                        "again": row.row.is_some(),
                    })
                });
                let json = serde_json::Value::from_iter(json).to_string();
                let park = query::<DB>(&self.statements().park).bind(cursor.destination.clone()).bind(json);
                let park = park.bind(cursor.destination.clone());
                park.execute(conn).await?;
            }
            Owner::Partition { consumer, fence } => {
                let new = rows.iter().filter(|row| row.row.is_none());
                let new = Vec::from_iter(new.map(|row| (&*row.message, row.parked.delay())));
                DB::park_deliveries(conn, self.statements(), consumer, fence.partition, &new).await?;
                for (row, delay) in rows.iter().filter_map(|row| Some((row.row?, row.parked.delay()))) {
                    let waits = query::<DB>(&self.statements().delivery_waits).bind(micros(delay));
                    owner.bind(waits).bind(row).execute(&mut *conn).await?;
                }
            }
        }
        Ok(())
    }

    /// Looks at the rows, and reads what is due and not taken up already. None: nothing is.
    async fn look(
        &self,
        conn: &mut DB::Connection,
        owner: &Owner,
        want: Option<Want>,
    ) -> Result<Looked, Error> {
        let of = owner.statements(self);
        let mut looked = Looked::default();
        // More than what stops the owner would say nothing else.
        let most = i64::try_from(PARKED_MAX).unwrap_or(i64::MAX);
        let count = owner.bind(owner.bind(owner.bind(query::<DB>(of.count)).bind(most)));
        let count = count.bind(owner.run()).fetch_one(&mut *conn).await?;
        // Another run may lack rows that others wait behind.
        if count.try_get::<Option<bool>, _>(3)? != Some(true) {
            return Err(run::lost());
        }
        looked.waiting = usize::try_from(count.try_get::<i64, _>(0)?).unwrap_or(usize::MAX);
        looked.is_blocking = count.try_get(2)?;
        if looked.waiting == 0 && !count.try_get::<bool, _>(1)? {
            return Ok(looked);
        }
        let heads = owner.bind(owner.bind(owner.bind(query::<DB>(of.heads)))).fetch_all(&mut *conn).await?;
        let mut due = Vec::new();
        let mut next = None::<i64>;
        for head in heads {
            let (key, row, left) = (
                head.try_get::<String, _>(0)?,
                head.try_get::<i64, _>(1)?,
                head.try_get::<Option<i64>, _>(2)?,
            );
            let is_taken = want.as_ref().is_none_or(|want| want.taken.contains(&row));
            match left.filter(|_| !is_taken) {
                Some(left) if left > 0 => next = Some(next.map_or(left, |next| next.min(left))),
                Some(left) => due.push((left, row, head.try_get::<i64, _>(3)?, key.clone())),
                None => {}
            }
            looked.keys.push(key);
        }
        let Some(want) = want else { return Ok(looked) };
        due.sort_unstable();
        let chosen = self.choose(conn, owner, &of, &want, due).await?;
        if chosen.len() < want.messages.min(DUE_MAX) {
            let keyless = owner.bind(query::<DB>(of.next_keyless)).fetch_optional(&mut *conn).await?;
            let left = keyless.map(|row| row.try_get::<i64, _>(0)).transpose()?.filter(|left| *left > 0);
            next = next.into_iter().chain(left).min();
        }
        looked.next = next.map(|left| Duration::from_micros(u64::try_from(left).unwrap_or(0)));
        looked.due = self.read_chosen(conn, owner, &of, &want, &chosen).await?;
        if looked.due.len() < chosen.len() {
            looked.next = Some(Duration::ZERO);
        }
        Ok(looked)
    }

    /// The rows that are to go, with their attempts: runs of some keys, the first of the others, and those without one.
    async fn choose(
        &self,
        conn: &mut DB::Connection,
        owner: &Owner,
        of: &Of<'_>,
        want: &Want,
        mut due: Vec<(i64, i64, i64, String)>,
    ) -> Result<Vec<(i64, i64)>, Error> {
        let most = want.messages.min(DUE_MAX);
        due.truncate(most);
        let run = (most / due.len().max(1)).max(1);
        let mut chosen = Vec::new();
        for (nth, (_, head, attempts, key)) in due.into_iter().enumerate() {
            chosen.push((head, attempts));
            if nth >= RUNS_MAX || run == 1 {
                continue;
            }
            let rows = owner.bind(query::<DB>(of.run)).bind(key).bind(head);
            let rows = rows.bind(i64::try_from(run).unwrap_or(i64::MAX)).fetch_all(&mut *conn).await?;
            for row in rows.iter().skip(1) {
                let (number, may_go) = (row.try_get::<i64, _>(0)?, row.try_get::<bool, _>(1)?);
                if !may_go || want.taken.contains(&number) {
                    break;
                }
                chosen.push((number, row.try_get(2)?));
            }
        }
        if chosen.len() < most {
            // Those taken up are among the first.
            let limit = most - chosen.len() + want.taken.len();
            let keyless = owner.bind(query::<DB>(of.keyless)).bind(i64::try_from(limit).unwrap_or(i64::MAX));
            for row in keyless.fetch_all(&mut *conn).await? {
                let (number, attempts) = (row.try_get(0)?, row.try_get(1)?);
                if !want.taken.contains(&number) && chosen.len() < most {
                    chosen.push((number, attempts));
                }
            }
        }
        Ok(chosen)
    }

    /// Reads as many of these messages as there is room for, and one at least.
    async fn read_chosen(
        &self,
        conn: &mut DB::Connection,
        owner: &Owner,
        of: &Of<'_>,
        want: &Want,
        chosen: &[(i64, i64)],
    ) -> Result<Vec<(i64, u32, Box<Message>)>, Error> {
        if chosen.is_empty() {
            return Ok(Vec::new());
        }
        let all = Vec::from_iter(chosen.iter().map(|(row, _)| *row));
        let sizes = owner.bind(query::<DB>(of.sizes)).bind(numbers(&all)).fetch_all(&mut *conn).await?;
        let mut size_of = HashMap::with_capacity(sizes.len());
        for size in sizes {
            size_of.insert(size.try_get::<i64, _>(0)?, size.try_get::<i64, _>(1)?);
        }
        let mut bytes = 0;
        let fits = |row: &&i64| {
            let fits = bytes < want.bytes;
            let size = size_of.get(*row).copied().unwrap_or(0);
            bytes = bytes.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
            fits
        };
        let some = Vec::from_iter(all.iter().take_while(fits).copied());
        let read = owner.bind_messages(query::<DB>(of.messages)).bind(numbers(&some));
        let mut messages = HashMap::with_capacity(some.len());
        for row in read.fetch_all(&mut *conn).await? {
            let (number, message) = owner.read(self, &row)?;
            messages.insert(number, message);
        }
        let attempts =
            chosen.iter().map(|(row, attempts)| (*row, u32::try_from(*attempts).unwrap_or(u32::MAX)));
        Ok(attempts.filter_map(|(row, attempts)| Some((row, attempts, messages.remove(&row)?))).collect())
    }
}

fn numbers(rows: &[i64]) -> String {
    serde_json::Value::from_iter(rows.iter().copied()).to_string()
}

/// Where a message is in the log.
pub(super) fn position_of(message: &Message) -> i64 {
    message.sequence.and_then(|n| i64::try_from(n).ok()).unwrap_or_default()
}
