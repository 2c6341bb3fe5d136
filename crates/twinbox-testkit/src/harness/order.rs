//! Delivers messages in every order, and compares what is there in the end.
use super::{
    Harness,
    snapshot::{Columns, Snapshot},
};
use std::{collections::BTreeSet, fmt};
use twinbox_consumer::{EventHandler, private::run_within};
use twinbox_core::{BoxFuture, Message};
use twinbox_sql::{
    Dialect, Disposition, HandlerError,
    inbox::{Attempt, Claimed},
};

/// More would take too long in all their orders: 720 for six.
const EVENTS_MAX: usize = 6;
/// What is compared of the events that handlers published; the rest follows from when and why.
const PUBLISHED: [&str; 5] = ["type", "version", "key", "subject", "payload"];

type Run<DB, S> = for<'a> fn(
    &'a Harness<DB, S>,
    &'a mut Attempt<DB>,
    &'a Message,
) -> BoxFuture<'a, Result<(), HandlerError>>;

/// Events that are delivered in every order. Made by [`Harness::any_order`].
#[must_use]
pub struct AnyOrder<'h, DB: Dialect, S> {
    harness: &'h Harness<DB, S>,
    deliveries: Vec<Delivery<DB, S>>,
    left_out: BTreeSet<String>,
}

struct Delivery<DB: Dialect, S> {
    consumer: &'static str,
    message: Message,
    run: Run<DB, S>,
}

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// For asserting that handlers end in the same state whatever order events arrive in:
    ///
    /// ```text
    /// harness.any_order().event::<track>(placed).event::<track>(paid).assert().await;
    /// ```
    pub fn any_order(&self) -> AnyOrder<'_, DB, S> {
        AnyOrder { harness: self, deliveries: Vec::new(), left_out: BTreeSet::new() }
    }
}

impl<DB: Dialect, S: Send + Sync + 'static> AnyOrder<'_, DB, S> {
    /// The next event, for the handler `H`. Its message has the next
    /// [`sequence`](twinbox_core::Message::sequence).
    pub fn event<H: EventHandler<DB, S> + 'static>(mut self, event: H::Event) -> Self {
        let sequence = u64::try_from(self.deliveries.len() + 1).ok();
        let message = Message { sequence, ..self.harness.message(event) };
        let consumer = H::POLICY.consumer();
        self.deliveries.push(Delivery { consumer, message, run: run::<DB, S, H> });
        self
    }

    /// A column that may depend on the order: `.leave_out("shop.orders.row_number")`, on SQLite
    /// `.leave_out("orders.row_number")`.
    pub fn leave_out(mut self, column: impl Into<String>) -> Self {
        self.left_out.insert(column.into());
        self
    }

    /// Asserts that every order leaves the same rows behind, and the same published events. As in a consumer, what fails
    /// is rolled back and comes again after the others.
    ///
    /// All of it happens in transactions that are rolled back. Columns that differ between runs in the order given, such
    /// as times and ids of a sequence, are not compared. SQLite draws the same ids again after a rollback:
    /// [leave them out](Self::leave_out).
    ///
    /// # Panics
    /// With the order and the rows that differ; or a message is never handled in some order, or there are not 2 to 6
    /// events, or the database is away.
    pub async fn assert(self) {
        let count = self.deliveries.len();
        assert!(
            (2..=EVENTS_MAX).contains(&count),
            "2 to {EVENTS_MAX} events have an order that can be tried"
        );
        let given = Vec::from_iter(0..count);
        let expected = self.play(&given).await;
        let mut varying = expected.varying(&self.play(&given).await);
        for order in orders(count).skip(1) {
            let found = self.play(&order).await;
            if self.difference(&expected, &found, &varying).is_empty() {
                continue;
            }
            // Seconds may have passed since the first.
            varying.extend(expected.varying(&self.play(&given).await));
            let found = self.difference(&expected, &found, &varying);
            assert!(found.is_empty(), "{}", self.report(&order, DIFFERENT, &found));
        }
    }

    fn difference(&self, expected: &Snapshot, found: &Snapshot, varying: &Columns) -> String {
        let compared = |table: &str, column: &str| {
            !varying.contains(&(table.to_owned(), column.to_owned()))
                && !self.left_out.contains(&format!("{table}.{column}"))
        };
        expected.only(compared).difference(&found.only(compared))
    }

    /// What there is after the messages were delivered in this order.
    async fn play(&self, order: &[usize]) -> Snapshot {
        let store = &self.harness.store;
        let first = &self.deliveries[order[0]];
        let claimed =
            store.claim(first.consumer, &first.message, false).await.expect("the test's database is there");
        let Claimed::Open(mut attempt) = claimed else {
            panic!("`{}` has handled its message before", first.consumer)
        };
        let mut left = order.to_vec();
        let mut rejected = Vec::new();
        while !left.is_empty() {
            let mut failed = Vec::new();
            for &n in &left {
                match self.deliver_within(&mut attempt, n).await {
                    Ok(()) => {}
                    Err(error) if error.disposition() == Disposition::Reject => {
                        rejected.push(format!("{}: {error}", self.named(n)));
                    }
                    Err(error) => failed.push((n, error)),
                }
            }
            if let Some((n, error)) = failed.first().filter(|_| failed.len() == left.len()) {
                let never = format!("  {} is never handled: {error}\n", self.named(*n));
                panic!("{}", self.report(order, "not everything is handled", &never));
            }
            left = failed.into_iter().map(|(n, _)| n).collect();
        }
        let seen = Snapshot::of::<DB>(&mut attempt.tx()).await.expect("the test's database is there");
        attempt.rollback().await;
        let (of_twinbox, published) = (store.table(""), ["outbox", "delayed"].map(|name| store.table(name)));
        let mut seen = seen.only(|table, column| {
            !table.starts_with(&of_twinbox)
                || (published.iter().any(|name| name == table) && PUBLISHED.contains(&column))
        });
        seen.put("rejected", rejected);
        seen
    }

    /// One attempt, within the transaction of all.
    async fn deliver_within(&self, attempt: &mut Attempt<DB>, n: usize) -> Result<(), HandlerError> {
        let Delivery { message, run, .. } = &self.deliveries[n];
        execute(attempt, "SAVEPOINT any_order").await?;
        let mut ran = run(self.harness, attempt, message).await;
        if ran.is_ok() {
            ran = execute(attempt, "RELEASE any_order").await;
        }
        if ran.is_err() {
            execute(attempt, "ROLLBACK TO any_order").await?;
        }
        ran
    }

    /// A message by its number.
    fn named(&self, n: usize) -> String {
        let message = &self.deliveries[n].message;
        format!("{}. {} {}", n + 1, message.event_type, String::from_utf8_lossy(&message.payload))
    }

    fn report(&self, order: &[usize], what: &str, found: &str) -> String {
        let consumers = BTreeSet::from_iter(self.deliveries.iter().map(|delivery| delivery.consumer));
        let consumers =
            consumers.iter().map(|consumer| format!("`{consumer}`")).collect::<Vec<_>>().join(" and ");
        let events: String = (0..order.len()).map(|n| format!("  {}\n", self.named(n))).collect();
        let order = order.iter().map(|n| (n + 1).to_string()).collect::<Vec<_>>().join(", ");
        format!(
            "the order of events matters to {consumers}\n\n{events}\n\
             Delivered in the order {order}, {what}:\n\n{found}\n{ADVICE}"
        )
    }
}

const DIFFERENT: &str = "this is different from the order given";
const ADVICE: &str = "Let a row change only if the event is newer (`VersionColumn`), or from a state that allows it \
    (`StateColumn`);\nor read with `order = \"key\"`, if all of these have one key.";

fn run<'a, DB: Dialect, S: Send + Sync + 'static, H: EventHandler<DB, S> + 'static>(
    harness: &'a Harness<DB, S>,
    attempt: &'a mut Attempt<DB>,
    message: &'a Message,
) -> BoxFuture<'a, Result<(), HandlerError>> {
    Box::pin(run_within::<DB, S, H>(&harness.store, &harness.state, attempt, message))
}

async fn execute<DB: Dialect>(
    attempt: &mut Attempt<DB>,
    statement: &'static str,
) -> Result<(), HandlerError> {
    sqlx::raw_sql(statement).execute(&mut *attempt.tx()).await?;
    Ok(())
}

/// Every order of so many, the given one first.
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
