//! Handlers: functions, the policy beside them, and the state they ask for.
use crate::{Delivery, Error, ErrorKind, Policy};
use std::{fmt, time::Duration};
use twinbox_core::{BoxFuture, DecodeError, Event, Message, Schema as _};
use twinbox_sql::{BatchTx, Dialect, HandlerResult, Tx};

#[doc(hidden)]
pub type HandlerFuture<'a> = BoxFuture<'a, HandlerResult>;

/// State of type `T` that can be had from the runtime's state. `#[derive(Provide)]` on the runtime's state
/// gives out each of its fields.
#[diagnostic::on_unimplemented(
    message = "a handler needs `{T}`, which the runtime's state `{Self}` does not provide",
    label = "does not provide `{T}`",
    note = "put a field of type `{T}` in `{Self}` and `#[derive(Provide)]` on it, or write `impl Provide<{T}> for {Self}`"
)]
pub trait Provide<T> {
    /// The state.
    fn provide(&self) -> &T;
}

impl<T> Provide<T> for T {
    fn provide(&self) -> &T {
        self
    }
}

/// A function marked with `#[event_handler]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event handler for database `{DB}` with state `{S}`",
    note = "`#[event_handler(consumer = \"…\")]` makes one of an async function"
)]
pub trait EventHandler<DB: Dialect, S> {
    /// What stands beside the function.
    const POLICY: Policy;
    /// What it handles.
    type Event: Event;

    /// The handler, to be registered.
    fn handler() -> Handler<DB, S>;
}

type Each<DB, S> = dyn for<'a> Fn(&'a S, &'a mut Tx<'a, DB>, &'a Message, u32) -> Result<HandlerFuture<'a>, DecodeError>
    + Send
    + Sync;
type Batch<DB, S> = dyn for<'a> Fn(
        &'a S,
        &'a mut BatchTx<'a, DB>,
        &'a [&'a Message],
        u32,
    ) -> Result<HandlerFuture<'a>, DecodeError>
    + Send
    + Sync;

#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "only closures")]
pub enum Run<DB: Dialect, S> {
    Each(Box<Each<DB, S>>),
    Batch(Box<Batch<DB, S>>),
}

/// A handler as the runtime keeps it.
pub struct Handler<DB: Dialect, S> {
    pub(crate) policy: Policy,
    pub(crate) event_type: &'static str,
    pub(crate) versions: Vec<u32>,
    pub(crate) has_key: bool,
    pub(crate) run: Run<DB, S>,
}

impl<DB: Dialect, S> Handler<DB, S> {
    /// A handler from a closure whose future is boxed. What `#[event_handler]` expands to, and the way for
    /// closures that capture.
    pub fn new<A: 'static, I: Input>(
        policy: Policy,
        call: impl for<'a> Fn(&'a A, &'a mut I::Tx<'a, DB>, I) -> HandlerFuture<'a> + Send + Sync + 'static,
    ) -> Self
    where
        S: Provide<A>,
    {
        Self::erased::<I>(policy, I::erase(call))
    }

    fn erased<I: Input>(policy: Policy, run: Run<DB, S>) -> Self {
        let (event_type, versions) = (I::Event::TYPE, I::Event::versions());
        Self { policy, event_type, versions, has_key: I::Event::HAS_KEY, run }
    }
}

impl<DB: Dialect, S> Handler<DB, S> {
    /// Deliveries that are in this process while there are others. Of single ones as many wait as run, so that none has to
    /// be asked for when another is done.
    pub(crate) fn under_way(&self) -> usize {
        let each = if matches!(self.run, Run::Batch(_)) { self.policy.batch } else { 2 };
        self.policy.concurrency.max(1).saturating_mul(each)
    }

    /// The option of a handler that a log shared by lease cannot give, and what to write instead.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let Policy { consumer, timeout, has_timeout, .. } = self.policy;
        let event_type = self.event_type;
        let what = if matches!(self.run, Run::Batch(_)) {
            format!(
                "the consumer {consumer:?} asks for the order of keys and for batches of {event_type:?}, which would have one \
                 message each: take `Delivery` without `batch = …`, or write `order = \"none\"`"
            )
        } else if has_timeout && timeout > lease {
            format!(
                "the consumer {consumer:?} keeps the order of keys by a lease of {lease:?}, which ends an attempt at \
                 {event_type:?} before its `timeout` of {timeout:?}: write `.lease(Duration::from_millis({}))` at the \
                 `Consumer`, or a shorter `timeout`",
                timeout.as_millis()
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Configuration, what))
    }
}

impl<DB: Dialect, S> fmt::Debug for Handler<DB, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handler")
            .field("policy", &self.policy)
            .field("event_type", &self.event_type)
            .finish_non_exhaustive()
    }
}

/// A handler without the macro: an `async fn`, or `async |app: &App, tx: &mut Tx<'_, DB>, event: Delivery<E>| …`
/// with its parameters annotated and nothing captured.
pub fn handler_fn<DB, S, A, I, F>(policy: Policy, f: F) -> Handler<DB, S>
where
    DB: Dialect,
    S: Provide<A>,
    A: 'static,
    F: for<'a> HandlerFn<'a, DB, A, I>,
    I: Input,
{
    Handler::erased::<I>(policy, I::erase(move |app, tx, input| f.call(app, tx, input)))
}

/// What [`handler_fn`] takes. The lifetime is a parameter of the trait because stable Rust has no way yet
/// to say that the future of an `AsyncFn` is `Send`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an event handler",
    label = "expected `async fn(&App, &mut Tx<'_, DB>, Delivery<E>) -> HandlerResult`, or `BatchTx` with `Vec<Delivery<E>>`",
    note = "its future must be `Send`; `#[event_handler]` says which value is not"
)]
pub trait HandlerFn<'a, DB: Dialect, A: 'a, I: Input>: Send + Sync + 'static {
    #[doc(hidden)]
    fn call(&self, app: &'a A, tx: &'a mut I::Tx<'a, DB>, input: I) -> HandlerFuture<'a>;
}

impl<'a, DB: Dialect, A: 'a, E: Event, F, Fut> HandlerFn<'a, DB, A, Delivery<E>> for F
where
    F: Fn(&'a A, &'a mut Tx<'a, DB>, Delivery<E>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'a,
{
    fn call(&self, app: &'a A, tx: &'a mut Tx<'a, DB>, input: Delivery<E>) -> HandlerFuture<'a> {
        Box::pin(self(app, tx, input))
    }
}

impl<'a, DB: Dialect, A: 'a, E: Event, F, Fut> HandlerFn<'a, DB, A, Vec<Delivery<E>>> for F
where
    F: Fn(&'a A, &'a mut BatchTx<'a, DB>, Vec<Delivery<E>>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = HandlerResult> + Send + 'a,
{
    fn call(&self, app: &'a A, tx: &'a mut BatchTx<'a, DB>, input: Vec<Delivery<E>>) -> HandlerFuture<'a> {
        Box::pin(self(app, tx, input))
    }
}

/// What a handler is given: one delivery or a batch of them. Sealed.
#[diagnostic::on_unimplemented(
    message = "a handler takes `Delivery<E>` or `Vec<Delivery<E>>`, not `{Self}`",
    label = "not a delivery"
)]
pub trait Input: sealed::Sealed + Sized + Send + 'static {
    /// The event inside.
    type Event: Event;
    #[doc(hidden)]
    type Tx<'t, DB: Dialect>: 't;
    #[doc(hidden)]
    fn erase<DB: Dialect, S: Provide<A>, A: 'static>(
        f: impl for<'a> Fn(&'a A, &'a mut Self::Tx<'a, DB>, Self) -> HandlerFuture<'a> + Send + Sync + 'static,
    ) -> Run<DB, S>;
}

impl<E: Event> Input for Delivery<E> {
    type Event = E;
    type Tx<'t, DB: Dialect> = Tx<'t, DB>;

    fn erase<DB: Dialect, S: Provide<A>, A: 'static>(
        f: impl for<'a> Fn(&'a A, &'a mut Tx<'a, DB>, Self) -> HandlerFuture<'a> + Send + Sync + 'static,
    ) -> Run<DB, S> {
        Run::Each(Box::new(move |state, tx, message, attempt| {
            Ok(f(state.provide(), tx, Delivery::decode(message, attempt)?))
        }))
    }
}

impl<E: Event> Input for Vec<Delivery<E>> {
    type Event = E;
    type Tx<'t, DB: Dialect> = BatchTx<'t, DB>;

    fn erase<DB: Dialect, S: Provide<A>, A: 'static>(
        f: impl for<'a> Fn(&'a A, &'a mut BatchTx<'a, DB>, Self) -> HandlerFuture<'a> + Send + Sync + 'static,
    ) -> Run<DB, S> {
        Run::Batch(Box::new(move |state, tx, messages, attempt| {
            let batch = messages.iter().map(|m| Delivery::decode(m, attempt)).collect::<Result<_, _>>()?;
            Ok(f(state.provide(), tx, batch))
        }))
    }
}

/// The transaction that a handler of `I` takes. It names the database, so that generated code sees through
/// type aliases.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a handler of `{I}` does not take `&mut {Self}`",
    label = "not the transaction of this handler",
    note = "`Delivery<E>` goes with `&mut Tx<'_, DB>`, `Vec<Delivery<E>>` with `&mut BatchTx<'_, DB>`"
)]
pub trait TxFor<I> {
    // No `: Dialect`: implied bounds do not reach an associated type.
    type Database;
}

impl<DB: Dialect, E> TxFor<Delivery<E>> for Tx<'_, DB> {
    type Database = DB;
}

impl<DB: Dialect, E> TxFor<Vec<Delivery<E>>> for BatchTx<'_, DB> {
    type Database = DB;
}

mod sealed {
    pub trait Sealed {}
    impl<E> Sealed for super::Delivery<E> {}
    impl<E> Sealed for Vec<super::Delivery<E>> {}
}
