//! Statements in plain SQL, as a database with one writer runs them.
//!
//! A dialect begins with these and overrides the ones that its database needs otherwise.
mod bulk_actions;
mod client_keys;
mod dead_letters;
mod drift;
mod effect_acts;
mod effects;
mod inbox;
mod jobs;
mod log;
mod operations;
mod operators;
mod parking;
mod publishing;
pub mod selection;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
mod without_arrays;

pub(super) use bulk_actions::BULK_ACTIONS;
pub(super) use client_keys::CLIENT_KEYS;
pub(super) use dead_letters::DEAD_LETTERS;
pub(super) use drift::DRIFT;
pub(crate) use drift::{SOURCE_IDS, SOURCE_ORPHANS, SOURCE_PAGE};
pub(super) use effect_acts::EFFECT_ACTS;
#[cfg(feature = "mysql")]
pub(super) use effect_acts::vendors;
pub(super) use effects::EFFECTS;
pub(super) use inbox::{CONSUMERS, INBOX, PARTITIONS};
pub(super) use jobs::JOBS;
pub(super) use log::{CURSORS, HOLES, LOG, REPLAYS, RETENTION};
pub(super) use operations::{OPERATIONS, WEBHOOKS};
#[cfg(feature = "postgres")]
pub(super) use operations::{claim_operation, complete_operation, receive_webhook};
pub(super) use operators::{AUDIT, BACKLOG, REDACTION};
pub(super) use parking::{DELIVERIES, DELIVERY_QUEUE, DESTINATION_QUEUE, PARKED_MESSAGES};
#[cfg(feature = "mysql")]
pub(super) use publishing::move_due;
pub(super) use publishing::{DELAYED, OUTBOX, SETUP};
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) use without_arrays::{park_one_by_one, publish_all};
