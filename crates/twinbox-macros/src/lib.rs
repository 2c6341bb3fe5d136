//! The macros of Twinbox: `#[event_handler]`, `#[derive(Event)]` and `#[derive(Provide)]`.
//!
//! The facade `twinbox` re-exports them. The code that they write names only the facade, so a program depends
//! on `twinbox` and not on this crate.
use proc_macro::TokenStream;

mod event;
mod handler;
mod options;
mod policy;
mod provide;

/// Makes an async function an event handler, which is registered by `consumer.handler::<invoice>()`.
///
/// A handler is `async fn(app: &App, tx: &mut Tx<'_, DB>, event: Delivery<E>) -> HandlerResult`. The argument
/// `app` is optional. The handler can be generic over `DB: Dialect`. A batch handler takes
/// `&mut BatchTx<'_, DB>` and `Vec<Delivery<E>>`.
///
/// # Options
///
/// - `consumer = "billing.invoice"`: required. The durable name of the consumer, which the inbox stores.
///   Words of `a-z`, `0-9`, `_` and `-` joined by dots, at most 120 bytes.
/// - `max_attempts = 12`: the number of failed attempts after which the message becomes a dead letter.
/// - `retry = "vendor"`: the delays between attempts. `"vendor"` is 500 ms, 2 s, 5 s and 30 s, `"client"` is
///   at most 10 s in all; anything else is a constant of type `RetryPolicy`. It also ends the attempts,
///   unless `max_attempts` is set.
/// - `order = "key"`: deliveries of one key are handled one after another. `"none"`: in any order.
/// - `batch = 200`: the number of deliveries in one transaction. Required for a batch handler, and only for
///   it.
/// - `concurrency = 8`: the number of transactions at the same time.
/// - `timeout = "30s"`: the time-out of one attempt, a number with `ms`, `s` or `m`.
/// - `crash_limit = 5`: the number of crashes, while the handler runs this message alone, after which the
///   message becomes a dead letter.
///
/// An option that is left out has the default of `twinbox::Policy`.
///
/// # Example
/// (This crate does not depend on the facade, so the example is not compiled here.)
/// ```text
/// #[event_handler(consumer = "billing.invoice", max_attempts = 12, timeout = "30s")]
/// async fn invoice(app: &App, tx: &mut Tx<'_, Postgres>, order: Delivery<OrderPlaced>) -> HandlerResult {
///     app.invoices.write(tx, order.order_id).await?;
///     Ok(())
/// }
/// ```
/// The macro does not change the function, so tests can call it. It adds this code:
/// ```text
/// struct invoice {}
///
/// impl<S> twinbox::consumer::EventHandler<Postgres, S> for invoice
/// where
///     S: twinbox::Provide<App> + Send + Sync + 'static,
/// {
///     const POLICY: Policy =
///         twinbox::Policy::new("billing.invoice").max_attempts(12).timeout(Duration::from_millis(30_000));
///     type Event = OrderPlaced;
///
///     fn handler() -> twinbox::consumer::Handler<Postgres, S> {
///         twinbox::consumer::Handler::new::<App, Delivery<OrderPlaced>>(
///             <Self as twinbox::consumer::EventHandler<Postgres, S>>::POLICY,
///             |app, tx, input| Box::pin(invoice(app, tx, input)),
///         )
///     }
/// }
/// ```
#[proc_macro_attribute]
pub fn event_handler(attr: TokenStream, item: TokenStream) -> TokenStream {
    // The function is kept also after an error, or each of its callers would be an error too.
    let function = proc_macro2::TokenStream::from(item);
    let handler =
        handler::expand(attr.into(), function.clone()).unwrap_or_else(syn::Error::into_compile_error);
    [function, handler].into_iter().collect::<proc_macro2::TokenStream>().into()
}

/// Implements `Event` and `Schema`: the type name, the version and the key of an event, and the conversion of
/// its older versions.
///
/// # Options of `#[event(…)]`
///
/// - `type = "orders.placed"`: required. Words of `a-z`, `0-9`, `_` and `-` joined by dots, at most 128
///   bytes.
/// - `version = 2`: required. The version of the payload, counted from 1.
/// - `key = order_id`: the field whose text is the key, or a path of fields like `order.id`. Without it the
///   events have no order.
/// - `subject = order_id`: the field whose text is the CloudEvents subject.
/// - `previous = OrderPlacedV1`: the previous version, which is converted to this one by `From` or `TryFrom`.
/// - `retired`: this version can be decoded, but neither published nor handled.
///
/// A key or a subject is the text that `ToString` makes of the field. An `Option` is refused: a key that is
/// sometimes missing would order only some of the events.
///
/// # Example
/// (This crate does not depend on the facade, so the example is not compiled here.)
/// ```text
/// #[derive(Serialize, Deserialize, Event)]
/// #[event(type = "orders.placed", version = 2, key = order_id, previous = OrderPlacedV1)]
/// struct OrderPlaced {
///     order_id: i64,
/// }
/// ```
/// The macro adds this code:
/// ```text
/// impl twinbox::Schema for OrderPlaced {
///     const TYPE: &'static str = "orders.placed";
///     const VERSION: u32 = 2;
///
///     fn decode(version: u32, payload: &[u8]) -> Result<Self, twinbox::DecodeError> {
///         match version {
///             2 => Ok(serde_json::from_slice(payload)?),
///             older if older < 2 => Self::try_from(OrderPlacedV1::decode(older, payload)?).map_err(|e| {
///                 twinbox::DecodeError::Upcast { from: OrderPlacedV1::VERSION, source: e.into() }
///             }),
///             found => Err(twinbox::DecodeError::UnknownNewer { found, known: 2 }),
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
/// The compiler then checks that `OrderPlacedV1` has the same type name and a lower version.
#[proc_macro_derive(Event, attributes(event))]
pub fn event(item: TokenStream) -> TokenStream {
    derive(item, event::expand)
}

/// Implements `Provide` for each field of the runtime's state, so that a handler can take the field as `app`.
///
/// `#[provide(skip)]` leaves a field out. A field is found by its type. If two fields have the same type,
/// skip one of them, or wrap one in its own type.
///
/// # Example
/// (This crate does not depend on the facade, so the example is not compiled here.)
/// ```text
/// #[derive(Provide)]
/// struct State {
///     billing: billing::App,
///     #[provide(skip)]
///     started: Instant,
/// }
/// ```
/// The macro adds this code:
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
