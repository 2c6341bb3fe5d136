//! The decision after a failed try.
use crate::vendor::{Certainty, KeyPlace, Recovery, VendorError, VendorProfile};
use std::time::Duration;
use twinbox_core::RetryPolicy;

/// The decision after a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Try again after this wait.
    Retry(Duration),
    /// Give up. The caller may come again after this wait, if one is known.
    Stop(Option<Duration>),
}

/// Decides after try number `attempt`, with so much of the budget left. Never waits less than the vendor
/// asks for, and never longer than the budget.
pub(super) fn next(
    profile: &VendorProfile,
    policy: &RetryPolicy,
    error: &VendorError,
    attempt: u32,
    left: Duration,
    random: f64,
) -> Next {
    let asked = error.earliest_retry();
    if !error.is_retryable() || !is_safe(profile, error) {
        return Next::Stop(asked);
    }
    let Some(delay) = policy.next(attempt, random) else { return Next::Stop(asked) };
    let wait = delay.max(asked.unwrap_or_default());
    if wait < left { Next::Retry(wait) } else { Next::Stop(Some(wait)) }
}

/// Whether another try with the same key makes the vendor act once at most, or is allowed to act twice.
pub(super) fn is_safe(profile: &VendorProfile, error: &VendorError) -> bool {
    let has_key = profile.key != KeyPlace::Nowhere;
    error.certainty() != Certainty::MaybeApplied
        || match profile.recovery {
            Recovery::NativeKey { .. } => has_key,
            Recovery::AtLeastOnce => true,
            Recovery::LookUp { .. } | Recovery::Operator | Recovery::AtMostOnce => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::{ErrorCode, profiles};
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_secs(1000);

    fn timed_out() -> VendorError {
        VendorError::maybe_applied(ErrorCode::Timeout, "")
    }

    /// R12: a try that may have acted is repeated only where the vendor acts once.
    #[test]
    fn only_a_safe_retry_is_made() {
        let policy = RetryPolicy::client();
        let refused = VendorError::not_sent(ErrorCode::Transient, "");
        for (profile, repeats) in [
            (&profiles::STRIPE_V1, true),
            (&profiles::BREVO, true),
            (&profiles::POSTMARK, true),
            (&profiles::TWILIO, false),
            (&profiles::BIGCOMMERCE, false),
        ] {
            let retries = |error| matches!(next(profile, &policy, &error, 1, LONG, 0.0), Next::Retry(_));
            assert_eq!(retries(timed_out()), repeats, "{}", profile.name);
            assert!(retries(VendorError::not_sent(ErrorCode::Transient, "")), "{}", profile.name);
            assert!(!retries(VendorError::not_applied(ErrorCode::Validation, "")), "{}", profile.name);
        }
        let once = profiles::STRIPE_V1.recovery(Recovery::AtMostOnce);
        assert_eq!(next(&once, &policy, &timed_out(), 1, LONG, 0.0), Next::Stop(None));
        assert!(matches!(next(&once, &policy, &refused, 1, LONG, 0.0), Next::Retry(_)));
    }

    proptest! {
        /// R13, R31, D17, D18, t27
        #[test]
        fn a_wait_keeps_all_its_bounds(
            attempt in 1_u32..12,
            random in 0.0..1.0_f64,
            asked in proptest::option::of(0_u64..100_000),
            left_ms in 0_u64..20_000,
            is_vendor in any::<bool>(),
        ) {
            let policy = if is_vendor { RetryPolicy::vendor() } else { RetryPolicy::client() };
            let (asked, left) = (asked.map(Duration::from_secs), Duration::from_millis(left_ms));
            let error = VendorError::not_applied(ErrorCode::RateLimited, "").retry_after(asked);
            let decided = next(&profiles::STRIPE_V1, &policy, &error, attempt, left, random);
            match (decided, policy.next(attempt, random)) {
                (Next::Retry(wait), Some(delay)) => {
                    prop_assert!(wait < left && wait >= delay && wait >= asked.unwrap_or_default());
                    let least = policy.delay(attempt, 0.0);
                    let most = policy.delay(attempt, 1.0).max(asked.unwrap_or_default());
                    prop_assert!(wait >= least && wait <= most);
                }
                (Next::Stop(Some(wait)), Some(delay)) => {
                    prop_assert!(wait >= left && wait >= delay && wait >= asked.unwrap_or_default());
                }
                (Next::Stop(wait), None) => prop_assert_eq!(wait, asked),
                (next, _) => prop_assert!(false, "{next:?}"),
            }
        }
    }
}
