//! `#[event_handler]`, `#[derive(Event)]` and `#[derive(Provide)]`, which the `twinbox` facade re-exports.
//!
//! The written code names only the facade, so a program depends on `twinbox` and never on this crate.
use proc_macro::TokenStream;

mod event;
mod handler;
mod options;
mod policy;
mod provide;

/// Makes an async function an event handler, registered as `consumer.handler::<invoice>()`.
///
/// A handler is `async fn(app: &App, tx: &mut Tx<'_, DB>, event: Delivery<E>) -> HandlerResult`. It may do
/// without `app`, be generic over `DB: Dialect`, and take a batch: `&mut BatchTx<'_, DB>` with
/// `Vec<Delivery<E>>`.
///
/// | option | |
/// |---|---|
/// | `consumer = "billing.invoice"` | required; names the handler in the inbox, for good: words of `a-z`, `0-9`, `_`, `-` joined by dots, at most 120 bytes |
/// | `max_attempts = 12` | failed attempts until the delivery is dead |
/// | `retry = "vendor"` | the delays between attempts, and when to give up unless `max_attempts` says: 500 ms, 2 s, 5 s, 30 s; `"client"`: 10 s in all; or a constant of type `RetryPolicy` |
/// | `order = "key"` | deliveries of one key one after another; `"none"`: in any order |
/// | `batch = 200` | deliveries in one transaction at most; needed by, and only for, a batch handler |
/// | `concurrency = 8` | transactions beside each other |
/// | `timeout = "30s"` | for one attempt: a number and `ms`, `s` or `m` |
/// | `crash_limit = 5` | processes that may die with this handler running on a message alone, until the delivery is dead |
///
/// What is left out has the default of `twinbox::Policy`.
///
/// # Example
/// Ignored as a test, because this crate does not depend on the facade:
/// ```text
/// #[event_handler(consumer = "billing.invoice", max_attempts = 12, timeout = "30s")]
/// async fn invoice(app: &App, tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
///     app.invoices.write(tx, order.order_id).await?;
///     Ok(())
/// }
/// ```
/// leaves the function as it stands, to be called by tests, and writes beside it
/// ```text
/// struct invoice {}
///
/// impl<S> twinbox::EventHandler<Postgres, S> for invoice
/// where
///     S: twinbox::Provide<App> + Send + Sync + 'static,
/// {
///     const POLICY: Policy =
///         twinbox::Policy::new("billing.invoice").max_attempts(12).timeout(Duration::from_millis(30_000));
///     type Event = OrderPlaced;
///
///     fn handler() -> twinbox::Handler<Postgres, S> {
///         twinbox::Handler::new::<App, Delivery<OrderPlaced>>(
///             <Self as twinbox::EventHandler<Postgres, S>>::POLICY,
///             |app, tx, input| Box::pin(invoice(app, tx, input)),
///         )
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn event_handler(attr: TokenStream, item: TokenStream) -> TokenStream {
    // The function stays whatever is wrong, so that one mistake is one error.
    let function = proc_macro2::TokenStream::from(item);
    let beside =
        handler::expand(attr.into(), function.clone()).unwrap_or_else(syn::Error::into_compile_error);
    [function, beside].into_iter().collect::<proc_macro2::TokenStream>().into()
}

/// Names the type, the version and the key of an event, and reads older versions of it.
///
/// | `#[event(…)]` | |
/// |---|---|
/// | `type = "orders.placed"` | required: words of `a-z`, `0-9`, `_`, `-` joined by dots, at most 128 bytes |
/// | `version = 2` | required, counted from 1 |
/// | `key = order_id` | the field, or path of fields like `order.id`, whose text orders events; without it there is no order |
/// | `subject = order_id` | the field whose text is the CloudEvents subject |
/// | `previous = OrderPlacedV1` | the version before, from which this one is made by `From` or `TryFrom` |
/// | `retired` | can be decoded, but neither published nor handled |
///
/// A key or a subject is the `ToString` of its field. An `Option` has none and is refused: a key that is there
/// only at times would order only some of the events.
///
/// # Example
/// Ignored as a test, because this crate does not depend on the facade:
/// ```text
/// #[derive(Serialize, Deserialize, Event)]
/// #[event(type = "orders.placed", version = 2, key = order_id, previous = OrderPlacedV1)]
/// struct OrderPlaced {
///     order_id: i64,
/// }
/// ```
/// writes
/// ```text
/// impl twinbox::Schema for OrderPlaced {
///     const TYPE: &'static str = "orders.placed";
///     const VERSION: u32 = 2;
///
///     fn decode(version: u32, payload: &[u8]) -> Result<Self, twinbox::DecodeError> {
///         match version {
///             2 => Ok(serde_json::from_slice(payload)?),
///             older if older < 2 => Self::try_from(OrderPlacedV1::decode(older, payload)?)
///                 .map_err(|e| twinbox::DecodeError::Upcast { from: OrderPlacedV1::VERSION, source: e.into() }),
///             found => Err(twinbox::DecodeError::Newer { found, known: 2 }),
///         }
///     }
///
///     fn versions() -> Vec<u32> {
///         let mut versions = OrderPlacedV1::versions();
///         versions.push(2);
///         versions
///     }
/// }
///
/// impl twinbox::Event for OrderPlaced {
///     fn key(&self) -> Option<String> {
///         Some(self.order_id.to_string())
///     }
/// }
/// ```
/// and checks, while compiling, that `OrderPlacedV1` has the same type name and an older version.
#[proc_macro_derive(Event, attributes(event))]
pub fn event(item: TokenStream) -> TokenStream {
    derive(item, event::expand)
}

/// Gives handlers each field of the runtime's state. `#[provide(skip)]` leaves a field out.
///
/// Two fields of one type need `skip` on one of them, or a type of its own: a handler asks by type.
///
/// # Example
/// Ignored as a test, because this crate does not depend on the facade:
/// ```text
/// #[derive(Provide)]
/// struct State {
///     billing: billing::App,
///     #[provide(skip)]
///     started: Instant,
/// }
/// ```
/// writes
/// ```text
/// impl twinbox::Provide<billing::App> for State {
///     fn provide(&self) -> &billing::App {
///         &self.billing
///     }
/// }
/// ```
#[proc_macro_derive(Provide, attributes(provide))]
pub fn provide(item: TokenStream) -> TokenStream {
    derive(item, provide::expand)
}

fn derive(
    item: TokenStream,
    expand: fn(&syn::DeriveInput) -> syn::Result<proc_macro2::TokenStream>,
) -> TokenStream {
    syn::parse(item).and_then(|input| expand(&input)).unwrap_or_else(syn::Error::into_compile_error).into()
}
