//! Forms that were sent: one makes one change, however often a browser sends it.
use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The most sent forms that are remembered. Older forms are refused.
const SENT_MAX: usize = 1000;

/// Numbers the forms of changes.
#[derive(Default)]
pub(crate) struct Forms {
    begun: AtomicU64,
    /// In the order in which they were sent, and below which number no form is good any more.
    sent: Mutex<(VecDeque<u64>, u64)>,
}

impl Forms {
    /// Returns the number of a new form.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether a form was not sent before, and notes that it is now.
    pub(crate) fn take(&self, form: u64) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let (forms, first_good) = &mut *sent;
        if form < *first_good || form >= self.begun.load(Ordering::Relaxed) || forms.contains(&form) {
            return false;
        }
        forms.push_back(form);
        if forms.len() > SENT_MAX
            && let Some(oldest) = forms.pop_front()
        {
            *first_good = (*first_good).max(oldest + 1);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_taken_once() {
        let forms = Forms::default();
        let (one, other) = (forms.begin(), forms.begin());
        assert!(!forms.take(other + 1), "it was never begun");
        assert!(forms.take(other) && forms.take(one));
        assert!(!forms.take(one) && !forms.take(other));
        for _ in 0..SENT_MAX {
            assert!(forms.take(forms.begin()));
        }
        assert!(!forms.take(one) && !forms.take(other), "it is remembered no more, and refused");
    }
}
