//! What templates do to values.
use crate::moment::Moment;
use askama::{Result, Values};
use twinbox_ops::{Timestamp, wording};

/// The digits of a slot that are shown.
const SLOT_DIGITS: usize = 16;

/// Shows control characters instead of sending them.
#[askama::filter_fn]
pub(crate) fn plain(text: impl std::fmt::Display, _: &dyn Values) -> Result<String> {
    Ok(wording::plain(&text.to_string()))
}

/// A time that a script shows in the zone of the reader.
#[askama::filter_fn]
pub(crate) fn moment(time: &Timestamp, _: &dyn Values) -> Result<Moment> {
    Ok(Moment(*time))
}

/// A count that ends at its bound.
#[askama::filter_fn]
pub(crate) fn bounded(count: &u64, _: &dyn Values) -> Result<String> {
    Ok(wording::bounded_number(*count))
}

/// The first digits of a slot.
#[askama::filter_fn]
pub(crate) fn slot(slot: impl std::fmt::Display, _: &dyn Values) -> Result<String> {
    Ok(slot.to_string().chars().take(SLOT_DIGITS).collect())
}
