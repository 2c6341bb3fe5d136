//! How far consumers are behind on the stream, for an operator.
use crate::{
    broker::Nats,
    connect::{Connection, Purpose},
    consumer,
    error::{Error, ErrorKind},
    partitioned, stored, stream, subject,
};
use async_nats::jetstream::{consumer::Config, stream::Info};
use futures::{StreamExt as _, TryStreamExt as _};
use std::fmt;
use twinbox_core::{Checkpoint, Subscription, Timestamp};

/// The most partitions that are read beside each other.
const PARTITIONS_AT_ONCE: usize = 16;

/// Reads how far consumers are behind on a stream, over one connection. See [`Nats::lag_reader`].
pub struct LagReader {
    connection: Connection,
}

/// How far a durable consumer is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableLag {
    /// How many messages the stream has not delivered to the consumer.
    pub waiting: u64,
    /// How many messages the consumer has received and not acknowledged. It works on them, or they failed and
    /// are delivered again.
    pub unacknowledged: u64,
    /// When the stream stored the oldest of these messages.
    pub oldest_at: Option<Timestamp>,
}

/// How far a consumer that stores its own checkpoints is behind in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionLag {
    /// How many messages the stream has behind the checkpoint.
    pub messages: u64,
    /// When the stream stored the oldest of these messages.
    pub oldest_at: Option<Timestamp>,
    /// Why the consumer will read the partition from its first message. None: it continues at its checkpoint.
    pub discontinuity: Option<&'static str>,
}

impl Nats {
    /// Connects to the server to read how far consumers are behind.
    ///
    /// # Errors
    /// The server is unavailable or refuses, the stream does not exist, or it accepts no subject below the
    /// prefix.
    pub async fn lag_reader(&self) -> Result<LagReader, Error> {
        let connection = Connection::open(&self.options, Purpose::Administer).await?;
        stream::check_for_consumer(&connection).await?;
        Ok(LagReader { connection })
    }
}

impl LagReader {
    /// Returns how far a consumer without order is behind. None: the stream has no durable consumer for it.
    ///
    /// # Errors
    /// The server is unavailable or refuses.
    pub async fn durable(&self, consumer: &str) -> Result<Option<DurableLag>, Error> {
        if !subject::is_prefix(consumer) {
            return Ok(None);
        }
        let (connection, name) = (&self.connection, consumer::durable_name(consumer));
        let info = match consumer::info(connection, &name).await {
            Err(error) if error.kind() == ErrorKind::Missing => return Ok(None),
            info => info?,
        };
        // `a.b` and `a_b` have one durable name.
        if info.config.description.as_ref().is_some_and(|described| described != consumer) {
            return Ok(None);
        }
        let (waiting, unacknowledged) = (info.num_pending, info.num_ack_pending as u64);
        let oldest_at = match waiting + unacknowledged {
            0 => None,
            _ => {
                let filters = filters_of(&info.config, &connection.options.prefix);
                stored::first_stored_from(connection, info.ack_floor.stream_sequence + 1, &filters).await?
            }
        };
        Ok(Some(DurableLag { waiting, unacknowledged, oldest_at }))
    }

    /// Returns how far a consumer is behind its checkpoints, in their order. `types`: the types that it
    /// reads.
    ///
    /// The server counts for a reader, so one is created for each partition and deleted again. The server
    /// deletes one that is left after a minute.
    ///
    /// # Errors
    /// The names cannot be those of a consumer and of types, or the server is unavailable or refuses.
    pub async fn partitions(
        &self,
        consumer: &str,
        types: &[String],
        checkpoints: &[(u32, Checkpoint)],
    ) -> Result<Vec<PartitionLag>, Error> {
        let subscription = Subscription {
            consumer: consumer.to_owned(),
            types: types.to_vec(),
            concurrency: 1,
            is_ordered: true,
        };
        consumer::check_names(&subscription)?;
        // After the checkpoints were read, so that none is beyond the end of the stream.
        let info = &stream::info(&self.connection, &self.connection.options.stream).await?;
        // A list, because the future of a stream that held the closure would not be `Send`.
        let lags: Vec<_> = checkpoints
            .iter()
            .map(|(partition, at)| self.partition(&subscription, info, *partition, at))
            .collect();
        futures::stream::iter(lags).buffered(PARTITIONS_AT_ONCE).try_collect().await
    }

    async fn partition(
        &self,
        subscription: &Subscription,
        info: &Info,
        partition: u32,
        checkpoint: &Checkpoint,
    ) -> Result<PartitionLag, Error> {
        let connection = &self.connection;
        let discontinuity = match checkpoint.sequence {
            0 => None,
            _ => partitioned::discontinuity(connection, checkpoint, info).await?,
        };
        let behind = if discontinuity.is_some() { 0 } else { checkpoint.sequence };
        let reader = consumer::create_reader(connection, subscription, partition, behind).await?;
        let counted = consumer::info(connection, &reader).await;
        let deleted = consumer::delete(connection, &reader).await;
        let messages = counted?.num_pending;
        deleted?;
        let prefix = &connection.options.prefix;
        let filters =
            subscription.types.iter().map(|text| subject::partition_filter(prefix, partition, text));
        let oldest_at = match messages {
            0 => None,
            _ => stored::first_stored_from(connection, behind + 1, &Vec::from_iter(filters)).await?,
        };
        Ok(PartitionLag { messages, oldest_at, discontinuity })
    }
}

impl fmt::Debug for LagReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LagReader").field("stream", &self.connection.options.stream).finish_non_exhaustive()
    }
}

fn filters_of(config: &Config, prefix: &str) -> Vec<String> {
    match (config.filter_subject.as_str(), &*config.filter_subjects) {
        ("", []) => vec![subject::all(prefix)],
        ("", many) => many.to_vec(),
        (one, _) => vec![one.to_owned()],
    }
}
