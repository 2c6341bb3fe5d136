//! What the charts show: the last half hour of each reader.
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
    time::Instant,
};
use twinbox_ops::ReaderStatus;

/// The most looks that are kept of a reader.
const KEPT: usize = 360;
/// The most readers of which looks are kept.
const READERS_MAX: usize = 200;

/// The looks of each reader, the oldest first.
#[derive(Default)]
pub(crate) struct Samples(Mutex<BTreeMap<String, VecDeque<Sample>>>);

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    backlog: u64,
    position: u64,
}

/// What the charts of a reader show.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Series {
    pub(crate) backlog: Vec<f64>,
    /// Positions a second.
    pub(crate) rate: Vec<f64>,
}

impl Samples {
    pub(crate) fn add(&self, at: Instant, readers: &[ReaderStatus]) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.retain(|name, _| readers.iter().any(|reader| reader.name == *name));
        for reader in readers.iter().take(READERS_MAX) {
            let kept = samples.entry(reader.name.clone()).or_default();
            kept.push_back(Sample { at, backlog: reader.backlog, position: reader.position });
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
    }

    pub(crate) fn series(&self, reader: &str) -> Series {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = samples.get(reader) else { return Series::default() };
        let rate = |(one, next): (&Sample, &Sample)| {
            let moved = next.position.saturating_sub(one.position);
            moved as f64 / next.at.duration_since(one.at).as_secs_f64().max(0.001)
        };
        Series {
            backlog: kept.iter().map(|sample| sample.backlog as f64).collect(),
            rate: kept.iter().zip(kept.iter().skip(1)).map(rate).collect(),
        }
    }
}
