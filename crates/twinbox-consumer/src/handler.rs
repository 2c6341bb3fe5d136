//! Handlers: async functions with a policy, and the state that they ask for.
use crate::{
    delivery::Delivery,
    error::{Error, ErrorKind},
    policy::Policy,
};
use std::{fmt, time::Duration};
use twinbox_core::{BoxFuture, DecodeError, Event, Message, Schema as _};
use twinbox_sql::{BatchTx, Dialect, HandlerResult, Tx};

#[doc(hidden)]
pub type HandlerFuture<'a> = BoxFuture<'a, HandlerResult>;

/// Gives handlers a part of the state that the consumer was made with, chosen by its type.
///
/// A handler names the type `T` of its first argument, and the consumer's state must provide it.
/// `#[derive(Provide)]` of the crate `twinbox` writes one implementation per field. Every state provides
/// itself.
///
/// ```
/// use twinbox_consumer::Provide;
///
/// struct Vat { percent: u8 }
/// struct App { vat: Vat }
///
/// // `#[derive(Provide)]` writes this:
/// impl Provide<Vat> for App {
///     fn provide(&self) -> &Vat {
///         &self.vat
///     }
/// }
///
/// let app = App { vat: Vat { percent: 19 } };
/// let vat: &Vat = app.provide();
/// assert_eq!(vat.percent, 19);
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler needs `{T}`, which the runtime's state `{Self}` does not provide",
    label = "does not provide `{T}`",
    note = "put a field of type `{T}` in `{Self}` and `#[derive(Provide)]` on it, or write \
            `impl Provide<{T}> for {Self}`"
)]
pub trait Provide<T> {
    /// Returns the part of the application's state that a handler asks for.
    fn provide(&self) -> &T;
}

impl<T> Provide<T> for T {
    fn provide(&self) -> &T {
        self
    }
}

/// A function marked with `#[event_handler]`. The macro implements this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event handler for database `{DB}` with state `{S}`",
    note = "`#[event_handler(consumer = \"…\")]` makes one of an async function"
)]
pub trait EventHandler<DB: Dialect, S> {
    /// The options of `#[event_handler(…)]`.
    const POLICY: Policy;
    /// The event that the function handles.
    type Event: Event;

    /// Returns the handler as [`Consumer::register`](crate::Consumer::register) takes it.
    fn handler() -> Handler<DB, S>;
}

/// The future of a handler, unless its input cannot be decoded.
type Started<'a> = Result<HandlerFuture<'a>, DecodeError>;
type Each<DB, S> = dyn for<'a> Fn(&'a S, &'a mut Tx<'a, DB>, &'a Message, u32) -> Started<'a> + Send + Sync;
type Batch<DB, S> =
    dyn for<'a> Fn(&'a S, &'a mut BatchTx<'a, DB>, &'a [&'a Message], u32) -> Started<'a> + Send + Sync;

/// The function of a handler as the consumer stores it: for single deliveries or for batches, and for any
/// type of event.
#[doc(hidden)]
#[expect(missing_debug_implementations, reason = "only closures")]
pub enum Run<DB: Dialect, S> {
    Each(Box<Each<DB, S>>),
    Batch(Box<Batch<DB, S>>),
}

/// A handler with its policy, as a [`Consumer`](crate::Consumer) runs it. Made by [`handler_fn`],
/// [`EventHandler::handler`] or [`Handler::new`].
pub struct Handler<DB: Dialect, S> {
    pub(crate) policy: Policy,
    pub(crate) event_type: &'static str,
    pub(crate) versions: Vec<u32>,
    pub(crate) has_key: bool,
    pub(crate) run: Run<DB, S>,
}

impl<DB: Dialect, S> Handler<DB, S> {
    /// Makes a handler of a closure that returns a boxed future.
    ///
    /// `#[event_handler]` expands to this. Write it yourself for a closure that captures:
    ///
    /// ```
    /// use twinbox_consumer::{Delivery, Handler, Policy};
    /// use twinbox_core::Event;
    /// use twinbox_sql::Dialect;
    ///
    /// fn audit<DB: Dialect, E: Event>(channel: std::sync::mpsc::SyncSender<String>) -> Handler<DB, ()> {
    ///     Handler::new::<(), Delivery<E>>(Policy::new("audit"), move |_, _tx, event| {
    ///         let channel = channel.clone();
    ///         Box::pin(async move { Ok(channel.try_send(event.id().to_string())?) })
    ///     })
    /// }
    /// ```
    pub fn new<A: 'static, I: HandlerInput>(
        policy: Policy,
        call: impl for<'a> Fn(&'a A, &'a mut I::Tx<'a, DB>, I) -> HandlerFuture<'a> + Send + Sync + 'static,
    ) -> Self
    where
        S: Provide<A>,
    {
        Self::erased::<I>(policy, I::erase(call))
    }

    fn erased<I: HandlerInput>(policy: Policy, run: Run<DB, S>) -> Self {
        let (event_type, versions) = (I::Event::TYPE, I::Event::versions());
        Self { policy, event_type, versions, has_key: I::Event::HAS_KEY, run }
    }
}

impl<DB: Dialect, S> Handler<DB, S> {
    /// Returns how many deliveries may be in this process while other handlers have deliveries too. For each
    /// single delivery that runs, another one waits here, so that the next can start without asking the
    /// source.
    pub(crate) fn in_flight_max(&self) -> usize {
        let each = if matches!(self.run, Run::Batch(_)) { self.policy.batch } else { 2 };
        self.policy.concurrency.max(1).saturating_mul(each)
    }

    /// Checks that the handler can run under a lease on partitions.
    pub(crate) fn check_lease(&self, lease: Duration) -> Result<(), Error> {
        let Policy { consumer, timeout, has_timeout, .. } = self.policy;
        let event_type = self.event_type;
        let message = if matches!(self.run, Run::Batch(_)) {
            format!(
                "the consumer {consumer:?} needs the order of keys, so batches of {event_type:?} would have \
                 one message each: take `Delivery` without `batch = …`, or write `order = \"none\"`"
            )
        } else if has_timeout && timeout > lease {
            format!(
                "the consumer {consumer:?} keeps the order of keys with a lease of {lease:?}, which ends an \
                 attempt at {event_type:?} before its `timeout` of {timeout:?}: write \
                 `.lease(Duration::from_millis({}))` at the `Consumer`, or a shorter `timeout`",
                timeout.as_millis()
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Configuration, message))
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

/// Makes a handler of an `async fn`, without the macro.
///
/// The function takes `(&App, &mut Tx<'_, DB>, Delivery<E>)`, or `(&App, &mut BatchTx<'_, DB>,
/// Vec<Delivery<E>>)` for batches. An `async` closure is accepted if it annotates its parameters and captures
/// nothing; for one that captures use [`Handler::new`].
///
/// ```
/// use sqlx::Postgres;
/// use twinbox_consumer::{Delivery, Handler, Policy, handler_fn};
/// use twinbox_core::Event;
/// use twinbox_sql::{HandlerResult, Tx};
///
/// async fn log<E: Event>(_: &(), tx: &mut Tx<'_, Postgres>, event: Delivery<E>) -> HandlerResult {
///     let event_id = &event.message().id;
///     sqlx::query("INSERT INTO seen (event_id) VALUES ($1)").bind(event_id).execute(&mut **tx).await?;
///     Ok(())
/// }
///
/// fn handler<E: Event>() -> Handler<Postgres, ()> {
///     handler_fn(Policy::new("audit.log").max_attempts(5), log::<E>)
/// }
/// ```
pub fn handler_fn<DB, S, A, I, F>(policy: Policy, f: F) -> Handler<DB, S>
where
    DB: Dialect,
    S: Provide<A>,
    A: 'static,
    F: for<'a> HandlerFn<'a, DB, A, I>,
    I: HandlerInput,
{
    Handler::erased::<I>(policy, I::erase(move |app, tx, input| f.call(app, tx, input)))
}

/// A function that [`handler_fn`] takes.
///
/// The lifetime is a parameter of the trait, because stable Rust cannot require the future of an `AsyncFn` to
/// be `Send`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an event handler",
    label = "expected `async fn(&App, &mut Tx<'_, DB>, Delivery<E>) -> HandlerResult`, or `BatchTx` with \
             `Vec<Delivery<E>>`",
    note = "its future must be `Send`; `#[event_handler]` says which value is not"
)]
pub trait HandlerFn<'a, DB: Dialect, A: 'a, I: HandlerInput>: Send + Sync + 'static {
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

/// The input of a handler: [`Delivery<E>`](Delivery), or a `Vec` of them for batches. Sealed.
#[diagnostic::on_unimplemented(
    message = "a handler takes `Delivery<E>` or `Vec<Delivery<E>>`, not `{Self}`",
    label = "not a delivery"
)]
pub trait HandlerInput: sealed::Sealed + Sized + Send + 'static {
    /// The event that is delivered.
    type Event: Event;
    #[doc(hidden)]
    type Tx<'t, DB: Dialect>: 't;
    #[doc(hidden)]
    fn erase<DB: Dialect, S: Provide<A>, A: 'static, F>(f: F) -> Run<DB, S>
    where
        F: for<'a> Fn(&'a A, &'a mut Self::Tx<'a, DB>, Self) -> HandlerFuture<'a> + Send + Sync + 'static;
}

impl<E: Event> HandlerInput for Delivery<E> {
    type Event = E;
    type Tx<'t, DB: Dialect> = Tx<'t, DB>;

    fn erase<DB: Dialect, S: Provide<A>, A: 'static, F>(f: F) -> Run<DB, S>
    where
        F: for<'a> Fn(&'a A, &'a mut Tx<'a, DB>, Self) -> HandlerFuture<'a> + Send + Sync + 'static,
    {
        Run::Each(Box::new(move |state, tx, message, attempt| {
            Ok(f(state.provide(), tx, Delivery::decode(message, attempt)?))
        }))
    }
}

impl<E: Event> HandlerInput for Vec<Delivery<E>> {
    type Event = E;
    type Tx<'t, DB: Dialect> = BatchTx<'t, DB>;

    fn erase<DB: Dialect, S: Provide<A>, A: 'static, F>(f: F) -> Run<DB, S>
    where
        F: for<'a> Fn(&'a A, &'a mut BatchTx<'a, DB>, Self) -> HandlerFuture<'a> + Send + Sync + 'static,
    {
        Run::Batch(Box::new(move |state, tx, messages, attempt| {
            let batch = messages.iter().map(|m| Delivery::decode(m, attempt)).collect::<Result<_, _>>()?;
            Ok(f(state.provide(), tx, batch))
        }))
    }
}

/// The transaction that a handler of `I` takes. Its associated database lets generated code see through type
/// aliases.
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
