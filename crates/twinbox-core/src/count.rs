//! Numbers that are counted here and for a recorder.
use metrics::Counter;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// One number, here and for the recorder.
pub struct Count {
    here: AtomicU64,
    recorded: Counter,
}

impl Count {
    /// Counts from 0.
    pub fn new(recorded: Counter) -> Self {
        Self { here: AtomicU64::new(0), recorded }
    }

    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.here.fetch_add(n, Relaxed);
        self.recorded.increment(n);
    }

    /// What was counted here.
    pub fn get(&self) -> u64 {
        self.here.load(Relaxed)
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
