//! The operator's tool: only its program touches what it is about.
mod book;
mod changes;
mod check;
mod doctor;
mod dry;
mod grants;
mod injection;
mod killed;
mod letters;
mod power;
mod replay;
mod runbook;
mod shop;
pub(crate) mod tool;
