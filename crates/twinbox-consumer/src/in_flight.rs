//! The deliveries of a consumer that are in flight, and the room for more.
use crate::handler::Handler;
use tokio::task::JoinSet;
use twinbox_core::ReceivedMessage;
use twinbox_sql::Dialect;

/// How many deliveries a type may have beyond its share, as a multiple of all shares. So far a slow type is
/// received ahead, to find deliveries of other types behind it.
const AHEAD: usize = 4;
/// Bytes of payloads in flight at which no delivery is received ahead.
const AHEAD_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Deliveries that were received and are not settled, also those of earlier sources that failed.
pub(crate) struct InFlight {
    /// The spawned work. Each item returns its load when it ends.
    pub(crate) tasks: JoinSet<Load>,
    /// The number of deliveries by handler; the last item counts those without a handler.
    counts: Vec<usize>,
    bytes: usize,
    /// How many deliveries each handler may have while others wait.
    shares: Vec<usize>,
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
        let shares = Vec::from_iter(handlers.iter().map(Handler::in_flight_max));
        Self { tasks: JoinSet::new(), counts: vec![0; shares.len() + 1], bytes: 0, shares }
    }

    /// Returns the smallest share of a handler.
    pub(crate) fn smallest_share(&self) -> usize {
        self.shares.iter().min().copied().unwrap_or(1)
    }

    /// Returns how many more deliveries may be received, if all handlers together may have `limit`.
    /// Deliveries of a type beyond its share take no room of other types, up to a bound.
    pub(crate) fn room(&self, limit: usize) -> usize {
        let shares = self.shares.iter().copied().chain([usize::MAX]);
        let within_shares = self.counts.iter().zip(shares).map(|(count, share)| *count.min(&share)).sum();
        let all: usize = self.counts.iter().sum();
        let ahead = if self.bytes < AHEAD_BYTES_MAX { limit.saturating_mul(AHEAD) } else { 0 };
        limit.saturating_sub(within_shares).min(limit.saturating_add(ahead).saturating_sub(all))
    }

    pub(crate) fn add(&mut self, Load { handler, count, bytes }: &Load) {
        self.counts[*handler] += count;
        self.bytes += bytes;
    }

    pub(crate) fn remove(&mut self, Load { handler, count, bytes }: &Load) {
        self.counts[*handler] -= count;
        self.bytes -= bytes;
    }
}
