//! The options of a vendor in a dispatcher.
use std::time::Duration;
use twinbox_core::{RetryPolicy, limits::bounded};

/// How a dispatcher sends the effects of one vendor.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct VendorOptions {
    pub(super) in_flight: usize,
    pub(super) timeout: Duration,
    pub(super) retries: RetryPolicy,
}

impl VendorOptions {
    /// Returns the default options: 64 sends at a time, 30 s for a send, and the retries of
    /// [`RetryPolicy::vendor`].
    pub const fn new() -> Self {
        Self { in_flight: 64, timeout: Duration::from_secs(30), retries: RetryPolicy::vendor() }
    }

    /// Sets how many sends are under way at a time: 1 to 1,000. They hold at most 16 MiB of requests
    /// together, and one request more.
    pub const fn in_flight(self, in_flight: usize) -> Self {
        Self { in_flight: if in_flight > 1000 { 1000 } else { in_flight }, ..self }
    }

    /// Sets how long a send or a look-up may take. After a crash an effect waits for this and 15 s more.
    pub const fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: bounded(timeout), ..self }
    }

    /// Sets the delays between sends, and when to give up.
    pub const fn retries(self, retries: RetryPolicy) -> Self {
        Self { retries, ..self }
    }
}

impl Default for VendorOptions {
    fn default() -> Self {
        Self::new()
    }
}
