//! The state that all pages share.
use crate::{
    access::{Access, Csrf, Forms, Sessions, Throttle},
    broker::BrokerLag,
    samples::Samples,
};
use std::sync::Arc;
use tokio_util::task::TaskTracker;
use twinbox_ops::{AlarmBounds, Dialect, Ops};

/// Everything that the pages share.
pub(crate) struct App<DB: Dialect> {
    pub(crate) ops: Ops<DB>,
    pub(crate) database: String,
    pub(crate) bounds: AlarmBounds,
    pub(crate) samples: Samples,
    pub(crate) broker: Option<Box<dyn BrokerLag>>,
    pub(crate) gate: Arc<Gate>,
    /// Changes under way.
    pub(crate) changes: TaskTracker,
}

/// The parts that decide about access.
pub(crate) struct Gate {
    pub(crate) access: Access,
    pub(crate) sessions: Sessions,
    pub(crate) csrf: Csrf,
    pub(crate) forms: Forms,
    pub(crate) throttle: Throttle,
}
