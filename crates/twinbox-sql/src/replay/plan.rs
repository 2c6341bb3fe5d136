//! What a replay would send, before anybody makes it.
use super::{
    Selection,
    selection::{Bound, bind},
    unsigned,
};
use crate::{
    Dialect, Error, ErrorKind, Store,
    log::Cursor,
    micros::Micros,
    sql::{query, render, rows},
};
use sqlx::{Row as _, SqlStr};
use twinbox_core::{Message, Timestamp};

/// Messages that a plan shows.
const SAMPLE: i64 = 5;

/// What is counted of each type.
const COUNTED: &str = "o.type, count(*), min(o.time), max(o.time), min(o.position), max(o.position)";
const BY_TYPE: &str = "GROUP BY o.type ORDER BY o.type";

/// What a replay would send.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReplayPlan {
    /// Where to.
    pub destination: String,
    /// Which messages.
    pub selection: Selection,
    /// How many there are. What the destination has put aside is not among them: it is redriven.
    pub selected: u64,
    /// Of each type, by name.
    pub types: Vec<TypeCount>,
    /// The first ones in the order of the log.
    pub sample: Vec<Sampled>,
    /// Consumers of this database that have forgotten messages as old as the oldest of these: what they may have handled
    /// they do not run, but put aside as `in_doubt`.
    pub forgotten: Vec<PurgeMark>,
    pub(super) bound: Cursor,
    /// Positions.
    pub(super) first: i64,
    pub(super) last: i64,
    /// What the dialect begins behind.
    pub(super) behind: i64,
}

/// How many messages of a type there are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeCount {
    /// The type.
    pub event_type: String,
    /// How many.
    pub messages: u64,
    /// The time of the oldest.
    pub oldest: Timestamp,
    /// The time of the newest.
    pub newest: Timestamp,
}

/// One of the messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sampled {
    /// Its place in the log.
    pub position: i64,
    /// Its event id.
    pub id: String,
    /// Its type.
    pub event_type: String,
    /// Its key.
    pub key: Option<String>,
    /// When it was made.
    pub time: Timestamp,
}

/// Up to when a consumer may have forgotten messages.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeMark {
    /// The consumer.
    pub consumer: String,
    /// The newest message whose claim was deleted.
    pub time: Timestamp,
}

impl ReplayPlan {
    /// The time of the oldest message.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.types.iter().map(|one| one.oldest).min()
    }

    /// The time of the newest message.
    pub fn newest(&self) -> Option<Timestamp> {
        self.types.iter().map(|one| one.newest).max()
    }
}

impl<DB: Dialect> Store<DB> {
    /// Counts what a replay of these messages to this destination would send, among what it has settled. For a consumer
    /// of the log the destination is `consumer:NAME`. Writes nothing.
    ///
    /// Reads the log once; on Postgres, with a `since`, only what is about as new.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: there is no such destination. The selection is too large, or nothing can be in it. The
    /// database refused or is away.
    pub async fn plan_replay(&self, destination: &str, selection: &Selection) -> Result<ReplayPlan, Error> {
        selection.check()?;
        let mut conn = self.connection().await?;
        let bound = self.settled_by(&mut conn, destination).await?;
        let mut plan = ReplayPlan {
            destination: destination.to_owned(),
            selection: selection.clone(),
            selected: 0,
            types: Vec::new(),
            sample: Vec::new(),
            forgotten: Vec::new(),
            bound,
            first: i64::MAX,
            last: 0,
            behind: i64::MAX,
        };
        let [_, _, behind, _] = DB::SETTLED;
        let counted = format!("{COUNTED}, {behind}");
        for row in self.select(&mut conn, &plan, &counted, Vec::new(), BY_TYPE).await? {
            let event_type: String = row.try_get(0)?;
            if !selection.takes(&event_type) {
                continue;
            }
            let (oldest, newest): (Micros, Micros) = (row.try_get(2)?, row.try_get(3)?);
            let messages = unsigned(row.try_get(1)?);
            plan.selected += messages;
            plan.types.push(TypeCount { event_type, messages, oldest: oldest.0, newest: newest.0 });
            plan.first = plan.first.min(row.try_get(4)?);
            plan.last = plan.last.max(row.try_get(5)?);
            plan.behind = plan.behind.min(row.try_get(6)?);
        }
        if plan.selected > 0 {
            plan.sample = self.sample(&mut conn, &plan).await?;
            plan.forgotten = self.forgotten_since(&mut conn, plan.oldest()).await?;
        }
        conn.done().await?;
        Ok(plan)
    }

    /// Consumers of this database that may have forgotten a message of this time.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_marks_since(&self, oldest: Timestamp) -> Result<Vec<PurgeMark>, Error> {
        let mut conn = self.connection().await?;
        let marks = self.forgotten_since(&mut conn, Some(oldest)).await?;
        conn.done().await?;
        Ok(marks)
    }

    async fn forgotten_since(
        &self,
        conn: &mut DB::Connection,
        oldest: Option<Timestamp>,
    ) -> Result<Vec<PurgeMark>, Error> {
        let Some(oldest) = oldest else { return Ok(Vec::new()) };
        let marks = rows::<DB, (String, Micros)>(&self.statements().purge_marks_since).bind(Micros(oldest));
        let marks = marks.fetch_all(conn).await?.into_iter();
        Ok(marks.map(|(consumer, time)| PurgeMark { consumer, time: time.0 }).collect())
    }

    async fn settled_by(&self, conn: &mut DB::Connection, destination: &str) -> Result<Cursor, Error> {
        let bound = query::<DB>(&self.statements().replay_bound).bind(destination.to_owned());
        let Some(row) = bound.fetch_optional(conn).await? else {
            return Err(self.unknown_destination(destination));
        };
        if row.try_get(3)? {
            let what = format!("destination {destination:?} is detached: retire it, and start it again");
            return Err(Error::new(ErrorKind::Detached, what));
        }
        Ok(Cursor { p: row.try_get(0)?, w: row.try_get(1)?, position: row.try_get(2)? })
    }

    async fn sample(&self, conn: &mut DB::Connection, plan: &ReplayPlan) -> Result<Vec<Sampled>, Error> {
        let rows = self.planned(conn, plan, "o.position, o.id, o.type, o.key, o.time", 0, SAMPLE).await?;
        let read = |row: DB::Row| {
            Ok(Sampled {
                position: row.try_get(0)?,
                id: row.try_get(1)?,
                event_type: row.try_get(2)?,
                key: row.try_get(3)?,
                time: row.try_get::<Micros, _>(4)?.0,
            })
        };
        rows.into_iter().map(read).collect()
    }

    /// The messages of a plan behind a place in the log, as a replay would send them but for its marks, in the order of the
    /// log: those that were selected and are still there, and what was settled between them since.
    ///
    /// # Errors
    /// As [`plan_replay`](Self::plan_replay).
    pub async fn planned_messages(
        &self,
        plan: &ReplayPlan,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Message>, Error> {
        let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
        let mut conn = self.connection().await?;
        // Ticks that nobody stands at do not stay.
        let bound = self.settled_by(&mut conn, &plan.destination).await?;
        let plan = ReplayPlan { bound, ..plan.clone() };
        let rows = self.planned(&mut conn, &plan, "o.position, {message}", after, i64::from(limit)).await?;
        conn.done().await?;
        rows.iter().map(|row| crate::row::of_log::<DB>(row, 1, self.service(), row.try_get(0)?)).collect()
    }

    /// In the order of the log, what lies behind a position.
    async fn planned(
        &self,
        conn: &mut DB::Connection,
        plan: &ReplayPlan,
        what: &str,
        after: i64,
        limit: i64,
    ) -> Result<Vec<DB::Row>, Error> {
        if plan.types.is_empty() {
            return Ok(Vec::new());
        }
        let types = plan.types.iter().map(|one| Bound::Text(one.event_type.clone())).collect::<Vec<_>>();
        let first = plan.first.max(after.saturating_add(1));
        let more = vec![
            (format!("o.type IN ({})", vec!["?"; types.len()].join(", ")), types),
            (format!("o.position >= {first} AND o.position <= {}", plan.last), Vec::new()),
        ];
        self.select(conn, plan, what, more, &format!("ORDER BY o.position LIMIT {limit}")).await
    }

    /// What was asked of the messages that are selected, but for their types.
    async fn select(
        &self,
        conn: &mut DB::Connection,
        plan: &ReplayPlan,
        what: &str,
        more: Vec<(String, Vec<Bound>)>,
        end: &str,
    ) -> Result<Vec<DB::Row>, Error> {
        let mut conditions = plan.selection.conditions(self.service());
        conditions.extend(more);
        let query = sqlx::query(self.selecting(&conditions, what, end)).persistent(false);
        let Cursor { p, w, position } = plan.bound;
        let query = query.bind(p).bind(w).bind(position).bind(plan.destination.clone());
        let bounds = conditions.into_iter().flat_map(|(_, bounds)| bounds);
        Ok(bind::<DB>(query, bounds).fetch_all(conn).await?)
    }

    /// All text is ours; what somebody typed is bound.
    fn selecting(&self, conditions: &[(String, Vec<Bound>)], what: &str, end: &str) -> SqlStr {
        let [begin, settled, ..] = DB::SETTLED;
        let texts = conditions.iter().map(|(text, _)| format!(" AND {text}")).collect::<String>();
        let text = format!(
            "{begin}SELECT {what} FROM {{outbox}} o, s WHERE {settled} AND NOT EXISTS ( \
                SELECT 1 FROM {{parked}} k WHERE k.destination = ? AND k.position = o.position){texts} {end}"
        );
        render::<DB>(&self.statements().namespace, &text)
    }

    /// What counts the messages of a selection by type. Binds: p, w, position, destination, and what the selection says.
    #[doc(hidden)]
    pub fn counting(&self, selection: &Selection) -> String {
        let [_, _, behind, _] = DB::SETTLED;
        let what = format!("{COUNTED}, {behind}");
        self.selecting(&selection.conditions(self.service()), &what, BY_TYPE).as_str().to_owned()
    }
}
