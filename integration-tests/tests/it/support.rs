//! Helpers that tests of several subjects share.
pub(crate) mod cases;
pub(crate) mod codec;
pub(crate) mod consumer;
pub(crate) mod effects;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod logged;
pub(crate) mod operations;
pub(crate) mod postgres;
pub(crate) mod processes;
pub(crate) mod refunds;
pub(crate) mod relay;
pub(crate) mod roles;
pub(crate) mod stores;
pub(crate) mod tool;
pub(crate) mod wait;
pub(crate) mod webhooks;
