//! The settings of a client.
use crate::vendor::VendorProfile;
use std::time::Duration;
use twinbox_core::RetryPolicy;

/// How a client calls its vendor.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) profile: VendorProfile,
    pub(super) retries: RetryPolicy,
    pub(super) budget: Duration,
    pub(super) timeout: Duration,
    pub(super) sends_timeout: bool,
}
