//! Decides about an effect: before a send, after it, and after a crash.
use crate::{
    side_effect::{EffectState, SideEffect},
    vendor::{Applied, Certainty, ErrorCode, LookUp, Recovery, VendorError},
};
use std::time::Duration;
use twinbox_core::RetryPolicy;

/// How long after a send a vendor is asked what it did, where its profile does not say.
const LOOK_UP_AFTER: Duration = Duration::from_secs(60);
/// How often a blocked compensation is looked at.
const BLOCKED_LOOK: Duration = Duration::from_secs(60);
/// Failures, those of look-ups included, after which no further look-up is made.
const LOOK_UP_FAILURES_MAX: u32 = 20;

/// A row that was claimed.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) effect: SideEffect,
    /// How long the vendor surely knows the key. `None`: there is none, or it never expires.
    pub(crate) key_left: Option<Duration>,
    /// The time since the last send.
    pub(crate) fired_ago: Duration,
    /// An earlier effect of its key is open.
    pub(crate) is_blocked: bool,
    /// The row has its id. One that was planned in SQL has none.
    pub(crate) is_named: bool,
}

/// The next step for a claimed row.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// Send it. `failures` more than in the row.
    Send { failures: u32 },
    /// Ask the vendor what it did.
    LookUp { failures: u32 },
    /// Write it as it is now.
    Settle(Settled),
}

/// The new state of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settled {
    pub(crate) state: EffectState,
    /// When a dispatcher looks at it next. `None`: never, or when the effect before it has ended.
    pub(crate) delay: Option<Duration>,
    /// The noted send was not made.
    pub(crate) is_unsent: bool,
    /// The next send has another key.
    pub(crate) is_renewed: bool,
    /// Failures to add.
    pub(crate) failures: u32,
    pub(crate) provider_ref: Option<String>,
    pub(crate) http_code: Option<u16>,
    pub(crate) error_code: Option<ErrorCode>,
    pub(crate) error: Option<String>,
}

impl Settled {
    pub(crate) fn new(state: EffectState, delay: Option<Duration>) -> Self {
        Self {
            state,
            delay,
            is_unsent: false,
            is_renewed: false,
            failures: 0,
            provider_ref: None,
            http_code: None,
            error_code: None,
            error: None,
        }
    }

    fn ended(state: EffectState, code: ErrorCode, error: &str) -> Self {
        Self { error_code: Some(code), error: Some(error.to_owned()), ..Self::new(state, None) }
    }

    fn confirmed(applied: Applied) -> Self {
        Self {
            provider_ref: applied.provider_ref,
            http_code: applied.http_code,
            error_code: applied.is_duplicate.then_some(ErrorCode::Duplicate),
            ..Self::new(EffectState::Confirmed, None)
        }
    }

    /// The row of an effect that could not be decoded, or that nobody could ever send.
    pub(crate) fn unfit(state: EffectState, error: &str) -> Self {
        let ended = if state == EffectState::Pending { EffectState::Failed } else { EffectState::Unknown };
        Self::ended(ended, ErrorCode::Validation, error)
    }
}

/// The knowledge about an effect when it was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    /// Whether an earlier send may have acted.
    pub(crate) was_in_doubt: bool,
    /// The failures before this send.
    pub(crate) failures: u32,
    /// How long the vendor surely knows the key, from now.
    pub(crate) key_left: Option<Duration>,
}

/// The way out of doubt.
#[derive(Debug, PartialEq)]
enum Doubt {
    SendAgain,
    LookUp,
    End(EffectState, ErrorCode),
}

/// The rules of one vendor.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) recovery: Recovery,
    pub(crate) can_look_up: bool,
    pub(crate) policy: RetryPolicy,
}

impl Rules {
    fn is_exhausted(&self, failures: u32) -> bool {
        failures > 0 && self.policy.next(failures, 0.0).is_none()
    }

    fn in_doubt(&self, key_lives: bool) -> Doubt {
        match self.recovery {
            Recovery::NativeKey { .. } if key_lives => Doubt::SendAgain,
            Recovery::AtLeastOnce => Doubt::SendAgain,
            Recovery::AtMostOnce => Doubt::End(EffectState::Failed, ErrorCode::Indeterminate),
            _ if self.can_look_up => Doubt::LookUp,
            Recovery::NativeKey { .. } => Doubt::End(EffectState::Unknown, ErrorCode::KeyExpired),
            Recovery::LookUp { .. } | Recovery::Operator => {
                Doubt::End(EffectState::Unknown, ErrorCode::Indeterminate)
            }
        }
    }

    /// Decides in doubt when no further send helps.
    fn no_more_sends(&self) -> Doubt {
        match self.in_doubt(false) {
            Doubt::SendAgain => Doubt::End(EffectState::Failed, ErrorCode::Indeterminate),
            Doubt::End(state, _) => Doubt::End(state, ErrorCode::Indeterminate),
            Doubt::LookUp => Doubt::LookUp,
        }
    }

    fn look_up_after(&self) -> Duration {
        match self.recovery {
            Recovery::LookUp { after } => after,
            _ => LOOK_UP_AFTER,
        }
    }

    /// Decides about a claimed row. A row with an owner was left behind by a process that crashed, or that
    /// was too slow.
    pub(crate) fn on_claim(&self, claimed: &Claimed) -> Step {
        let effect = &claimed.effect;
        if claimed.is_blocked {
            // The first open effect of its key may be the one that it compensates, which wakes nobody.
            let look_again = effect.compensates.map(|_| BLOCKED_LOOK);
            return Step::Settle(Settled::new(effect.state, look_again));
        }
        let crashed = u32::from(effect.owner.is_some());
        let is_exhausted = self.is_exhausted(effect.failures + crashed);
        let key_lives = claimed.key_left != Some(Duration::ZERO);
        let settle = |settled: Settled| Step::Settle(Settled { failures: crashed, ..settled });
        let doubt = match effect.state {
            EffectState::Pending if is_exhausted => {
                let error = effect.last_error.as_deref().unwrap_or("it has failed too often");
                let code = error_code(effect).unwrap_or(ErrorCode::Transient);
                return settle(Settled::ended(EffectState::Failed, code, error));
            }
            // Nothing was done under the old key, so another one is safe.
            EffectState::Pending if !key_lives => {
                return settle(Settled {
                    is_renewed: true,
                    ..Settled::new(EffectState::Pending, Some(Duration::ZERO))
                });
            }
            EffectState::Pending => return Step::Send { failures: crashed },
            EffectState::Fired => {
                let is_hopeless = error_code(effect).is_some_and(|code| !code.is_retryable());
                match self.in_doubt(key_lives) {
                    Doubt::SendAgain if is_exhausted || is_hopeless => self.no_more_sends(),
                    doubt => doubt,
                }
            }
            ended => return settle(Settled::new(ended, None)),
        };
        match doubt {
            Doubt::SendAgain => Step::Send { failures: crashed },
            Doubt::LookUp if claimed.fired_ago < self.look_up_after() => {
                let wait = self.look_up_after() - claimed.fired_ago;
                settle(Settled::new(EffectState::Fired, Some(wait)))
            }
            Doubt::LookUp => Step::LookUp { failures: crashed },
            Doubt::End(state, code) => settle(Settled::ended(state, code, why(code))),
        }
    }

    /// Decides after a send.
    pub(crate) fn on_sent(&self, sent: Sent, result: Result<Applied, VendorError>, random: f64) -> Settled {
        let error = match result {
            Ok(applied) => return Settled::confirmed(applied),
            Err(error) => error,
        };
        // A vendor that has too much to do has done nothing, and says when to come again.
        let counted = u32::from(error.code() != ErrorCode::RateLimited);
        let failures = sent.failures + counted;
        let pause = self.policy.delay(failures.max(1), random);
        let wait = pause.max(error.earliest_retry().unwrap_or_default());
        let may_retry = error.is_retryable() && !(counted == 1 && self.is_exhausted(failures));
        let settled = |state, delay| Settled {
            failures: counted,
            http_code: error.http_code(),
            error_code: Some(error.code()),
            error: Some(error.to_string()),
            ..Settled::new(state, delay)
        };
        if !sent.was_in_doubt && error.certainty() != Certainty::MaybeApplied {
            return match may_retry {
                true => settled(EffectState::Pending, Some(wait)),
                false => settled(EffectState::Failed, None),
            };
        }
        let key_lives = sent.key_left.is_none_or(|left| left > wait);
        let doubt = if may_retry { self.in_doubt(key_lives) } else { self.no_more_sends() };
        match doubt {
            Doubt::SendAgain => settled(EffectState::Fired, Some(wait)),
            Doubt::LookUp => {
                let after = self.look_up_after().max(error.earliest_retry().unwrap_or_default());
                let settled = settled(EffectState::Fired, Some(after));
                // So that the next claim does not send it again, whatever the key allows.
                let code = if may_retry { error.code() } else { hopeless(error.code()) };
                Settled { error_code: Some(code), ..settled }
            }
            Doubt::End(state, code) => {
                // The code of one that failed tells operators that the vendor may have acted.
                let keeps = state == EffectState::Unknown && !error.code().is_retryable();
                let code = if keeps { error.code() } else { code };
                Settled { error_code: Some(code), ..settled(state, None) }
            }
        }
    }

    /// Decides after a look-up.
    pub(crate) fn on_looked_up(
        &self,
        failures: u32,
        result: Result<LookUp, VendorError>,
        random: f64,
    ) -> Settled {
        match result {
            Ok(LookUp::Applied(applied)) => Settled::confirmed(applied),
            Ok(LookUp::NotApplied) if self.is_exhausted(failures) => Settled::ended(
                EffectState::Failed,
                ErrorCode::Unavailable,
                "it failed too often; by a look-up the vendor did nothing",
            ),
            Ok(LookUp::NotApplied) => {
                Settled { is_renewed: true, ..Settled::new(EffectState::Pending, Some(Duration::ZERO)) }
            }
            Err(error) => {
                let failed = Settled {
                    failures: 1,
                    http_code: error.http_code(),
                    error: Some(format!("the look-up failed: {error}")),
                    ..Settled::new(EffectState::Fired, None)
                };
                if failures + 1 >= LOOK_UP_FAILURES_MAX || !error.is_retryable() {
                    return Settled {
                        state: EffectState::Unknown,
                        error_code: Some(ErrorCode::Indeterminate),
                        ..failed
                    };
                }
                let pause = self.policy.delay(failures + 1, random);
                let wait = pause.max(error.earliest_retry().unwrap_or_default());
                Settled { delay: Some(wait), ..failed }
            }
        }
    }
}

fn hopeless(code: ErrorCode) -> ErrorCode {
    if code.is_retryable() { ErrorCode::Indeterminate } else { code }
}

fn error_code(effect: &SideEffect) -> Option<ErrorCode> {
    effect.error_code.as_deref().and_then(|code| code.parse().ok())
}

fn why(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::KeyExpired => "the vendor may have acted, and may have forgotten the key",
        _ => "the vendor may have acted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn rules(recovery: Recovery, can_look_up: bool) -> Rules {
        Rules { recovery, can_look_up, policy: RetryPolicy::vendor() }
    }

    fn native() -> Rules {
        rules(Recovery::NativeKey { window: HOUR }, false)
    }

    fn sent(was_in_doubt: bool, failures: u32) -> Sent {
        Sent { was_in_doubt, failures, key_left: Some(HOUR) }
    }

    /// R13, D29
    #[test]
    fn a_vendor_that_did_nothing_leaves_an_effect_pending_until_the_policy_ends() {
        let error = || VendorError::not_applied(ErrorCode::Unavailable, "");
        let settled = native().on_sent(sent(false, 3), Err(error()), 0.0);
        assert_eq!((settled.state, settled.failures), (EffectState::Pending, 1));
        assert_eq!(settled.delay, Some(Duration::from_secs(30)));
        let settled = native().on_sent(sent(false, 4), Err(error()), 0.0);
        assert_eq!((settled.state, settled.delay), (EffectState::Failed, None));
        // An earlier send is in doubt, so that this one did nothing tells too little.
        let settled = native().on_sent(sent(true, 4), Err(error()), 0.0);
        assert_eq!(settled.state, EffectState::Unknown);
    }

    #[test]
    fn too_many_calls_end_no_effect() {
        let limited = VendorError::not_applied(ErrorCode::RateLimited, "").retry_after(Some(HOUR * 24));
        let settled = native().on_sent(sent(false, 4), Err(limited), 0.0);
        assert_eq!((settled.state, settled.failures), (EffectState::Pending, 0));
        assert_eq!(settled.delay, Some(HOUR * 24));
    }

    /// D28: what the vendor may have done is never sent under another key.
    #[test]
    fn a_key_is_renewed_only_after_a_definite_answer() {
        let may_have = || VendorError::maybe_applied(ErrorCode::Timeout, "");
        for recovery in [
            Recovery::NativeKey { window: HOUR },
            Recovery::LookUp { after: HOUR },
            Recovery::Operator,
            Recovery::AtLeastOnce,
            Recovery::AtMostOnce,
        ] {
            for can_look_up in [false, true] {
                for failures in 0..6 {
                    let rules = rules(recovery, can_look_up);
                    let settled = rules.on_sent(sent(failures % 2 == 0, failures), Err(may_have()), 0.5);
                    assert!(!settled.is_renewed && settled.state != EffectState::Pending, "{recovery:?}");
                }
            }
        }
        let looks_up = rules(Recovery::LookUp { after: HOUR }, true);
        let settled = looks_up.on_looked_up(1, Ok(LookUp::NotApplied), 0.0);
        assert!(settled.is_renewed && settled.state == EffectState::Pending);
        let settled = looks_up.on_looked_up(1, Ok(LookUp::Applied(Applied::new())), 0.0);
        assert_eq!(settled.state, EffectState::Confirmed);
    }

    /// The vendor may have acted on a request that was sent before.
    #[test]
    fn what_cannot_be_decoded_has_failed_unless_it_may_have_been_sent() {
        for (before, after) in
            [(EffectState::Pending, EffectState::Failed), (EffectState::Fired, EffectState::Unknown)]
        {
            let settled = Settled::unfit(before, "no key");
            assert_eq!((settled.state, settled.error_code), (after, Some(ErrorCode::Validation)));
            assert_eq!((settled.delay, settled.error.as_deref()), (None, Some("no key")));
        }
    }

    #[test]
    fn a_look_up_that_fails_is_bounded() {
        let looks_up = rules(Recovery::LookUp { after: HOUR }, true);
        let fail = |failures| {
            let error = VendorError::not_sent(ErrorCode::Unavailable, "");
            looks_up.on_looked_up(failures, Err(error), 0.0)
        };
        assert_eq!(fail(18).state, EffectState::Fired);
        assert_eq!((fail(19).state, fail(19).delay), (EffectState::Unknown, None));
    }
}
