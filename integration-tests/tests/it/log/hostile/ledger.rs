//! What was committed against what one reader delivered, settled and recorded.
use super::*;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
};
use twinbox::Store;

pub(super) struct Ledger {
    pub(super) name: &'static str,
    delivered: HashSet<i64>,
    settled: HashSet<i64>,
    /// What the cursor's row says is settled.
    recorded: HashSet<i64>,
    latest: HashMap<String, i64>,
    /// Delivered again, and not because the reader was told to.
    pub(super) duplicates: usize,
    /// First deliveries that do not follow the one before them of their key.
    pub(super) order_breaks: usize,
    pub(super) repeated_though_recorded: usize,
    pub(super) recorded_though_unsettled: usize,
}

impl Ledger {
    pub(super) fn new(name: &'static str) -> Self {
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
    pub(super) fn deliver(&mut self, position: i64, key: &str, payload: &[u8], retried: bool) {
        let nth: i64 = std::str::from_utf8(payload).unwrap().parse().unwrap();
        if self.recorded.contains(&position) {
            self.repeated_though_recorded += 1;
        }
        if !self.delivered.insert(position) {
            self.duplicates += usize::from(!retried);
            return;
        }
        if self.latest.insert(key.to_owned(), nth).unwrap_or(0) + 1 != nth {
            self.order_breaks += 1;
        }
    }

    pub(super) fn settle(&mut self, position: i64) {
        self.settled.insert(position);
    }

    /// Reads what the cursor's row says, in the words of the snapshots that it points to.
    pub(super) async fn read_recorded(&mut self, store: &Store<Postgres>) {
        let sql = "SELECT m.position FROM twinbox.outbox m, twinbox.cursors c
            JOIN twinbox.ticks p ON p.id = c.p JOIN twinbox.ticks w ON w.id = c.w
            WHERE c.destination = $1 AND (pg_visible_in_snapshot(m.txid, p.snapshot)
                OR (pg_visible_in_snapshot(m.txid, w.snapshot) AND m.position <= c.position))";
        let recorded = sqlx::query_scalar(sql).bind(self.name).fetch_all(store.pool()).await.unwrap();
        self.recorded = recorded.into_iter().collect();
        self.recorded_though_unsettled += self.recorded.difference(&self.settled).count();
    }

    /// Committed and never settled.
    pub(super) fn lost(&self, truth: &BTreeSet<i64>) -> Vec<i64> {
        truth.iter().filter(|position| !self.settled.contains(position)).copied().collect()
    }

    /// Delivered and never committed.
    pub(super) fn ghosts(&self, truth: &BTreeSet<i64>) -> Vec<i64> {
        self.delivered.iter().filter(|position| !truth.contains(position)).copied().collect()
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

pub(super) async fn committed(store: &Store<Postgres>) -> BTreeSet<i64> {
    let positions = sqlx::query_scalar("SELECT position FROM twinbox.outbox").fetch_all(store.pool()).await;
    positions.unwrap().into_iter().collect()
}
