//! Delivers messages in every order and compares the rows at the end.
use super::{
    delivery::Harness,
    snapshot::{Columns, Snapshot},
};
use std::{collections::BTreeSet, fmt};
use twinbox_consumer::{
    EventHandler,
    private::{batch_max, run_within},
};
use twinbox_core::{BoxFuture, Message};
use twinbox_sql::{
    Dialect, Disposition, HandlerError,
    inbox::{Attempt, InboxClaim},
};

/// Six events have 720 orders. More would take too long.
const EVENTS_MAX: usize = 6;
/// The compared columns of published events. The others depend on the time and the cause.
const PUBLISHED: [&str; 5] = ["type", "version", "key", "subject", "payload"];
/// The compared columns of side effects: the acts that were asked for. The others say what came of them.
const ASKED_FOR: [&str; 9] =
    ["source_id", "kind", "vendor", "key", "method", "target", "content_type", "headers", "request"];

type Run<DB, S> = for<'a> fn(
    &'a Harness<DB, S>,
    &'a mut Attempt<DB>,
    &'a [&'a Message],
) -> BoxFuture<'a, Result<(), HandlerError>>;

/// Events to deliver in every order. Created by [`Harness::any_order`].
#[must_use]
pub struct AnyOrder<'h, DB: Dialect, S> {
    harness: &'h Harness<DB, S>,
    deliveries: Vec<Delivery<DB, S>>,
    left_out: BTreeSet<String>,
    one_by_one: bool,
}

struct Delivery<DB: Dialect, S> {
    consumer: &'static str,
    message: Message,
    batch_max: usize,
    run: Run<DB, S>,
}

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// Starts a test that handlers write the same rows in every order of events.
    ///
    /// ```text
    /// harness.any_order().event::<track>(placed).event::<track>(paid).assert().await;
    /// ```
    pub fn any_order(&self) -> AnyOrder<'_, DB, S> {
        AnyOrder { harness: self, deliveries: Vec::new(), left_out: BTreeSet::new(), one_by_one: false }
    }
}

impl<DB: Dialect, S: Send + Sync + 'static> AnyOrder<'_, DB, S> {
    /// Adds an event for the handler `H`.
    ///
    /// Its message gets the next [`sequence`](twinbox_core::Message::sequence).
    pub fn event<H: EventHandler<DB, S> + 'static>(mut self, event: H::Event) -> Self {
        let sequence = u64::try_from(self.deliveries.len() + 1).ok();
        let message = Message { sequence, ..self.harness.message(event) };
        let consumer = H::POLICY.consumer();
        let batch_max = batch_max::<DB, S, H>();
        self.deliveries.push(Delivery { consumer, message, batch_max, run: run::<DB, S, H> });
        self
    }

    /// Excludes a column from the comparison, because it may depend on the order:
    /// `.leave_out("shop.orders.row_number")`.
    ///
    /// On SQLite the name has no schema: `.leave_out("orders.row_number")`.
    pub fn leave_out(mut self, column: impl Into<String>) -> Self {
        self.left_out.insert(column.into());
        self
    }

    /// Gives a handler of batches each event alone, and never several together.
    pub fn one_by_one(self) -> Self {
        Self { one_by_one: true, ..self }
    }

    /// Asserts that every order of the events leaves the same rows, the same published events, and the same
    /// side effects.
    ///
    /// As in a consumer, a failed delivery is rolled back and comes again after the others. All deliveries
    /// run in transactions that are rolled back at the end. A handler of batches gets each event alone, and
    /// in one more run neighbouring events together.
    ///
    /// It does not compare columns that differ between two runs in the given order, such as times and ids of
    /// a sequence. SQLite assigns the same ids again after a rollback: [leave out](Self::leave_out) these
    /// columns.
    ///
    /// # Panics
    /// Rows differ: the message lists the order and the rows. Or a message is never handled in some order,
    /// there are not 2 to 6 events, or the database does not answer.
    pub async fn assert(self) {
        let count = self.deliveries.len();
        assert!((2..=EVENTS_MAX).contains(&count), "a test of every order needs 2 to {EVENTS_MAX} events");
        let given = Vec::from_iter(0..count);
        let expected = self.play(&given).await;
        let mut varying = expected.varying(&self.play(&given).await);
        let others = orders(count).skip(1).map(|order| (order, false));
        let takes_batches = self.deliveries.iter().any(|delivery| delivery.batch_max > 1);
        let in_batches = (takes_batches && !self.one_by_one).then(|| (given.clone(), true));
        for (order, in_batches) in others.chain(in_batches) {
            let found = self.play_as(&order, in_batches).await;
            if self.difference(&expected, &found, &varying).is_empty() {
                continue;
            }
            // Seconds may have passed since the first run: columns with times may differ now.
            varying.extend(expected.varying(&self.play(&given).await));
            let found = self.difference(&expected, &found, &varying);
            let (what, advice) = if in_batches { IN_BATCHES } else { IN_ORDERS };
            assert!(found.is_empty(), "{}", self.report(&order, what, &found, advice));
        }
    }

    fn difference(&self, expected: &Snapshot, found: &Snapshot, varying: &Columns) -> String {
        let compared = |table: &str, column: &str| {
            !varying.contains(&(table.to_owned(), column.to_owned()))
                && !self.left_out.contains(&format!("{table}.{column}"))
        };
        expected.only(compared).difference(&found.only(compared))
    }

    /// Delivers the messages in this order, each alone. Returns the rows at the end.
    async fn play(&self, order: &[usize]) -> Snapshot {
        self.play_as(order, false).await
    }

    async fn play_as(&self, order: &[usize], in_batches: bool) -> Snapshot {
        let store = &self.harness.store;
        let first = &self.deliveries[order[0]];
        let claimed = store
            .inbox(first.consumer)
            .claim(&first.message, false)
            .await
            .expect("the test's database is there");
        let InboxClaim::Open(mut attempt) = claimed else {
            panic!("`{}` has handled its message before", first.consumer)
        };
        let mut left =
            if in_batches { self.batches(order) } else { order.iter().map(|n| vec![*n]).collect() };
        let mut rejected = Vec::new();
        while !left.is_empty() {
            let (mut failed, mut done) = (Vec::new(), false);
            for batch in left {
                // As in a consumer, a batch that fails is handled one by one.
                if batch.len() > 1 && self.deliver_within(&mut attempt, &batch).await.is_ok() {
                    done = true;
                    continue;
                }
                for n in batch {
                    match self.deliver_within(&mut attempt, &[n]).await {
                        Ok(()) => done = true,
                        Err(error) if error.disposition() == Disposition::Reject => {
                            done = true;
                            rejected.push(format!("{}: {error}", self.named(n)));
                        }
                        Err(error) => failed.push((n, error)),
                    }
                }
            }
            if let Some((n, error)) = failed.first().filter(|_| !done) {
                let never = format!("  {} is never handled: {error}\n", self.named(*n));
                panic!("{}", self.report(order, "some messages are not handled", &never, IN_ORDERS.1));
            }
            left = failed.into_iter().map(|(n, _)| vec![n]).collect();
        }
        let seen = Snapshot::of::<DB>(&mut attempt.tx()).await.expect("the test's database is there");
        attempt.rollback().await;
        let engine = store.engine();
        let of_twinbox = engine.table("");
        let compared = [
            ("outbox", &PUBLISHED[..]),
            ("delayed_messages", &PUBLISHED[..]),
            ("side_effects", &ASKED_FOR[..]),
        ]
        .map(|(name, columns)| (engine.table(name), columns));
        let mut seen = seen.only(|table, column| {
            !table.starts_with(&of_twinbox)
                || compared.iter().any(|(name, columns)| name == table && columns.contains(&column))
        });
        seen.put("rejected", rejected);
        seen
    }

    /// Neighbours of one handler, as many as it takes together.
    fn batches(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let handler = |n: usize| (self.deliveries[n].consumer, &self.deliveries[n].message.event_type);
        let neighbours = order.chunk_by(|one, next| handler(*one) == handler(*next));
        let batches = neighbours.flat_map(|all| all.chunks(self.deliveries[all[0]].batch_max));
        batches.map(<[usize]>::to_vec).collect()
    }

    /// Runs one attempt, within the transaction of all messages.
    async fn deliver_within(&self, attempt: &mut Attempt<DB>, batch: &[usize]) -> Result<(), HandlerError> {
        let messages = Vec::from_iter(batch.iter().map(|n| &self.deliveries[*n].message));
        execute(attempt, "SAVEPOINT any_order").await?;
        let mut ran = (self.deliveries[batch[0]].run)(self.harness, attempt, &messages).await;
        if ran.is_ok() {
            ran = execute(attempt, "RELEASE SAVEPOINT any_order").await;
        }
        if ran.is_err() {
            execute(attempt, "ROLLBACK TO SAVEPOINT any_order").await?;
        }
        ran
    }

    /// Describes a message by its number, type and payload.
    fn named(&self, n: usize) -> String {
        let message = &self.deliveries[n].message;
        format!("{}. {} {}", n + 1, message.event_type, String::from_utf8_lossy(&message.payload))
    }

    fn report(&self, order: &[usize], what: &str, found: &str, advice: &str) -> String {
        let consumers = BTreeSet::from_iter(self.deliveries.iter().map(|delivery| delivery.consumer));
        let consumers =
            consumers.iter().map(|consumer| format!("`{consumer}`")).collect::<Vec<_>>().join(" and ");
        let events: String = (0..order.len()).map(|n| format!("  {}\n", self.named(n))).collect();
        let order = order.iter().map(|n| (n + 1).to_string()).collect::<Vec<_>>().join(", ");
        format!(
            "the result of {consumers} depends on the order of events\n\n{events}\n\
             Delivered in the order {order}, {what}:\n\n{found}\n{advice}"
        )
    }
}

/// The words of a report: the difference, and the advice.
const IN_ORDERS: (&str, &str) = (
    "this differs from the given order",
    "Change a row only if the event is newer (`VersionColumn`), or if its state allows it \
    (`StateColumn`);\nor consume with `order = \"key\"`, if all these events have one key.",
);
const IN_BATCHES: (&str, &str) = (
    "and together in a batch, this differs from each alone",
    "Do for each event of a batch what it needs. If one row for a batch is meant, test with `one_by_one`.",
);

fn run<'a, DB: Dialect, S: Send + Sync + 'static, H: EventHandler<DB, S> + 'static>(
    harness: &'a Harness<DB, S>,
    attempt: &'a mut Attempt<DB>,
    messages: &'a [&'a Message],
) -> BoxFuture<'a, Result<(), HandlerError>> {
    Box::pin(run_within::<DB, S, H>(&harness.store, &harness.state, attempt, messages))
}

async fn execute<DB: Dialect>(
    attempt: &mut Attempt<DB>,
    statement: &'static str,
) -> Result<(), HandlerError> {
    sqlx::raw_sql(statement).execute(&mut *attempt.tx()).await?;
    Ok(())
}

/// Returns every order of `count` events, the given one first.
fn orders(count: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for _ in 0..count {
        let longer = orders.iter().flat_map(|order: &Vec<usize>| {
            let next = (0..count).filter(|n| !order.contains(n));
            next.map(|n| order.iter().copied().chain([n]).collect())
        });
        orders = longer.collect();
    }
    orders.into_iter()
}

impl<DB: Dialect, S> fmt::Debug for AnyOrder<'_, DB, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyOrder").field("events", &self.deliveries.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_tried_once() {
        let three = Vec::from_iter(orders(3));
        assert_eq!(three[0], [0, 1, 2]);
        assert_eq!(BTreeSet::from_iter(&three).len(), 6);
        assert_eq!(three.len(), 6);
        assert_eq!(orders(EVENTS_MAX).count(), 720);
    }
}
