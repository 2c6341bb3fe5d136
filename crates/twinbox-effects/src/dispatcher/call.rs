//! One call of a vendor.
use super::{decision::Settled, rows::Note};
use crate::{
    request::kind_base,
    side_effect::EffectState,
    vendor::{Applied, ErrorCode, LookUp, Vendor, VendorCall, VendorError},
};
use futures::FutureExt as _;
use std::{future::poll_fn, panic::AssertUnwindSafe, pin::pin, sync::Arc, task::Poll, time::Duration};
use tokio::time::{Instant, timeout_at};
use twinbox_core::crash;

/// Bytes that an effect takes besides its body: strings, a future, a connection.
const OVERHEAD_BYTES: usize = 4 * 1024;

/// An effect that this process has claimed, and noted as sent unless it is looked up.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) call: VendorCall,
    /// The operation, which has a circuit breaker of its own.
    pub(super) operation: String,
    /// The number of sends, this one included. With the owner it is the fence of the row.
    pub(super) attempt: u32,
    /// The state before the claim.
    pub(super) before: EffectState,
    /// The failures before this call.
    pub(super) failures: u32,
    /// Until when the vendor surely knows the key.
    pub(super) key_until: Option<Instant>,
    /// A call that begins later could outlive the claim.
    pub(super) start_before: Instant,
    pub(super) is_look_up: bool,
}

impl Taken {
    /// The kind as metrics label it.
    pub(super) fn kind(&self) -> &str {
        kind_base(&self.call.effect.kind)
    }

    pub(super) fn bytes(&self) -> usize {
        self.call.effect.request.body.len() + OVERHEAD_BYTES
    }

    pub(super) fn note(&self, settled: Settled) -> Note {
        let effect = &self.call.effect;
        Note {
            position: effect.position,
            attempt: Some(self.attempt),
            settled,
            has_key: effect.request.key.is_some(),
            compensates: effect.compensates,
            closes: None,
        }
    }

    /// The row as it was before the claim.
    pub(super) fn unsent(&self, delay: Duration) -> Note {
        self.note(Settled { is_unsent: !self.is_look_up, ..Settled::new(self.before, Some(delay)) })
    }
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum CallResult {
    /// It was too late to begin.
    Unsent,
    Sent(Result<Applied, VendorError>),
    LookedUp(Result<LookUp, VendorError>),
}

/// A call that has ended.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) lane: usize,
    pub(super) taken: Taken,
    pub(super) result: CallResult,
    pub(super) took: Duration,
}

/// A call that is to be made.
pub(super) struct Call {
    pub(super) lane: usize,
    pub(super) taken: Taken,
    pub(super) vendor: Arc<dyn Vendor>,
    pub(super) timeout: Duration,
}

impl Call {
    /// Calls the vendor once.
    pub(super) async fn make(self) -> Called {
        let Self { lane, taken, vendor, timeout } = self;
        crash::point("effects.fired");
        // Looked at once more: the process may have stood still.
        let started = Instant::now();
        // The future of the vendor is made where panics are caught: it may panic before it returns one.
        let result = if started > taken.start_before {
            CallResult::Unsent
        } else if taken.is_look_up {
            CallResult::LookedUp(bounded(timeout, async { vendor.look_up(&taken.call).await }).await)
        } else {
            CallResult::Sent(bounded(timeout, async { vendor.send(&taken.call).await }).await)
        };
        crash::point("effects.answered");
        Called { lane, taken, result, took: started.elapsed() }
    }
}

/// The result of a call in time. A panic is an error like another: the vendor may have acted.
///
/// A call whose time is over is not polled any more: a process that stood still would send it late, when
/// another one has decided about the effect.
async fn bounded<T>(
    max: Duration,
    call: impl Future<Output = Result<T, VendorError>>,
) -> Result<T, VendorError> {
    let by = Instant::now() + max;
    let mut call = pin!(AssertUnwindSafe(call).catch_unwind());
    let in_time = poll_fn(|cx| match Instant::now() < by {
        true => call.as_mut().poll(cx).map(Some),
        false => Poll::Ready(None),
    });
    match timeout_at(by, in_time).await {
        Ok(Some(Ok(result))) => result,
        Ok(Some(Err(_))) => {
            Err(VendorError::maybe_applied(ErrorCode::Transient, "the code of the vendor panicked"))
        }
        Ok(None) | Err(_) => {
            Err(VendorError::maybe_applied(ErrorCode::Timeout, format!("no answer within {max:?}")))
        }
    }
}
