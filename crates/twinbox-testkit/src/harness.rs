mod idempotence;
mod order;
mod restart;
mod snapshot;

pub use order::AnyOrder;

use std::fmt;
use twinbox_consumer::{Delivery, EventHandler, Outcome, deliver};
use twinbox_core::{Draft, Event, Message};
use twinbox_sql::{Dialect, HandlerResult, Store, Tx, inbox::Claimed};

/// Delivers events to handlers as the runtime does, without a broker, and says what became of them.
///
/// ```text
/// let database = twinbox_testkit::database::sqlite().await;
/// let harness = Harness::new(&database, App { vat: 19 });
/// let order = harness.message(OrderPlaced { order_id, cents: 700 });
/// assert_eq!(harness.deliver::<invoice>(&order).await, Outcome::Handled);
/// assert_eq!(harness.deliver::<invoice>(&order).await, Outcome::Duplicate);
/// assert_eq!(harness.published::<InvoiceIssued>().await.len(), 1);
/// ```
pub struct Harness<DB: Dialect, S> {
    store: Store<DB>,
    state: S,
    watched: Vec<(String, Look<S>)>,
}

type Look<S> = Box<dyn Fn(&S) -> Vec<String> + Send + Sync>;

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// A harness whose handlers get `state`.
    pub fn new(store: &Store<DB>, state: S) -> Self {
        Self { store: store.clone(), state, watched: Vec::new() }
    }

    /// Lets [`assert_idempotent`](Self::assert_idempotent) compare what is not in the database, like the mails that a
    /// fake has taken: each a line.
    #[must_use]
    pub fn watch(mut self, name: &str, look: impl Fn(&S) -> Vec<String> + Send + Sync + 'static) -> Self {
        self.watched.push((name.to_owned(), Box::new(look)));
        self
    }

    /// The event as a message with an id of its own. Deliver it twice to deliver a duplicate.
    ///
    /// # Panics
    /// The event cannot be written as JSON.
    pub fn message<E: Event>(&self, event: E) -> Message {
        Delivery::of(event).expect("an event of a test can be written as JSON").message().clone()
    }

    /// One attempt at the message by the handler `H`.
    pub async fn deliver<H: EventHandler<DB, S>>(&self, message: &Message) -> Outcome {
        deliver::<DB, S, H>(&self.store, &self.state, message, true).await
    }

    /// Runs `f` in a transaction like a handler's and commits it, for calling a handler as a function:
    /// `harness.run(async |tx| invoice(&app, tx, order).await)`.
    ///
    /// # Errors
    /// What `f` returned, or why its transaction cannot be committed; all is rolled back then.
    ///
    /// # Panics
    /// The database is away.
    pub async fn run<F>(&self, f: F) -> HandlerResult
    where
        F: AsyncFnOnce(&mut Tx<'_, DB>) -> HandlerResult,
    {
        let cause = Draft::raw("harness.run", 1, Vec::new()).into_message("harness");
        let claimed = self.store.claim("harness", &cause, false).await.expect("the test's database is there");
        let Claimed::Open(mut attempt) = claimed else { unreachable!("a fresh id is no duplicate") };
        match f(&mut attempt.tx()).await {
            Ok(()) => Ok(attempt.commit().await?),
            Err(error) => {
                attempt.rollback().await;
                Err(error)
            }
        }
    }

    /// The events of type `E` that are in the outbox, oldest first, at most 10,000.
    ///
    /// # Panics
    /// The database is away, or holds a payload of that type that is no `E`.
    pub async fn published<E: Event>(&self) -> Vec<E> {
        let messages = self.store.published(E::TYPE, 10_000).await.expect("the test's database is there");
        let decode = |m: &Message| {
            let plain = self.store.decode(m).expect("the store of the test has the codec");
            E::decode(plain.version, &plain.payload).expect("what was published can be read")
        };
        messages.iter().map(decode).collect()
    }

    /// The state that handlers get.
    pub fn state(&self) -> &S {
        &self.state
    }
}

impl<DB: Dialect, S> fmt::Debug for Harness<DB, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("store", &self.store).finish_non_exhaustive()
    }
}
