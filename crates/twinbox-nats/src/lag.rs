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
    /// For each of the streams, by its number.
    connections: Vec<Connection>,
}

/// How far a durable consumer is behind, on all streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
        let connections = connection.each_stream();
        for connection in &connections {
            stream::check_for_consumer(connection).await?;
        }
        Ok(LagReader { connections })
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
        let mut all: Option<DurableLag> = None;
        for connection in &self.connections {
            let Some(lag) = durable_lag(connection, consumer).await? else { continue };
            let sum = all.get_or_insert_default();
            sum.waiting += lag.waiting;
            sum.unacknowledged += lag.unacknowledged;
            sum.oldest_at = [sum.oldest_at, lag.oldest_at].into_iter().flatten().min();
        }
        Ok(all)
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
        let mut infos = Vec::with_capacity(self.connections.len());
        for connection in &self.connections {
            infos.push(stream::info(connection, &connection.options.stream).await?);
        }
        // A list, because the future of a stream that held a closure would not be `Send`.
        let mut lags = Vec::with_capacity(checkpoints.len());
        for (partition, at) in checkpoints {
            let number = *partition as usize % self.connections.len();
            lags.push(partition_lag(
                &self.connections[number],
                &subscription,
                &infos[number],
                *partition,
                at,
            ));
        }
        futures::stream::iter(lags).buffered(PARTITIONS_AT_ONCE).try_collect().await
    }
}

async fn partition_lag(
    connection: &Connection,
    subscription: &Subscription,
    info: &Info,
    partition: u32,
    checkpoint: &Checkpoint,
) -> Result<PartitionLag, Error> {
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
    let filters = subscription.types.iter().map(|text| subject::partition_filter(prefix, partition, text));
    let oldest_at = match messages {
        0 => None,
        _ => stored::first_stored_from(connection, behind + 1, &Vec::from_iter(filters)).await?,
    };
    Ok(PartitionLag { messages, oldest_at, discontinuity })
}

async fn durable_lag(connection: &Connection, consumer: &str) -> Result<Option<DurableLag>, Error> {
    let info = match consumer::info(connection, &consumer::durable_name(consumer)).await {
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

impl fmt::Debug for LagReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = Vec::from_iter(self.connections.iter().map(|connection| &connection.options.stream));
        f.debug_struct("LagReader").field("streams", &streams).finish_non_exhaustive()
    }
}

fn filters_of(config: &Config, prefix: &str) -> Vec<String> {
    match (config.filter_subject.as_str(), &*config.filter_subjects) {
        ("", []) => vec![subject::all(prefix)],
        ("", many) => many.to_vec(),
        (one, _) => vec![one.to_owned()],
    }
}
