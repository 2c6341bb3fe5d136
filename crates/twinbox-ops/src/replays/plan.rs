//! The plan of a replay: the messages that it would send.
use crate::Ops;
use futures::{Stream, TryStreamExt as _, stream};
use sqlx::Row as _;
use twinbox_core::{Message, Timestamp};
use twinbox_sql::{
    Dialect, Error, Selection,
    engine::{
        COUNT_MAX, Cursor, MessageColumns, Micros, TextColumns, count, query, query_of, render,
        selection::{Condition, Selected, bind, select_settled},
    },
};

/// The most messages of a sample.
const SAMPLE: i64 = 5;
/// Planned messages that are read at a time.
const PAGE: i64 = 200;

/// The messages that a replay would send.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ReplayPlan {
    /// The destination to which the messages would be sent.
    pub destination: String,
    /// The filter that selects the messages.
    pub selection: Selection,
    /// How many messages are selected. Messages that are parked for the destination are not among them:
    /// redrive those.
    pub selected: u64,
    /// How many messages of each type are selected, by name.
    pub types: Vec<TypeCount>,
    /// The first selected messages, in the order of the log.
    pub sample: Vec<SampleMessage>,
    /// Consumers of this database that have purged claims as old as the oldest message. A message that they
    /// may have handled is not run, but dead-lettered as `in_doubt`.
    pub forgotten: Vec<PurgeMark>,
    /// How far the destination has settled the log.
    pub(super) bound: Cursor,
    /// The position of the first message.
    pub(super) first: i64,
    /// The position of the last message.
    pub(super) last: i64,
    /// The place before which the dialect begins to read.
    pub(super) start: i64,
}

/// The number of planned messages of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeCount {
    /// The event type that is counted.
    pub event_type: String,
    /// The number of messages.
    pub messages: u64,
    /// The time of the oldest message of the type.
    pub oldest: Timestamp,
    /// The time of the newest message of the type.
    pub newest: Timestamp,
}

/// A message that a [`ReplayPlan`] shows as an example.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SampleMessage {
    /// The position of the message in the log.
    pub position: i64,
    /// The event id of the message.
    pub id: String,
    /// The event type of the message.
    pub event_type: String,
    /// The key of the message.
    pub key: Option<String>,
    /// The time at which the message was published.
    pub time: Timestamp,
}

/// The time up to which a consumer has purged claims.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PurgeMark {
    /// The consumer whose claims were purged.
    pub consumer: String,
    /// The time of the newest message whose claim was purged.
    pub time: Timestamp,
}

impl ReplayPlan {
    /// Returns the time of the oldest message.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.types.iter().map(|one| one.oldest).min()
    }

    /// Returns the time of the newest message.
    pub fn newest(&self) -> Option<Timestamp> {
        self.types.iter().map(|one| one.newest).max()
    }
}

impl<DB: Dialect> Ops<DB> {
    /// Counts the messages that a replay to a destination would send, among those that it has settled. The
    /// destination of a consumer of the log is `consumer:NAME`. Writes nothing.
    ///
    /// Reads the log once; on Postgres, with a `since`, only messages that are about as new.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](twinbox_sql::ErrorKind::NotFound): there is no such destination. The selection
    /// is too large, or no message can match it. The database refused or is away.
    pub async fn plan_replay(&self, destination: &str, selection: &Selection) -> Result<ReplayPlan, Error> {
        selection.check()?;
        let mut conn = self.engine.connection().await?;
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
            start: i64::MAX,
        };
        let conditions = Condition::of(selection, self.engine.service());
        for row in self.select(&mut conn, &plan, Selected::CountsByType, conditions, None).await? {
            let event_type: String = row.text("type")?;
            if !selection.takes(&event_type) {
                continue;
            }
            let (oldest, newest): (Micros, Micros) = (row.try_get("oldest")?, row.try_get("newest")?);
            let messages = count(row.try_get("messages")?);
            plan.selected += messages;
            plan.types.push(TypeCount { event_type, messages, oldest: oldest.0, newest: newest.0 });
            plan.first = plan.first.min(row.try_get("first")?);
            plan.last = plan.last.max(row.try_get("last")?);
            plan.start = plan.start.min(row.try_get("start")?);
        }
        if plan.selected > 0 {
            plan.sample = self.sample(&mut conn, &plan).await?;
            plan.forgotten = self.forgotten_since(&mut conn, plan.oldest()).await?;
        }
        conn.done().await?;
        Ok(plan)
    }

    /// Returns the consumers that have purged claims of messages since a time.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn purge_marks_since(&self, oldest: Timestamp) -> Result<Vec<PurgeMark>, Error> {
        let mut conn = self.engine.connection().await?;
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
        let marks = query::<DB>(&self.engine.sql().inbox.purge_marks_since).bind(Micros(oldest));
        let read = |row: &DB::Row| {
            let (consumer, time) = (row.text("consumer")?, row.try_get::<Micros, _>("time")?.0);
            Ok(PurgeMark { consumer, time })
        };
        marks.fetch_all(conn).await?.iter().map(read).collect()
    }

    async fn sample(
        &self,
        conn: &mut DB::Connection,
        plan: &ReplayPlan,
    ) -> Result<Vec<SampleMessage>, Error> {
        let read = |row: &DB::Row| {
            Ok(SampleMessage {
                position: row.try_get("position")?,
                id: row.text("event_id")?,
                event_type: row.text("type")?,
                key: row.text_or_null("key")?,
                time: row.try_get::<Micros, _>("time")?.0,
            })
        };
        self.planned(conn, plan, Selected::Heads, 0, SAMPLE).await?.iter().map(read).collect()
    }

    /// Returns the messages of a plan as a replay would send them, but without its headers, in the order of
    /// the log. These are the selected messages that are still in the log, and those between them that the
    /// destination has settled since.
    ///
    /// # Errors
    /// An item is an error as in [`plan_replay`](Self::plan_replay), and the last one.
    pub fn planned_messages(
        &self,
        plan: &ReplayPlan,
    ) -> impl Stream<Item = Result<Message, Error>> + Send + use<DB> {
        let (ops, plan) = (self.clone(), plan.clone());
        stream::try_unfold((ops, plan, 0), |(ops, plan, after)| async move {
            let page = ops.planned_page(&plan, after).await?;
            let Some(last) = page.last().and_then(|message| message.sequence) else {
                return Ok::<_, Error>(None);
            };
            let after = i64::try_from(last).unwrap_or(i64::MAX);
            Ok(Some((stream::iter(page.into_iter().map(Ok)), (ops, plan, after))))
        })
        .try_flatten()
    }

    async fn planned_page(&self, plan: &ReplayPlan, after: i64) -> Result<Vec<Message>, Error> {
        let mut conn = self.engine.connection().await?;
        // The ticks of the plan may be deleted, because no cursor names them.
        let bound = self.settled_by(&mut conn, &plan.destination).await?;
        let plan = ReplayPlan { bound, ..plan.clone() };
        let rows = self.planned(&mut conn, &plan, Selected::Messages, after, PAGE).await?;
        conn.done().await?;
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let columns = MessageColumns::of::<DB>(first)?;
        let service = self.engine.service();
        let read = |row: &DB::Row| columns.read_log::<DB>(row, service, row.try_get::<i64, _>("position")?);
        rows.iter().map(read).collect()
    }

    /// Reads planned messages behind a position, in the order of the log.
    async fn planned(
        &self,
        conn: &mut DB::Connection,
        plan: &ReplayPlan,
        selected: Selected,
        after: i64,
        limit: i64,
    ) -> Result<Vec<DB::Row>, Error> {
        if plan.types.is_empty() {
            return Ok(Vec::new());
        }
        let mut conditions = Condition::of(&plan.selection, self.engine.service());
        conditions.push(Condition::types(plan.types.iter().map(|one| one.event_type.clone())));
        conditions.push(Condition::positions(plan.first.max(after.saturating_add(1)), plan.last));
        self.select(conn, plan, selected, conditions, Some(limit)).await
    }

    /// Reads messages that the destination of a plan has settled.
    async fn select(
        &self,
        conn: &mut DB::Connection,
        plan: &ReplayPlan,
        selected: Selected,
        conditions: Vec<Condition>,
        limit: Option<i64>,
    ) -> Result<Vec<DB::Row>, Error> {
        let text = render::<DB>(&self.engine.catalog().namespace, &select_settled(selected, &conditions));
        let Cursor { p, w, position } = plan.bound;
        let query = query_of(text, false).within(COUNT_MAX);
        let query = query.bind(p).bind(w).bind(position).bind(plan.destination.clone());
        let query = bind::<DB>(query, conditions);
        let query = if let Some(limit) = limit { query.bind(limit) } else { query };
        Ok(query.fetch_all(conn).await?)
    }

    /// The statement that counts the messages of a selection by type, for tests of its plan. Binds: p, w,
    /// position, destination, and those of the selection.
    #[doc(hidden)]
    pub fn counting_statement(&self, selection: &Selection) -> String {
        let conditions = Condition::of(selection, self.engine.service());
        let text = select_settled(Selected::CountsByType, &conditions);
        render::<DB>(&self.engine.catalog().namespace, &text).as_str().to_owned()
    }
}
