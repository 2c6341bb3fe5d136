//! Counters that the program itself can read.
use metrics::Counter;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// A counter whose value the program can read, and which the metrics recorder counts too.
pub struct Count {
    total: AtomicU64,
    recorded: Counter,
}

impl Count {
    /// Creates a counter that starts at 0 and also increments `recorded`.
    pub fn new(recorded: Counter) -> Self {
        Self { total: AtomicU64::new(0), recorded }
    }

    /// Adds `n` to this counter.
    pub fn add(&self, n: u64) {
        self.total.fetch_add(n, Relaxed);
        self.recorded.increment(n);
    }

    /// Returns the sum of all additions.
    pub fn get(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
