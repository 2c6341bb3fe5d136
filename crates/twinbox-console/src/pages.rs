//! The pages that read.
pub(crate) mod audit;
pub(crate) mod bulk_actions;
pub(crate) mod consumers;
pub(crate) mod dead_letters;
pub(crate) mod effects;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod messages;
pub(crate) mod overview;
pub(crate) mod replays;
