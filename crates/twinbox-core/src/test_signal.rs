//! Test signals: places in the code that a test waits for, where nothing else shows that they were passed.

/// Records that this thread passes the signal `name`, for tests.
///
/// Without the feature `test-signals` this does nothing.
#[inline]
pub fn pass(name: &'static str) {
    #[cfg(feature = "test-signals")]
    counted::PASSED.with_borrow_mut(|passed| *passed.entry(name).or_default() += 1);
    let _ = name;
}

/// Returns how often this thread has passed the signal `name`, for tests.
///
/// A test sees its own signals only if all its tasks run on its thread, as in a runtime of one thread.
#[cfg(feature = "test-signals")]
pub fn passed(name: &'static str) -> u64 {
    counted::PASSED.with_borrow(|passed| passed.get(name).copied().unwrap_or_default())
}

#[cfg(feature = "test-signals")]
mod counted {
    use std::{cell::RefCell, collections::HashMap};

    thread_local! {
        pub(super) static PASSED: RefCell<HashMap<&'static str, u64>> = RefCell::default();
    }
}
