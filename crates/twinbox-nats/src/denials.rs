//! What a server does not let us publish.
//!
//! It says so with the subject, and not in place of the acknowledgement, for which each such message waits in vain.
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// For how long a denial is believed. Then a message is sent again, in case it was allowed meanwhile.
const BELIEVED: Duration = Duration::from_secs(5);
/// Subjects that are remembered.
const SUBJECTS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Denials {
    any: AtomicBool,
    subjects: Mutex<HashMap<String, Instant>>,
}

impl Denials {
    /// Takes note of an error of the server, if it says that something may not be published.
    pub(crate) fn note(&self, error: &str) {
        if !error.to_ascii_lowercase().contains("permissions violation for publish") {
            return;
        }
        self.any.store(true, Relaxed);
        let Some(subject) = error.split('"').nth(1) else { return };
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        if subjects.len() >= SUBJECTS_MAX {
            subjects.retain(|_, at| at.elapsed() < BELIEVED);
        }
        if subjects.len() < SUBJECTS_MAX {
            subjects.insert(subject.to_owned(), Instant::now());
        }
    }

    /// Whether the server has denied anything on this connection.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Whether it has denied this subject of late.
    pub(crate) fn denies(&self, subject: &str) -> bool {
        self.any() && {
            let subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
            subjects.get(subject).is_some_and(|at| at.elapsed() < BELIEVED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_denial_is_known() {
        let denials = Denials::default();
        denials.note("Authorization Violation");
        assert!(!denials.any());
        denials.note("Permissions Violation for Publish to \"events.3.orders.placed\"");
        assert!(denials.denies("events.3.orders.placed") && !denials.denies("events.3.orders"));
        for n in 0..2 * SUBJECTS_MAX {
            denials.note(&format!("Permissions Violation for Publish to \"s.{n}\""));
        }
        assert!(denials.subjects.lock().unwrap().len() <= SUBJECTS_MAX);
    }
}
