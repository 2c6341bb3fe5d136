//! Twinbox for operators: what is wrong, what happened to a message, and acts that mend it.
//!
//! The tool `twinbox` is made of this. [`Ops`] reads and changes the database of a store; the running relays
//! and consumers notice the changes by themselves. Acts leave an entry in the audit if their caller makes one
//! with [`Ops::begin_audit`].

mod alarms;
mod audit;
mod backlog;
mod consumer_lag;
mod consumers;
pub mod dead_letters;
mod destinations;
mod deviation;
mod drift;
mod duration;
pub mod effects;
mod grants;
mod guards;
mod jobs;
mod keys;
mod locks;
mod ops;
mod parked;
mod redact;
pub mod replays;
mod status;
pub mod trail;
mod vendors;
pub mod wording;

pub use alarms::AlarmBounds;
pub use audit::{AuditEntry, AuditIntent};
pub use backlog::{Backlog, BacklogState};
pub use consumer_lag::{ConsumerBacklog, PartitionCheckpoint};
pub use consumers::ConsumerInfo;
pub use destinations::{RebaseReport, RetireReport};
pub use deviation::{Deviation, DeviationKind};
pub use drift::DriftCheck;
#[doc(hidden)]
pub use duration::parse_duration;
#[doc(hidden)]
pub use grants::documented_rights;
pub use grants::{Role, grants_sql, grants_sql_mysql};
pub use jobs::JobInfo;
pub use keys::{KEY_SCANNED_MAX, KeyPage};
pub use locks::TableLock;
pub use ops::Ops;
pub use parked::{ParkedDelivery, ParkedMessage};
pub use redact::RedactReport;
pub use status::{BACKLOG_MAX, ReaderStatus};
#[doc(hidden)]
pub use twinbox_core::task_name;
pub use twinbox_core::{Message, Timestamp, TypePattern};
pub use twinbox_sql::{
    Dialect, Error, ErrorKind, Selection, Store,
    operation::UnfinishedOperation,
    replay::{Replay, ReplayState},
};
pub use vendors::{VENDORS_MAX, VendorInfo};
