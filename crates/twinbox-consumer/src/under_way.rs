//! Deliveries that a consumer has received and not settled, and the room for more.
use crate::handler::Handler;
use tokio::task::JoinSet;
use twinbox_core::Received;
use twinbox_sql::Dialect;

/// Deliveries beyond its share that a type may have in this process, as a multiple of all shares: so far others
/// are looked for behind it.
const AHEAD: usize = 4;
/// Bytes of payloads at which no such delivery is taken.
const AHEAD_BYTES: usize = 8 * 1024 * 1024;

/// Deliveries that are received and not settled, also those of sources that have failed since.
pub(crate) struct UnderWay {
    pub(crate) tasks: JoinSet<Taken>,
    /// How many, by the handler; those without a handler at the end.
    held: Vec<usize>,
    bytes: usize,
    /// How many each handler may have while others wait.
    shares: Vec<usize>,
}

/// Deliveries of one task.
pub(crate) struct Taken {
    handler: usize,
    count: usize,
    bytes: usize,
}

impl Taken {
    /// Of deliveries of one type.
    pub(crate) fn of<DB: Dialect, S>(handlers: &[Handler<DB, S>], received: &[Received]) -> Self {
        let handler =
            handlers.iter().position(|handler| handler.event_type == received[0].message.event_type);
        Self {
            handler: handler.unwrap_or(handlers.len()),
            count: received.len(),
            bytes: received.iter().map(|one| one.message.payload.len()).sum(),
        }
    }
}

impl UnderWay {
    pub(crate) fn new<DB: Dialect, S>(handlers: &[Handler<DB, S>]) -> Self {
        let shares = Vec::from_iter(handlers.iter().map(Handler::under_way));
        Self { tasks: JoinSet::new(), held: vec![0; shares.len() + 1], bytes: 0, shares }
    }

    /// How many the handler with the fewest may have while others wait.
    pub(crate) fn least_share(&self) -> usize {
        self.shares.iter().min().copied().unwrap_or(1)
    }

    /// How many more may come, out of `limit` for all. Deliveries of a type beyond its share take no room of others,
    /// up to a bound.
    pub(crate) fn room(&self, limit: usize) -> usize {
        let shares = self.shares.iter().copied().chain([usize::MAX]);
        let counted = self.held.iter().zip(shares).map(|(held, share)| *held.min(&share)).sum();
        let all: usize = self.held.iter().sum();
        let ahead = if self.bytes < AHEAD_BYTES { limit.saturating_mul(AHEAD) } else { 0 };
        limit.saturating_sub(counted).min(limit.saturating_add(ahead).saturating_sub(all))
    }

    pub(crate) fn took(&mut self, Taken { handler, count, bytes }: &Taken) {
        self.held[*handler] += count;
        self.bytes += bytes;
    }

    pub(crate) fn done(&mut self, Taken { handler, count, bytes }: &Taken) {
        self.held[*handler] -= count;
        self.bytes -= bytes;
    }
}
