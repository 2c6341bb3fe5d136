//! Delivers events to handlers.
use std::fmt;
use twinbox_consumer::{Delivery, DeliveryOutcome, EventHandler, deliver};
use twinbox_core::{Draft, Event, Message};
use twinbox_sql::{Dialect, HandlerResult, Store, Tx, inbox::InboxClaim};

/// Delivers events to handlers as a consumer does, without a broker, and returns the outcomes.
///
/// ```text
/// let database = twinbox_testkit::database::sqlite().await;
/// let harness = Harness::new(&database, App { vat: 19 });
/// let order = harness.message(OrderPlaced { order_id, cents: 700 });
/// assert_eq!(harness.deliver::<invoice>(&order).await, DeliveryOutcome::Handled);
/// assert_eq!(harness.deliver::<invoice>(&order).await, DeliveryOutcome::Duplicate);
/// assert_eq!(harness.published::<InvoiceIssued>().await.len(), 1);
/// ```
pub struct Harness<DB: Dialect, S> {
    pub(super) store: Store<DB>,
    pub(super) state: S,
    pub(super) watched: Vec<(String, Look<S>)>,
}

pub(super) type Look<S> = Box<dyn Fn(&S) -> Vec<String> + Send + Sync>;

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// Creates a harness whose handlers get `state`.
    pub fn new(store: &Store<DB>, state: S) -> Self {
        Self { store: store.clone(), state, watched: Vec::new() }
    }

    /// Adds something outside the database that [`assert_idempotent`](Self::assert_idempotent) compares, as a
    /// list of lines.
    ///
    /// Use it for side effects, such as the mails that a fake has received, one line each.
    #[must_use]
    pub fn watch(mut self, name: &str, look: impl Fn(&S) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.watched.push((name.to_owned(), Box::new(look)));
        self
    }

    /// Returns the event as a message with a new id. Deliver the message twice to deliver a duplicate.
    ///
    /// # Panics
    /// The event cannot be written as JSON.
    pub fn message<E: Event>(&self, event: E) -> Message {
        Delivery::of(event).expect("an event of a test can be written as JSON").message().clone()
    }

    /// Delivers the message to the handler `H`, for one attempt.
    pub async fn deliver<H: EventHandler<DB, S>>(&self, message: &Message) -> DeliveryOutcome {
        deliver::<DB, S, H>(&self.store, &self.state, message, true).await
    }

    /// Runs `f` in a transaction as a handler has it, and commits.
    ///
    /// Use it to call a handler as a function: `harness.run(async |tx| invoice(&app, tx, order).await)`.
    ///
    /// # Errors
    /// The error of `f`, or of the commit. The transaction is rolled back.
    ///
    /// # Panics
    /// The database does not answer.
    pub async fn run<F>(&self, f: F) -> HandlerResult
    where
        F: AsyncFnOnce(&mut Tx<'_, DB>) -> HandlerResult,
    {
        let cause = Draft::raw("harness.run", 1, Vec::new()).into_message("harness");
        let claimed =
            self.store.inbox("harness").claim(&cause, false).await.expect("the test's database is there");
        let InboxClaim::Open(mut attempt) = claimed else { unreachable!("a fresh id is no duplicate") };
        match f(&mut attempt.tx()).await {
            Ok(()) => Ok(attempt.commit().await?),
            Err(error) => {
                attempt.rollback().await;
                Err(error)
            }
        }
    }

    /// Returns the events of type `E` in the outbox, oldest first, at most 10,000.
    ///
    /// # Panics
    /// The database does not answer, or a payload of the type cannot be decoded as `E`.
    pub async fn published<E: Event>(&self) -> Vec<E> {
        let messages = self.store.published(E::TYPE, 10_000).await.expect("the test's database is there");
        let decode = |m: &Message| {
            let plain = self.store.decode(m).expect("the store of the test has the codec");
            E::decode(plain.version, &plain.payload).expect("a published payload can be decoded")
        };
        messages.iter().map(decode).collect()
    }

    /// Returns the state that the handlers share.
    pub fn state(&self) -> &S {
        &self.state
    }
}

impl<DB: Dialect, S> fmt::Debug for Harness<DB, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("store", &self.store).finish_non_exhaustive()
    }
}
