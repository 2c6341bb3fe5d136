//! A change that could be made.
use std::time::Duration;
use twinbox_ops::{
    dead_letters::BulkPlan,
    effects::{Change, EffectId},
    replays::ReplayPlan,
};

/// A change that could be made.
pub(crate) struct Prepared {
    pub(crate) title: &'static str,
    /// A sentence: "This will …".
    pub(crate) effect: String,
    /// The sentences that an operator must not overlook.
    pub(crate) warnings: Vec<String>,
    /// The newest or first things that would change: columns and rows.
    pub(crate) sample: Sample,
    /// The command that does the same. Empty: there is none.
    pub(crate) command: String,
    /// The command and the changed thing, for the audit.
    pub(crate) audit: &'static str,
    pub(crate) target: String,
    /// The fields of the form.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) needs_reason: bool,
    /// Why there is nothing to do.
    pub(crate) nothing: Option<String>,
    pub(crate) deed: Deed,
}

/// A table.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) caption: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The call that makes a change.
pub(crate) enum Deed {
    Bulk(Box<BulkPlan>, Duration),
    CancelBulk(i64),
    PauseDestination(String),
    ResumeDestination(String),
    PauseConsumer(String),
    ResumeConsumer(String),
    PauseVendor(String),
    ResumeVendor(String),
    Replay(Box<ReplayPlan>, Option<String>, Option<u32>),
    PauseReplay(i64),
    ResumeReplay(i64),
    CancelReplay(i64),
    Effect(EffectId, Change),
    UnblockKey(String, String),
    SkipMessage(String, String),
    RetryParked(String, Option<String>),
}
