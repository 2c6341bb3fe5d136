//! A destination in the output.
use crate::output::Column;
use serde::Serialize;
use twinbox_ops::{BACKLOG_MAX, ReaderStatus};

#[derive(Serialize)]
pub(crate) struct DestinationRow {
    name: String,
    /// `running`, `paused`, `blocked`, `unowned` or `detached`.
    state: &'static str,
    lease_seconds: Option<f64>,
    backlog: u64,
    backlog_counted_to: u32,
    oldest_seconds: f64,
    parked: u64,
    dead_letters: u64,
    blocking: u64,
    /// The reason.
    paused: Option<String>,
}

impl DestinationRow {
    pub(crate) const COLUMNS: [Column; 8] = [
        ("destination", "name"),
        ("state", "state"),
        ("backlog", "backlog"),
        ("oldest", "oldest_seconds"),
        ("parked", "parked"),
        ("dead letters", "dead_letters"),
        ("blocking", "blocking"),
        ("paused", "paused"),
    ];
}

impl From<&ReaderStatus> for DestinationRow {
    fn from(reader: &ReaderStatus) -> Self {
        let state = match reader {
            ReaderStatus { is_detached: true, .. } => "detached",
            ReaderStatus { pause_reason: Some(_), .. } => "paused",
            ReaderStatus { lease: None, .. } => "unowned",
            ReaderStatus { blocking, .. } if *blocking > 0 => "blocked",
            _ => "running",
        };
        Self {
            name: reader.name.clone(),
            state,
            lease_seconds: reader.lease.map(|lease| lease.as_secs_f64()),
            backlog: reader.backlog,
            backlog_counted_to: BACKLOG_MAX,
            oldest_seconds: reader.oldest.as_secs_f64(),
            parked: reader.waiting,
            dead_letters: reader.dead_letters,
            blocking: reader.blocking,
            paused: reader.pause_reason.clone(),
        }
    }
}
