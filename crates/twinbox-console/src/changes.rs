//! The changes that an operator may make: what each would do, and doing it.
//!
//! A change is prepared twice: for its preview, and again when it is confirmed. The form carries what was
//! shown, with times that no longer move.
mod act;
mod dead_letters;
mod effects;
mod fields;
mod prepared;
mod readers;
mod replays;

pub(crate) use act::{done, make, prepare};
pub(crate) use dead_letters::filter;
pub(crate) use fields::Fields;
pub(crate) use prepared::Prepared;
