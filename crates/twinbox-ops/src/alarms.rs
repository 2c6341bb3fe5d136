//! What is wrong, in words: the same in `twinbox status` and in the console.
use crate::{
    ConsumerInfo, ReaderStatus, VendorInfo,
    effects::EffectProblems,
    wording::{bounded, duration},
};
use std::time::Duration;

/// The bounds beyond which something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlarmBounds {
    /// The longest time for which no process may run a destination, or read a partition of a consumer.
    pub max_unowned: Duration,
    /// The longest time that a message or a side effect may wait.
    pub max_age: Duration,
    /// The time within which a failure of a side effect is recent.
    pub failed_within: Duration,
    /// The longest time for which a consumer may not be seen.
    pub max_silence: Duration,
    /// The most dead letters that a consumer may have. They are counted up to
    /// [`BACKLOG_MAX`](crate::BACKLOG_MAX): from that number on there is no alarm.
    pub max_dead_letters: u64,
}

impl Default for AlarmBounds {
    fn default() -> Self {
        Self {
            max_unowned: Duration::from_secs(30),
            max_age: Duration::from_secs(600),
            failed_within: Duration::from_secs(24 * 3600),
            max_silence: Duration::from_secs(60),
            // Even of the largest messages these are fewer bytes than the default bound of a consumer.
            max_dead_letters: 1_000,
        }
    }
}

impl AlarmBounds {
    /// Returns a sentence for each thing that is wrong. `delayed_overdue`: see
    /// [`Ops::delayed_overdue`](crate::Ops::delayed_overdue).
    pub fn alarms(
        &self,
        delayed_overdue: Option<Duration>,
        readers: &[ReaderStatus],
        consumers: &[ConsumerInfo],
        problems: &EffectProblems,
        vendors: &[VendorInfo],
    ) -> Vec<String> {
        let mut alarms = Vec::new();
        if let Some(overdue) = delayed_overdue.filter(|overdue| *overdue > self.max_unowned) {
            alarms.push(format!(
                "a delayed message has been due for {}: no relay moves it into the log",
                duration(overdue)
            ));
        }
        for reader in readers {
            let name = &reader.name;
            if reader.is_detached {
                alarms.push(format!("{name} is detached: retire it, then start it again"));
            } else if reader.lease.is_none() && reader.unowned > self.max_unowned {
                alarms.push(format!("no process has run {name} for {}", duration(reader.unowned)));
            }
            if reader.oldest > self.max_age && !reader.is_detached {
                alarms.push(format!("a message has waited for {name} for {}", duration(reader.oldest)));
            }
            if reader.blocking > 0 {
                alarms.push(format!("a dead letter blocks {name}: redrive or skip it"));
            }
        }
        for record in consumers {
            let (name, unread) = (&record.consumer, record.unowned_partitions);
            if record.silent > self.max_silence {
                alarms.push(format!("consumer {name} was last seen {} ago", duration(record.silent)));
            } else if unread > 0 && record.unowned > self.max_unowned && record.pause_reason.is_none() {
                let (unread, unowned) = (bounded(unread, "partition"), duration(record.unowned));
                alarms.push(format!("no process has read {unread} of consumer {name} for {unowned}"));
            }
            if record.dead_letters > self.max_dead_letters {
                let dead_letters = bounded(record.dead_letters, "dead letter");
                alarms.push(format!("consumer {name} has {dead_letters}: redrive or discard them"));
            }
        }
        if problems.unknown > 0 {
            let unknown = bounded(problems.unknown, "side effect");
            alarms.push(format!("{unknown} unknown: see `twinbox effects list --state unknown`"));
        }
        if problems.failed_lately > 0 {
            let (failed, within) =
                (bounded(problems.failed_lately, "side effect"), duration(self.failed_within));
            alarms
                .push(format!("{failed} failed within {within}: see `twinbox effects list --state failed`"));
        }
        for vendor in vendors.iter().filter(|vendor| vendor.is_late(self.max_age)) {
            let overdue = duration(vendor.overdue);
            alarms.push(format!("a side effect for {} has been due for {overdue}", vendor.vendor));
        }
        alarms
    }
}
