//! Forms of changes: each makes one change, however often a browser sends it.
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// The most forms that may still be sent. The oldest is refused for a new one.
const OPEN_MAX: usize = 1000;

/// Numbers the forms of changes, and knows those that may still be sent.
#[derive(Default)]
pub(crate) struct Forms(Mutex<Open>);

#[derive(Default)]
struct Open {
    forms: VecDeque<u64>,
    next: u64,
}

impl Forms {
    /// Returns the number of a new form.
    pub(crate) fn begin(&self) -> u64 {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.forms.len() == OPEN_MAX {
            open.forms.pop_front();
        }
        let form = open.next;
        open.next += 1;
        open.forms.push_back(form);
        form
    }

    /// Returns whether a form may be sent. It may not again.
    pub(crate) fn take(&self, form: u64) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = open.forms.iter().position(|one| *one == form);
        at.and_then(|at| open.forms.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_taken_once() {
        let forms = Forms::default();
        let (one, other, third) = (forms.begin(), forms.begin(), forms.begin());
        assert!(!forms.take(third + 1), "it was never begun");
        assert!(forms.take(other) && forms.take(one));
        assert!(!forms.take(one) && !forms.take(other));
        for _ in 0..OPEN_MAX {
            forms.begin();
        }
        assert!(!forms.take(third), "newer forms have taken its place");
    }
}
