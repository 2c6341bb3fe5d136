use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// What a relay has counted since it was made. Cheap to clone; goes on counting with the relay.
#[derive(Debug, Clone, Default)]
pub struct Counters(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    published: AtomicU64,
    duplicates: AtomicU64,
    unexpected_duplicates: AtomicU64,
    refused: AtomicU64,
    parked: AtomicU64,
    dead: AtomicU64,
    unrouted: AtomicU64,
}

impl Counters {
    /// Messages that the destination has acknowledged.
    pub fn published(&self) -> u64 {
        self.0.published.load(Relaxed)
    }

    /// Of those, how many the destination had before.
    pub fn duplicates(&self) -> u64 {
        self.0.duplicates.load(Relaxed)
    }

    /// Of those, how many nobody had sent before: two messages have one id, or the log was restored.
    pub fn unexpected_duplicates(&self) -> u64 {
        self.0.unexpected_duplicates.load(Relaxed)
    }

    /// How often the destination refused a message.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// How often a message was put aside.
    pub fn parked(&self) -> u64 {
        self.0.parked.load(Relaxed)
    }

    /// Messages that were given up.
    pub fn dead(&self) -> u64 {
        self.0.dead.load(Relaxed)
    }

    /// Messages that no destination takes, where that is looked for.
    pub fn unrouted(&self) -> u64 {
        self.0.unrouted.load(Relaxed)
    }

    pub(crate) fn note_published(&self, duplicate: bool, repeated: bool) {
        self.0.published.fetch_add(1, Relaxed);
        self.0.duplicates.fetch_add(u64::from(duplicate), Relaxed);
        self.0.unexpected_duplicates.fetch_add(u64::from(duplicate && !repeated), Relaxed);
    }

    pub(crate) fn note_refused(&self) {
        self.0.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_parked(&self) {
        self.0.parked.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_unrouted(&self) {
        self.0.unrouted.fetch_add(1, Relaxed);
    }

    pub(crate) fn note_dead(&self) {
        self.0.dead.fetch_add(1, Relaxed);
    }
}
