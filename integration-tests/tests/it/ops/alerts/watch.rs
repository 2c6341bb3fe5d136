//! Which alerts a Prometheus has raised and taken back.
use super::prometheus::Prometheus;
use crate::support::wait::eventually;
use std::{cell::RefCell, collections::BTreeSet, time::Duration};
use tokio::time::timeout;

/// How long an alert may take to fire, or to clear.
const PATIENCE: Duration = Duration::from_secs(240);
/// A label of an alert, with its value.
pub(super) type Of = (&'static str, &'static str);
/// The alert has one series, whatever its labels are.
pub(super) const ONLY: Of = ("", "");

/// A Prometheus, and the alerts that have fired in their fault and cleared after it.
pub(super) struct Watch {
    pub(super) prometheus: Prometheus,
    pub(super) seen: RefCell<BTreeSet<&'static str>>,
}

impl Watch {
    pub(super) fn new(prometheus: Prometheus) -> Self {
        Self { prometheus, seen: RefCell::default() }
    }

    /// Looks at one alert, which is silent before its fault.
    pub(super) async fn silent(&self, name: &'static str, of: Of) -> Alert<'_> {
        assert!(!self.prometheus.fires(name, of).await, "{name} fires before its fault");
        Alert { watch: self, name, of }
    }
}

/// An alert of which a test makes the fault.
pub(super) struct Alert<'a> {
    watch: &'a Watch,
    name: &'static str,
    of: Of,
}

impl Alert<'_> {
    pub(super) async fn fires(&self) {
        self.becomes(true).await;
    }

    /// Waits until the alert has cleared, and notes that it did all it should.
    pub(super) async fn clears(self) {
        self.becomes(false).await;
        self.watch.seen.borrow_mut().insert(self.name);
    }

    async fn becomes(&self, firing: bool) {
        let fires = async || self.watch.prometheus.fires(self.name, self.of).await;
        let became = eventually(async || (fires().await == firing).then_some(()));
        let word = if firing { "silent in its fault" } else { "firing after its fault" };
        if timeout(PATIENCE, became).await.is_err() {
            panic!("{} stays {word}; these are through: {:?}", self.name, self.watch.seen.borrow());
        }
    }
}
