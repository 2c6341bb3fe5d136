//! A consumer in the output.
use crate::output::Column;
use serde::Serialize;
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
        let state = match record {
            ConsumerInfo { pause_reason: Some(_), .. } => "paused",
            ConsumerInfo { silent, .. } if *silent > HEARTBEAT * 3 => "silent",
            _ => "running",
        };
        Self {
            consumer: record.consumer.clone(),
            state,
            silent_seconds: record.silent.as_secs_f64(),
            dead_letters: record.dead_letters,
            parked: record.parked_deliveries,
            paused: record.pause_reason.clone(),
        }
    }
}
