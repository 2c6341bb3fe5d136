//! Labels of metrics whose values come from outside.
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// The first values of a label, up to a number. A series for each further one would have no bound.
#[derive(Debug)]
pub struct BoundedLabel {
    max: usize,
    known: Mutex<HashSet<String>>,
}

impl BoundedLabel {
    /// A label with at most so many values of its own.
    pub fn new(max: usize) -> Self {
        Self { max, known: Mutex::default() }
    }

    /// Returns the value itself, or `other` once there are as many as there may be.
    pub fn of<'v>(&self, value: &'v str) -> &'v str {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.contains(value) || (known.len() < self.max && known.insert(value.to_owned()));
        if is_known { value } else { "other" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_values_make_no_label_without_bound() {
        let label = BoundedLabel::new(50);
        let values = HashSet::<_>::from_iter((0..1000).map(|n| label.of(&format!("v{n}")).to_owned()));
        assert_eq!(values.len(), 51);
        assert_eq!((label.of("v0"), label.of("v999")), ("v0", "other"));
    }
}
