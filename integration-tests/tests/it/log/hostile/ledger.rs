//! The messages that one reader delivered, settled and recorded, held against the committed ones, by number.
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
};

pub(in crate::log) struct Ledger {
    pub(in crate::log) name: &'static str,
    delivered: HashSet<i64>,
    settled: HashSet<i64>,
    /// What the cursor's row says is settled.
    recorded: HashSet<i64>,
    latest: HashMap<String, i64>,
    /// Delivered again, and not because the reader was told to.
    pub(in crate::log) duplicates: usize,
    /// First deliveries that do not follow the one before them of their key.
    pub(in crate::log) order_breaks: usize,
    pub(in crate::log) repeated_though_recorded: usize,
    pub(in crate::log) recorded_though_unsettled: usize,
}

impl Ledger {
    pub(in crate::log) fn new(name: &'static str) -> Self {
        Self {
            name,
            delivered: HashSet::new(),
            settled: HashSet::new(),
            recorded: HashSet::new(),
            latest: HashMap::new(),
            duplicates: 0,
            order_breaks: 0,
            repeated_though_recorded: 0,
            recorded_though_unsettled: 0,
        }
    }

    /// The payload says the how-many-th of its key it is.
    pub(in crate::log) fn deliver(&mut self, number: i64, key: &str, payload: &[u8], retried: bool) {
        let nth: i64 = std::str::from_utf8(payload).unwrap().parse().unwrap();
        if self.recorded.contains(&number) {
            self.repeated_though_recorded += 1;
        }
        if !self.delivered.insert(number) {
            self.duplicates += usize::from(!retried);
            return;
        }
        if self.latest.insert(key.to_owned(), nth).unwrap_or(0) + 1 != nth {
            self.order_breaks += 1;
        }
    }

    pub(in crate::log) fn settle(&mut self, number: i64) {
        self.settled.insert(number);
    }

    /// Takes up what the cursor's row says is settled.
    pub(in crate::log) fn record(&mut self, recorded: HashSet<i64>) {
        self.recorded = recorded;
        self.recorded_though_unsettled += self.recorded.difference(&self.settled).count();
    }

    /// Committed and never settled.
    pub(in crate::log) fn lost(&self, truth: &BTreeSet<i64>) -> Vec<i64> {
        truth.iter().filter(|number| !self.settled.contains(number)).copied().collect()
    }

    /// Delivered and never committed.
    pub(in crate::log) fn ghosts(&self, truth: &BTreeSet<i64>) -> Vec<i64> {
        self.delivered.iter().filter(|number| !truth.contains(number)).copied().collect()
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} delivered, {} settled, {} duplicates, {} order breaks, {} repeated though recorded, \
             {} recorded though unsettled",
            self.name,
            self.delivered.len(),
            self.settled.len(),
            self.duplicates,
            self.order_breaks,
            self.repeated_though_recorded,
            self.recorded_though_unsettled
        )
    }
}
