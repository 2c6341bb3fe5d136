//! The lag of a consumer in the output.
use crate::{consumers::row::state, output::Column};
use serde::Serialize;
use std::time::Duration;
use twinbox_ops::{BACKLOG_MAX, ConsumerBacklog, PartitionCheckpoint, ReaderStatus};

/// Where a consumer reads its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reads {
    /// The log of this database.
    Log,
    /// A stream, from checkpoints in this database.
    Partitions,
    /// A stream, by a durable consumer at the broker.
    #[cfg_attr(not(feature = "nats"), expect(dead_code))]
    Durable,
    /// A broker that was not asked, or that has no such consumer.
    Unknown,
}

#[derive(Serialize)]
pub(super) struct LagRow {
    pub(super) consumer: String,
    pub(super) reads: Reads,
    /// `running`, `paused`, `silent` or `detached`. None: it has no record.
    state: Option<&'static str>,
    /// Messages that the consumer has not settled.
    pub(super) behind: Option<u64>,
    /// `behind` is counted up to this number.
    behind_counted_to: Option<u32>,
    /// The age of the oldest of them; at a broker, since it stored the message.
    pub(super) oldest_seconds: Option<f64>,
    /// Those of `behind` that were delivered and not acknowledged.
    pub(super) unacknowledged: Option<u64>,
    parked: u64,
    oldest_parked_seconds: Option<f64>,
    dead_letters: u64,
    oldest_dead_letter_seconds: Option<f64>,
    /// `parked` and `dead_letters` are counted up to this number.
    counted_to: u32,
    last_claim_seconds: Option<f64>,
    pub(super) partitions: Vec<PartitionRow>,
    pub(super) unknown_because: Option<String>,
    /// Where at its broker the consumer has its messages.
    #[cfg(feature = "nats")]
    #[serde(skip)]
    pub(super) address: Option<String>,
}

#[derive(Serialize)]
pub(super) struct PartitionRow {
    pub(super) partition: u32,
    /// The process that owns the partition.
    owner: Option<String>,
    /// Up to where in the stream the partition is settled.
    settled: u64,
    pub(super) behind: Option<u64>,
    pub(super) oldest_seconds: Option<f64>,
    /// Why the consumer will read the partition from its first message.
    pub(super) restarts_because: Option<&'static str>,
    #[cfg(feature = "nats")]
    #[serde(skip)]
    pub(super) read: PartitionCheckpoint,
}

impl LagRow {
    pub(super) const COLUMNS: [Column; 10] = [
        ("consumer", "consumer"),
        ("reads", "reads"),
        ("state", "state"),
        ("behind", "behind"),
        ("oldest", "oldest_seconds"),
        ("parked", "parked"),
        ("oldest parked", "oldest_parked_seconds"),
        ("dead letters", "dead_letters"),
        ("oldest dead", "oldest_dead_letter_seconds"),
        ("last claim", "last_claim_seconds"),
    ];

    pub(super) fn new(consumer: &str, reads: Reads, backlog: &ConsumerBacklog) -> Self {
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        Self {
            consumer: consumer.to_owned(),
            reads,
            state: backlog.silent.map(|silent| state(silent, backlog.pause_reason.as_deref())),
            behind: None,
            behind_counted_to: None,
            oldest_seconds: None,
            unacknowledged: None,
            parked: backlog.parked,
            oldest_parked_seconds: seconds(backlog.oldest_parked),
            dead_letters: backlog.dead_letters,
            oldest_dead_letter_seconds: seconds(backlog.oldest_dead_letter),
            counted_to: BACKLOG_MAX,
            last_claim_seconds: seconds(backlog.last_claim),
            partitions: Vec::new(),
            unknown_because: None,
            #[cfg(feature = "nats")]
            address: backlog.address.clone(),
        }
    }

    pub(super) fn of_log(self, reader: &ReaderStatus) -> Self {
        let state = match reader {
            ReaderStatus { is_detached: true, .. } => Some("detached"),
            ReaderStatus { pause_reason: Some(_), .. } => Some("paused"),
            _ => self.state,
        };
        Self {
            state,
            behind: Some(reader.backlog),
            behind_counted_to: Some(BACKLOG_MAX),
            oldest_seconds: (reader.backlog > 0).then_some(reader.oldest.as_secs_f64()),
            ..self
        }
    }

    pub(super) fn of_partitions(self, checkpoints: Vec<PartitionCheckpoint>) -> Self {
        let partitions = checkpoints.into_iter().map(|one| PartitionRow {
            partition: one.partition,
            owner: one.owner.map(|owner| owner.to_string()),
            settled: one.checkpoint.sequence,
            behind: None,
            oldest_seconds: None,
            restarts_because: None,
            #[cfg(feature = "nats")]
            read: one,
        });
        Self { partitions: partitions.collect(), ..self }
    }

    /// Says why the row does not know how far its consumer is behind, unless it does.
    pub(super) fn lacks(&mut self, reason: &str) {
        if self.behind.is_none() {
            self.unknown_because = Some(reason.to_owned());
        }
    }
}

impl PartitionRow {
    pub(super) const COLUMNS: [Column; 6] = [
        ("partition", "partition"),
        ("owner", "owner"),
        ("settled", "settled"),
        ("behind", "behind"),
        ("oldest", "oldest_seconds"),
        ("restarts because", "restarts_because"),
    ];
}
