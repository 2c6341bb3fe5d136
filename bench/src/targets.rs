//! The targets of the rows of the table, and their values before the work on speed began.
use crate::spread::Spread;
use std::fmt;

/// A row with a target.
pub(crate) struct Target {
    name: &'static str,
    /// The median before, if it was measured.
    pub(crate) before: Option<f64>,
    pub(crate) bound: Bound,
}

#[derive(Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

use Bound::{AtLeast, AtMost};

const TARGETS: &[Target] = &[
    Target { name: "relay in batches / raw in batches", before: None, bound: AtLeast(0.90) },
    Target { name: "relay in batches / raw one by one", before: None, bound: AtLeast(0.95) },
    Target { name: "relay one by one / raw one by one", before: Some(0.79), bound: AtLeast(0.90) },
    Target { name: "relay: one key / unique keys", before: Some(0.09), bound: AtLeast(0.90) },
    Target { name: "relay: 100 keys / unique keys", before: None, bound: AtLeast(0.90) },
    Target { name: "relay: first of 1,000,000 behind / of 50,000", before: Some(1.0), bound: AtLeast(0.95) },
    Target { name: "relay beside an open writer / without", before: None, bound: AtLeast(0.95) },
    Target { name: "relay: processor time a message, µs", before: Some(7.4), bound: AtMost(5.0) },
    Target { name: "relay / best other outbox", before: None, bound: AtLeast(2.5) },
    Target { name: "producer / plain outbox insert", before: Some(0.75), bound: AtLeast(0.87) },
    Target { name: "consumer: single / fewest statements", before: Some(0.70), bound: AtLeast(0.95) },
    Target { name: "MySQL: consumer: single / fewest statements", before: Some(0.51), bound: AtLeast(0.80) },
    Target { name: "consumer: ordered / unordered", before: None, bound: AtLeast(0.90) },
    Target { name: "consumer: batch / batch by hand", before: None, bound: AtLeast(0.90) },
    Target { name: "HTTP layer / by hand", before: Some(0.75), bound: AtLeast(0.90) },
    Target { name: "latency at 200/s: stored p50, ms", before: Some(0.94), bound: AtMost(1.0) },
    Target { name: "latency at 200/s: stored p99, ms", before: Some(1.69), bound: AtMost(2.0) },
    Target { name: "latency at 200/s: handled p50, ms", before: None, bound: AtMost(3.0) },
    Target { name: "embedded / loop by hand", before: None, bound: AtLeast(0.90) },
    Target { name: "EventBridge / bare SDK loop", before: None, bound: AtLeast(0.95) },
    Target { name: "idle, 10 destinations: transactions/s", before: Some(467.0), bound: AtMost(60.0) },
    Target { name: "idle, 10 destinations: Postgres, % of a core", before: Some(13.0), bound: AtMost(2.0) },
    Target { name: "console: slowest page, a million dead letters, ms", before: None, bound: AtMost(50.0) },
    Target { name: "MySQL: relay one by one / raw", before: None, bound: AtLeast(0.60) },
    Target { name: "MySQL: relay, first of 1,000,000 / of 50,000", before: None, bound: AtLeast(0.95) },
];

pub(crate) fn of(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Bound {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            AtLeast(least) => value >= least,
            AtMost(most) => value <= most,
        }
    }

    /// The median decides. A target between the smallest and the largest value may be met by chance.
    pub(crate) fn verdict(self, measured: &Spread) -> &'static str {
        match () {
            () if self.is_met_by(measured.median()) => "met",
            () if [0.0, 1.0].into_iter().any(|end| self.is_met_by(measured.quantile(end))) => "within spread",
            () => "missed",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AtLeast(least) => write!(f, "≥ {least}"),
            AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}
