//! The stream as a partitioned log, for consumers that store their own checkpoints.
use crate::{
    ack_subject,
    connect::Connection,
    consumer,
    deliveries::{Deliveries, Delivery},
    error::{Error, source_unavailable},
    facts,
    options::NatsOptions,
    pull::PullConsumer,
    replay_mark::ReplayKeys,
    server_answers::{AnswerFilter, copied_streams},
    stored::{self, StoredMessage, identity},
    stream,
    subject::StoredSubject,
    wire,
};
use async_nats::{
    Subject,
    jetstream::stream::{Info, RetentionPolicy},
};
use bytes::Bytes;
use std::{collections::VecDeque, sync::Arc};
use twinbox_core::{
    BoxFuture, Checkpoint, MaxAge, PartitionMessage, PartitionReader, PartitionedLog, SourceError,
    Subscription, id,
};

/// A stream, or several, over one connection and one for deliveries, for all partitions that this process
/// reads.
pub(crate) struct StreamLog {
    /// For each of the streams, by its number.
    connections: Vec<Arc<Connection>>,
    deliveries: Arc<Deliveries>,
    subscription: Subscription,
    max_age: MaxAge,
    answers: Arc<AnswerFilter>,
}

impl StreamLog {
    pub(crate) async fn open(connection: Connection, subscription: &Subscription) -> Result<Self, Error> {
        consumer::check_names(subscription)?;
        let (deliveries, subscription) = (Deliveries::open(&connection).await?, subscription.clone());
        let connections = Vec::from_iter(connection.each_stream().into_iter().map(Arc::new));
        let mut streams = Vec::from_iter(connections.iter().map(|one| one.options.stream.clone()));
        let (mut max_age, mut failed) = (MaxAge::Settled, Vec::new());
        for connection in &connections {
            match check_stream(connection, &subscription.consumer).await {
                Ok(info) => {
                    streams.extend(copied_streams(&info));
                    max_age = max_age.or_longer(stream::delivery_age(&info));
                }
                Err(error) if error.is_transient() => failed.push(error),
                Err(error) => return Err(error),
            }
        }
        let is_all = failed.len() == connections.len();
        for error in failed {
            if is_all {
                return Err(error);
            }
            tracing::warn!(%error, "a stream cannot be read, the others are");
        }
        let answers = Arc::new(AnswerFilter::new(streams, &subscription.consumer));
        Ok(Self { connections, deliveries: Arc::new(deliveries), subscription, max_age, answers })
    }

    fn options(&self) -> &NatsOptions {
        &self.connections[0].options
    }
}

/// Fails if the stream has other subjects, or if its relay has another number of partitions: no process would
/// read those beyond.
async fn check_stream(connection: &Connection, consumer: &str) -> Result<Info, Error> {
    let info = stream::check_for_consumer(connection).await?;
    let options = &connection.options;
    match facts::partitions(&info, &options.prefix) {
        Some(partitions) if partitions != options.partitions => Err(Error::mismatch(format!(
            "the stream `{}` has {partitions} partitions below `{}`, and the consumer `{consumer}` reads {} \
             partitions: set `NatsOptions::partitions` to the value of the relay",
            options.stream, options.prefix, options.partitions
        ))),
        Some(_) => Ok(info),
        None => {
            tracing::warn!(
                stream = options.stream,
                consumer,
                partitions = options.partitions,
                "the stream does not say how many partitions it has: the consumer reads as many as its \
                 options say, and the relay must have the same number"
            );
            Ok(info)
        }
    }
}

impl PartitionedLog for StreamLog {
    fn partitions(&self) -> u32 {
        self.options().partitions
    }

    fn partition_of(&self, message: &twinbox_core::Message) -> u32 {
        id::partition(message.key.as_deref(), message.message_id(), self.options().partitions)
    }

    fn max_age(&self) -> MaxAge {
        self.max_age.clone()
    }

    fn read<'a>(
        &'a self,
        partition: u32,
        behind: &'a Checkpoint,
    ) -> BoxFuture<'a, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let connection = &self.connections[partition as usize % self.connections.len()];
            let consumer = &self.subscription.consumer;
            let mut began = behind.sequence;
            // Before the stream's state: a server that loses its newest messages later than that state loses
            // this reader as well.
            let mut name = consumer::create_reader(connection, &self.subscription, partition, began).await?;
            let info = stream::check_for_consumer(connection).await?;
            let log = log_name(&info);
            // A stream that removes acknowledged messages has lost none: all that are missing were
            // acknowledged.
            let keeps_acknowledged = info.config.retention == RetentionPolicy::Limits;
            let missing = info.state.first_sequence.saturating_sub(behind.sequence + 1);
            let overtaken = began > 0 && behind.log == log && missing > 0 && keeps_acknowledged;
            if overtaken {
                tracing::warn!(
                    consumer,
                    partition,
                    sequence = behind.sequence,
                    first = info.state.first_sequence,
                    missing,
                    "the stream has dropped messages behind the checkpoint, and the consumer never handled \
                     those of this partition: check the limits of the stream, and send the messages again \
                     with `twinbox replays run resend`"
                );
            }
            if began > 0
                && let Some(reason) = discontinuity(connection, behind, &info).await?
            {
                tracing::warn!(
                    consumer,
                    partition,
                    reason,
                    before = behind.log,
                    sequence = behind.sequence,
                    now = log,
                    first = info.state.first_sequence,
                    last = info.state.last_sequence,
                    "the consumer reads the stream from its first message; the inbox removes duplicates"
                );
                began = 0;
                name = consumer::create_reader(connection, &self.subscription, partition, began).await?;
            }
            let label = format!("{consumer}, partition {partition}");
            let (connection, deliveries) = (connection.clone(), self.deliveries.clone());
            let keys = ReplayKeys::of(&info.config.metadata);
            let mut pull = PullConsumer::open(connection, deliveries, name, label, keys).await?;
            pull.last_delivery = Some(0);
            tracing::debug!(consumer, partition, began, "reading a partition");
            Ok(Box::new(StreamReader {
                pull,
                log,
                began,
                overtaken,
                last_sequence: began,
                next_delivery: 1,
                unsettled: VecDeque::new(),
                answers: self.answers.clone(),
                dropped: None,
            }) as _)
        })
    }
}

/// Returns the name of the stream with its time of creation, because a stream that is created again starts at
/// sequence 1.
fn log_name(info: &Info) -> String {
    format!("{}@{}", info.config.name, info.created.unix_timestamp_nanos())
}

/// Returns why the stream does not continue from `checkpoint`, or None if it does.
///
/// A server that lost its newest messages, or was restored from an earlier copy, assigns their sequences to
/// other messages.
pub(crate) async fn discontinuity(
    connection: &Connection,
    checkpoint: &Checkpoint,
    info: &Info,
) -> Result<Option<&'static str>, Error> {
    if checkpoint.log != log_name(info) {
        return Ok(Some("it is another stream of the same name"));
    }
    if checkpoint.sequence > info.state.last_sequence {
        return Ok(Some("the stream ends before the checkpoint"));
    }
    Ok(match stored::identity_at(connection, checkpoint.sequence).await? {
        None => Some("the message at the checkpoint is gone"),
        Some(identity) if identity != checkpoint.message => Some("another message is at the checkpoint"),
        Some(_) => None,
    })
}

struct StreamReader {
    pull: PullConsumer,
    log: String,
    began: u64,
    overtaken: bool,
    /// The sequence of the last message.
    last_sequence: u64,
    /// The number that the server assigns to the next delivery. A gap means that a delivery was lost.
    next_delivery: u64,
    /// Messages that were received and are not settled, in order.
    unsettled: VecDeque<Unsettled>,
    answers: Arc<AnswerFilter>,
    /// The last answer of the server that was dropped, unless a later message is settled. The checkpoint can
    /// move on to it.
    dropped: Option<Unsettled>,
}

struct Unsettled {
    message: StoredMessage,
    /// The subject for its ack.
    reply: Subject,
}

impl PartitionReader for StreamReader {
    fn log(&self) -> &str {
        &self.log
    }

    fn start_sequence(&self) -> u64 {
        self.began
    }

    fn message_at(&self, sequence: u64) -> String {
        let found = self.unsettled.binary_search_by_key(&sequence, |unsettled| unsettled.message.sequence);
        let message = match found {
            Ok(n) => Some(&self.unsettled[n].message),
            Err(_) => self.passed().find(|message| message.sequence == sequence),
        };
        message.map(|message| message.identity.clone()).unwrap_or_default()
    }

    fn received_up_to(&self) -> Option<u64> {
        self.passed().map(|message| message.sequence).max()
    }

    fn has_gap(&self) -> bool {
        self.overtaken
    }

    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<PartitionMessage>, SourceError>> {
        Box::pin(async move {
            loop {
                let messages = self.pull.next(max).await?;
                let mut sequenced = Vec::with_capacity(messages.len());
                for message in messages {
                    match self.sequenced(message) {
                        Ok(next) => sequenced.extend(next),
                        Err(error) => {
                            // The messages before it are not returned, and the checkpoint must not pass them.
                            self.dropped = None;
                            return Err(error);
                        }
                    }
                }
                if !sequenced.is_empty() {
                    return Ok(sequenced);
                }
            }
        })
    }

    fn lag(&self) -> Option<u64> {
        self.pull.lag
    }

    fn settled(&mut self, sequence: u64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let is_settled = |unsettled: &Unsettled| unsettled.message.sequence <= sequence;
            let dropped = self.dropped.take_if(|dropped| is_settled(dropped));
            let mut last = None;
            while self.unsettled.front().is_some_and(is_settled) {
                last = self.unsettled.pop_front();
            }
            let last = last.into_iter().chain(dropped).max_by_key(|unsettled| unsettled.message.sequence);
            if let Some(Unsettled { reply, .. }) = last {
                let client = &self.pull.connection.client;
                if let Err(error) = client.publish(reply, Bytes::from_static(b"+ACK")).await {
                    tracing::debug!(%error, "the ack for a partition was not sent");
                }
            }
        })
    }
}

impl StreamReader {
    /// Returns messages up to which all of the partition were received, and that nobody settles.
    fn passed(&self) -> impl Iterator<Item = &StoredMessage> {
        let dropped = self.dropped.iter().map(|dropped| &dropped.message);
        self.pull.caught_up_to.iter().chain(dropped)
    }

    /// Returns the message with its sequence. None: it does not come from the stream, it is a duplicate, or
    /// it is an answer of the server, which is dropped.
    fn sequenced(&mut self, delivery: Delivery) -> Result<Option<PartitionMessage>, SourceError> {
        let Some(place) = ack_subject::place(&delivery.reply) else { return Ok(None) };
        if place.stream_sequence <= self.last_sequence {
            return Ok(None);
        }
        if place.consumer_sequence != self.next_delivery {
            return Err(source_unavailable(format!(
                "the reader `{}` has missed a message: expected delivery {}, received {}",
                self.pull.label, self.next_delivery, place.consumer_sequence
            )));
        }
        self.pull.lag = Some(place.pending);
        let PullConsumer { connection, keys, label, .. } = &self.pull;
        let options = &connection.options;
        let subject = StoredSubject::partitioned(&delivery.subject, &options.prefix, options.partitions);
        let (sequence, is_answer) = (place.stream_sequence, self.answers.drops(&delivery));
        let (message, defect) = match is_answer {
            // Only for its identity.
            true => {
                let origin = wire::Origin::new(place.stream, sequence, place.stored_nanos);
                wire::decode_stored(&subject, &delivery.headers, &delivery.payload, origin)
            }
            false => wire::decode_delivery(&delivery, &place, &subject, keys, label),
        };
        self.pull.last_delivery = Some(self.next_delivery);
        (self.next_delivery, self.last_sequence) = (self.next_delivery + 1, sequence);
        let identity = identity(message.message_id(), place.stored_nanos);
        let received = Unsettled { message: StoredMessage { sequence, identity }, reply: delivery.reply };
        if is_answer {
            self.dropped = Some(received);
            return Ok(None);
        }
        self.unsettled.push_back(received);
        Ok(Some(PartitionMessage { sequence, message, defect }))
    }
}
