//! Side effects: acts outside the database, such as a mail, a charge or a webhook.
//!
//! An effect is planned in the transaction that wants it, and sent after the commit. Its request and its key
//! for the vendor are fixed when it is planned, so every try is the same one to the vendor.
//!
//! | item | purpose |
//! |---|---|
//! | [`Effects`] | plans effects and compensations in a transaction, and reads them |
//! | [`EffectRequest`] | what is sent, without credentials |
//! | [`Dispatcher`] | sends effects to their vendors |
//! | [`Vendor`], [`HttpVendor`] | how a vendor is called |
//! | [`VendorProfile`], [`profiles`] | what a vendor promises about repeated calls |
//! | [`client`] | calls a vendor at once, with tries, a circuit breaker and a rate gate |
//! | [`ClientKeys`] | keeps the keys of a client over a crash |
//! | [`webhook`] | webhooks that go out, with the feature `reqwest` |
//! | [`drift`] | finds rows without the effects that they should have |
//! | [`Recovery`] | what happens when it is not known whether the vendor acted |
//!
//! # States
//!
//! `pending` → `fired` → `confirmed`. A dispatcher commits `fired` before it sends. The effect goes back
//! to `pending` when the vendor surely did nothing. It becomes `failed` when the dispatcher gives up, and
//! `unknown` when only a person can tell what the vendor did.
//!
//! # Metrics
//!
//! The crate counts through the `metrics` crate, with the labels `vendor` and `kind`, which has no qualifier:
//!
//! | Metric | Counts |
//! |---|---|
//! | `twinbox_effects_sends_total` | Sends of effects to vendors. |
//! | `twinbox_effects_errors_total` | Sends without a confirmation, by `code`. |
//! | `twinbox_effects_provider_duplicates_total` | Effects that an earlier send had done. |
//! | `twinbox_effects_look_ups_total` | Questions to vendors whether they have acted. |
//! | `twinbox_effects_confirmed_total` | Effects that were confirmed. |
//! | `twinbox_effects_failed_total` | Effects that were given up. |
//! | `twinbox_effects_unknown_total` | Effects that a person has to resolve. |
//! | `twinbox_effects_compensated_total` | Confirmed effects that undo another one, by their own kind. |
//! | `twinbox_effects_send_seconds` | Histogram: how long a send takes. |
//! | `twinbox_effects_backlog_age_seconds` | Gauge of a vendor: how long its oldest due effect waits. |
//! | `twinbox_effects_client_calls_total` | Calls of a [`client`], by their `code`, `OK` for a success. |
//! | `twinbox_effects_client_retries_total` | Tries of a client after the first. |
//! | `twinbox_effects_client_retry_delay_seconds` | Histogram: how long a client waits before a retry. |
//! | `twinbox_drift_oldest_expired_seconds` | Gauge: how long the oldest expired key waits for its purge. |
//! | `twinbox_drift_findings` | Gauge, by `check` and `kind`: findings of the last run of drift that hold. |
//! | `twinbox_effects_open_breakers` | Gauge of a vendor: operations whose circuit breaker is not closed. |

pub mod client;
mod client_keys;
mod compensation;
mod dispatcher;
pub mod drift;
mod effects;
pub mod jobs;
mod metrics;
mod request;
mod side_effect;
mod source;
mod token;
mod vendor;
#[cfg(feature = "reqwest")]
pub mod webhook;

pub use client_keys::{BUSINESS_ID_BYTES_MAX, ClientKey, ClientKeyState, ClientKeys, Once};
pub use dispatcher::{Dispatcher, VendorOptions};
pub use effects::{Effects, Planned};
pub use request::{EffectRequest, KIND_BYTES_MAX, TARGET_BYTES_MAX, kind_base};
pub use side_effect::{EffectState, SideEffect};
pub use source::SourceId;
pub use token::{KeyFormat, effect_id, effect_token};
/// How an effect is named: by the position of its row, or by its id.
pub use twinbox_sql::EffectId;
#[cfg(feature = "reqwest")]
pub use vendor::ReqwestService;
pub use vendor::{
    Applied, Certainty, ErrorCode, HttpVendor, KeyPlace, LookUp, Recovery, Response, SendError, Sign, Vendor,
    VendorCall, VendorError, VendorProfile, profiles,
};
