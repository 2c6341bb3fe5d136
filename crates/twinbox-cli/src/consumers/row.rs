//! A consumer in the output.
use crate::output::Column;
use serde::Serialize;
use std::time::Duration;
use twinbox_ops::ConsumerInfo;
use twinbox_sql::inbox::HEARTBEAT;

#[derive(Serialize)]
pub(crate) struct ConsumerRow {
    consumer: String,
    /// `running`, `paused` or `silent`.
    state: &'static str,
    silent_seconds: f64,
    dead_letters: u64,
    parked: u64,
    /// The reason.
    paused: Option<String>,
}

impl ConsumerRow {
    pub(crate) const COLUMNS: [Column; 6] = [
        ("consumer", "consumer"),
        ("state", "state"),
        ("last seen", "silent_seconds"),
        ("dead letters", "dead_letters"),
        ("parked", "parked"),
        ("paused", "paused"),
    ];
}

impl From<&ConsumerInfo> for ConsumerRow {
    fn from(record: &ConsumerInfo) -> Self {
        Self {
            consumer: record.consumer.clone(),
            state: state(record.silent, record.pause_reason.as_deref()),
            silent_seconds: record.silent.as_secs_f64(),
            dead_letters: record.dead_letters,
            parked: record.parked_deliveries,
            paused: record.pause_reason.clone(),
        }
    }
}

/// `running`, `paused` or `silent`.
pub(super) fn state(silent: Duration, pause_reason: Option<&str>) -> &'static str {
    match pause_reason {
        Some(_) => "paused",
        None if silent > HEARTBEAT * 3 => "silent",
        None => "running",
    }
}
