//! The deliveries of a consumer that are in flight, and the room for more.
use crate::handler::Handler;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use twinbox_core::ReceivedMessage;
use twinbox_sql::Dialect;

/// How many deliveries a type may have beyond its share, as a multiple of all shares. So far a slow type is
/// received ahead, to find deliveries of other types behind it.
const AHEAD: usize = 4;
/// Bytes of payloads in flight at which no delivery is received ahead.
const AHEAD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A handler that ends a whole share of deliveries within this time is quick. Twice its share may be in
/// flight, so that it never waits for the source.
const QUICK: Duration = Duration::from_millis(100);
const QUICK_SHARES: usize = 2;

/// Deliveries that were received and are not settled, also those of earlier sources that failed.
pub(crate) struct InFlight {
    /// The spawned work. Each item returns its load when it ends.
    pub(crate) tasks: JoinSet<Load>,
    /// The number of deliveries by handler; the last item counts those without a handler.
    counts: Vec<usize>,
    bytes: usize,
    /// How many deliveries each handler may have while others wait.
    shares: Vec<usize>,
    paces: Vec<Pace>,
}

/// How many deliveries of a handler have ended, in the present interval of [`QUICK`] and in the one before.
#[derive(Clone, Copy)]
struct Pace {
    since: Instant,
    ended: usize,
    ended_before: usize,
}

impl Pace {
    fn note(&mut self, count: usize, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= QUICK {
            let ended_before = if passed < 2 * QUICK { self.ended } else { 0 };
            *self = Self { since: now, ended: 0, ended_before };
        }
        self.ended += count;
    }

    fn is_quick(&self, share: usize, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < 2 * QUICK && self.ended.max(self.ended_before) >= share
    }
}

/// The deliveries that one spawned future works on. All have one event type.
pub(crate) struct Load {
    handler: usize,
    count: usize,
    bytes: usize,
}

impl Load {
    pub(crate) fn new<DB: Dialect, S>(handlers: &[Handler<DB, S>], received: &[ReceivedMessage]) -> Self {
        let handler =
            handlers.iter().position(|handler| handler.event_type == received[0].message.event_type);
        Self {
            handler: handler.unwrap_or(handlers.len()),
            count: received.len(),
            bytes: received.iter().map(|one| one.message.payload.len()).sum(),
        }
    }
}

impl InFlight {
    pub(crate) fn new<DB: Dialect, S>(handlers: &[Handler<DB, S>]) -> Self {
        Self::of(Vec::from_iter(handlers.iter().map(Handler::in_flight_max)))
    }

    fn of(shares: Vec<usize>) -> Self {
        let pace = Pace { since: Instant::now(), ended: 0, ended_before: 0 };
        let (counts, paces) = (vec![0; shares.len() + 1], vec![pace; shares.len()]);
        Self { tasks: JoinSet::new(), counts, bytes: 0, shares, paces }
    }

    /// Returns the smallest share of a handler.
    pub(crate) fn smallest_share(&self) -> usize {
        self.shares.iter().min().copied().unwrap_or(1)
    }

    /// Returns how many more deliveries may be received. Deliveries of a type beyond its share take no room
    /// of other types, up to a bound.
    pub(crate) fn room(&self, now: Instant) -> usize {
        let may_be_ahead = self.bytes < AHEAD_BYTES_MAX;
        let share_now = |(share, pace): (&usize, &Pace)| match may_be_ahead && pace.is_quick(*share, now) {
            true => share.saturating_mul(QUICK_SHARES),
            false => *share,
        };
        let shares = Vec::from_iter(self.shares.iter().zip(&self.paces).map(share_now));
        let limit = shares.iter().fold(0, |sum: usize, share| sum.saturating_add(*share));
        let shares = shares.into_iter().chain([usize::MAX]);
        let within_shares = self.counts.iter().zip(shares).map(|(count, share)| *count.min(&share)).sum();
        let all: usize = self.counts.iter().sum();
        let ahead = if may_be_ahead { limit.saturating_mul(AHEAD) } else { 0 };
        limit.saturating_sub(within_shares).min(limit.saturating_add(ahead).saturating_sub(all))
    }

    pub(crate) fn add(&mut self, Load { handler, count, bytes }: &Load) {
        self.counts[*handler] += count;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, Load { handler, count, bytes }: &Load) {
        self.counts[*handler] -= count;
        self.bytes -= bytes;
        if let Some(pace) = self.paces.get_mut(*handler) {
            pace.note(*count, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_handler_gets_deliveries_ahead_and_a_slow_one_does_not() {
        let mut in_flight = InFlight::of(vec![16, 16]);
        let load = |handler| Load { handler, count: 16, bytes: 0 };
        in_flight.add(&load(0));
        assert_eq!(in_flight.room(Instant::now()), 16, "the share of the other handler");
        in_flight.remove(&load(0));
        in_flight.add(&load(0));
        let now = Instant::now();
        assert_eq!(in_flight.room(now), 32, "a share ended at once, so that another may wait");
        assert_eq!(in_flight.room(now + 2 * QUICK), 16, "nothing has ended for a while");
        in_flight.bytes = AHEAD_BYTES_MAX;
        assert_eq!(in_flight.room(now), 16, "too many bytes wait");
    }
}
