//! Spreading destinations over the processes that run them.
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long a process wishes for nothing after it failed to use a lease that another one had handed over.
const REST: Duration = Duration::from_secs(60);

/// How many destinations this process owns, in all its databases.
///
/// Processes that run the same destinations spread them evenly. A process that stands by for a destination
/// writes a wish into its cursor, if the owner has at least two destinations more. The owner finds the wish
/// when it renews its lease, compares again, drains, and releases the lease for that process. A difference of
/// one moves nothing. A wish counts for the length of a lease, so that of a dead process soon holds nothing.
///
/// Each clone counts for the same process.
#[derive(Debug, Clone, Default)]
pub struct Shares(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    owned: i64,
    /// The relay that has written a wish. One at a time, so that each wish names the count of its time.
    wisher: Option<Uuid>,
    rest_until: Option<Instant>,
}

/// The wish in the cursor of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    None,
    /// Of this process.
    Own {
        /// How many destinations it names.
        owned: i64,
        /// It ends soon.
        is_old: bool,
    },
    Other,
}

impl Shares {
    /// Returns the shares of a process that owns nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns how many destinations this process owns and does not hand over.
    pub fn owned(&self) -> i64 {
        self.lock().owned
    }

    /// Decides about the wish of the relay `owner` for a lease. `theirs`: how many destinations the process
    /// of its owner has. Returns the count that is to be written, or `None` if nothing is.
    pub(crate) fn wish(&self, owner: Uuid, theirs: i64, wish: Wish) -> Option<i64> {
        let mut counted = self.lock();
        let is_first = counted.wisher.is_none_or(|wisher| wisher == owner);
        let may_begin = is_first && counted.rest_until.is_none_or(|end| end <= Instant::now());
        let writes = wishes(counted.owned, theirs, wish, may_begin);
        if writes {
            counted.wisher = Some(owner);
        } else if is_first && !matches!(wish, Wish::Own { .. }) {
            counted.wisher = None;
        }
        writes.then_some(counted.owned)
    }

    pub(crate) fn is_wisher(&self, owner: Uuid) -> bool {
        self.lock().wisher == Some(owner)
    }

    /// Lets another relay of the process wish.
    pub(crate) fn end_wish(&self, owner: Uuid) {
        let mut counted = self.lock();
        if counted.wisher == Some(owner) {
            counted.wisher = None;
        }
    }

    /// Lets no relay of the process wish for a minute.
    pub(crate) fn rest(&self) {
        self.lock().rest_until = Some(Instant::now() + REST);
    }

    /// Counts a destination that the relay `owner` owns.
    pub(crate) fn join(&self, owner: Uuid) -> Share {
        self.end_wish(owner);
        self.lock().owned += 1;
        Share { shares: self.clone(), leave: CancellationToken::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A destination that counts as owned until it is dropped or handed over.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Shares,
    leave: CancellationToken,
}

impl Share {
    /// Returns the count to write into the cursor. The destination itself counts until it is released, so
    /// that the wisher keeps its wish.
    pub(crate) fn owned(&self) -> i64 {
        self.shares.owned() + i64::from(self.leave.is_cancelled())
    }

    /// Is cancelled when the destination is to be handed over.
    pub(crate) fn leave(&self) -> CancellationToken {
        self.leave.clone()
    }

    /// Hands the destination over if the process that wishes for it has a smaller share. Returns whether it
    /// does so now.
    pub(crate) fn give(&self, wisher_owned: i64) -> bool {
        let mut counted = self.shares.lock();
        let gives = !self.leave.is_cancelled() && is_uneven(counted.owned, wisher_owned);
        if gives {
            counted.owned -= 1;
            self.leave.cancel();
        }
        gives
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.leave.is_cancelled() {
            self.shares.lock().owned -= 1;
        }
    }
}

/// Whether a move of one destination makes the shares of two processes more even.
fn is_uneven(more: i64, fewer: i64) -> bool {
    more >= fewer.saturating_add(2)
}

/// Whether a process with `own` destinations writes a wish for a lease of one with `theirs`. A wish that
/// names an old count is corrected, also where the process does not wish any more.
fn wishes(own: i64, theirs: i64, wish: Wish, may_begin: bool) -> bool {
    match wish {
        Wish::None => may_begin && is_uneven(theirs, own),
        Wish::Own { owned, is_old } => owned != own || is_old && is_uneven(theirs, own),
        Wish::Other => false,
    }
}

#[cfg(test)]
mod tests;
