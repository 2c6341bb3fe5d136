//! A row of the table.
use crate::{spread::Spread, targets::Target};

/// A row of the table.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) measured: Spread,
    pub(crate) target: Option<&'static Target>,
}

impl Row {
    pub(crate) fn verdict(&self) -> &'static str {
        self.target.map_or("", |target| target.bound.verdict(&self.measured))
    }
}

/// Rounds to what a reader compares.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
