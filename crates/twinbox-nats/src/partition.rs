//! Reading a stream as a log, partition by partition, for consumers that keep their places themselves.
use crate::{
    Error,
    connect::Link,
    consumer,
    pull::{Pull, unavailable},
    source, stream, subject,
};
use async_nats::{Message, Subject, jetstream};
use bytes::Bytes;
use serde::Deserialize;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use twinbox_core::{
    BoxFuture, Horizon, PartitionReader, PartitionedLog, Place, Sequenced, SourceError, Subscription,
};

/// A stream over one connection, for all partitions that a process reads.
pub(crate) struct StreamLog {
    link: Arc<Link>,
    subscription: Subscription,
    horizon: Horizon,
}

/// The part of what the server says of a stream that names its subjects.
#[derive(Deserialize)]
struct Subjects {
    state: SubjectsState,
}

#[derive(Deserialize)]
struct SubjectsState {
    #[serde(default)]
    subjects: HashMap<String, u64>,
}

impl StreamLog {
    pub(crate) async fn open(link: Link, subscription: &Subscription) -> Result<Self, Error> {
        consumer::check_names(subscription)?;
        let horizon = stream::horizon(&link.check_stream().await?);
        let log = Self { link: Arc::new(link), subscription: subscription.clone(), horizon };
        log.check_partitions().await?;
        Ok(log)
    }

    /// Whether anything lies in a partition that nobody would read.
    async fn check_partitions(&self) -> Result<(), Error> {
        let options = &self.link.options;
        let what = format!("the subjects of the stream `{}`", options.stream);
        let filter = serde_json::json!({ "subjects_filter": subject::all(&options.prefix) });
        let subjects: Subjects =
            self.link.order(&what, format!("STREAM.INFO.{}", options.stream), &filter).await?;
        let partitions =
            subjects.state.subjects.keys().filter_map(|s| subject::partition(&options.prefix, s));
        match partitions.max() {
            Some(last) if last >= options.partitions => Err(Error::mismatch(format!(
                "the stream `{}` has messages in partition {last}, and the consumer `{}` reads {} partitions: set \
                 `NatsOptions::partitions` to what the relay has",
                options.stream, self.subscription.consumer, options.partitions
            ))),
            _ => Ok(()),
        }
    }
}

impl PartitionedLog for StreamLog {
    fn partitions(&self) -> u32 {
        self.link.options.partitions
    }

    fn horizon(&self) -> Horizon {
        self.horizon.clone()
    }

    fn read<'a>(
        &'a self,
        partition: u32,
        behind: &'a Place,
    ) -> BoxFuture<'a, Result<Box<dyn PartitionReader>, SourceError>> {
        Box::pin(async move {
            let consumer = &self.subscription.consumer;
            let info = stream::info(&self.link, &self.link.options.stream).await?;
            // A stream that is made again counts its messages anew.
            let log = format!("{}@{}", info.config.name, info.created.unix_timestamp_nanos());
            let is_same = behind.log == log && behind.sequence <= info.state.last_sequence;
            if !is_same && !behind.log.is_empty() {
                tracing::warn!(
                    consumer,
                    partition,
                    before = behind.log,
                    sequence = behind.sequence,
                    now = log,
                    last = info.state.last_sequence,
                    "another stream is there: it is read from its beginning, and the inbox knows what was handled"
                );
            }
            let began = if is_same { behind.sequence } else { 0 };
            let name = consumer::create_reader(&self.link, &self.subscription, partition, began).await?;
            let label = format!("{consumer}, partition {partition}");
            let mut pull = Pull::open(self.link.clone(), name, label).await?;
            pull.last = Some(0);
            tracing::debug!(consumer, partition, began, "reading a partition");
            Ok(Box::new(StreamReader { pull, log, began, last: began, next: 1, unsettled: VecDeque::new() })
                as _)
        })
    }
}

struct StreamReader {
    pull: Pull,
    log: String,
    began: u64,
    /// The place of the last message.
    last: u64,
    /// The number that the server gives to the next delivery: one that is missing was lost on its way.
    next: u64,
    /// Where to acknowledge what was received.
    unsettled: VecDeque<(u64, Subject)>,
}

impl PartitionReader for StreamReader {
    fn log(&self) -> &str {
        &self.log
    }

    fn began_behind(&self) -> u64 {
        self.began
    }

    fn receive(&mut self, max: usize) -> BoxFuture<'_, Result<Vec<Sequenced>, SourceError>> {
        Box::pin(async move {
            loop {
                let messages = self.pull.next(max).await?;
                let mut sequenced = Vec::with_capacity(messages.len());
                for message in messages {
                    sequenced.extend(self.sequenced(message)?);
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
            let mut last = None;
            while self.unsettled.front().is_some_and(|(at, _)| *at <= sequence) {
                last = self.unsettled.pop_front();
            }
            if let Some((_, reply)) = last {
                let acknowledged = self.pull.link.client.publish(reply, Bytes::from_static(b"+ACK")).await;
                if let Err(error) = acknowledged {
                    tracing::debug!(%error, "NATS was not told how far a partition is");
                }
            }
        })
    }
}

impl StreamReader {
    /// None: no message of the stream, or one that came before.
    fn sequenced(&mut self, message: Message) -> Result<Option<Sequenced>, SourceError> {
        let context = self.pull.link.jetstream.clone();
        let message = jetstream::Message { message, context };
        let Ok(info) = message.info() else { return Ok(None) };
        if info.stream_sequence <= self.last {
            return Ok(None);
        }
        if info.consumer_sequence != self.next {
            return Err(unavailable(format!(
                "the reader `{}` has missed a message: delivery {} came and {} was due",
                self.pull.label, info.consumer_sequence, self.next
            )));
        }
        self.pull.lag = Some(info.pending);
        let (decoded, defect) = source::read(&message, &info, &self.pull.label);
        let sequence = info.stream_sequence;
        self.pull.last = Some(self.next);
        (self.next, self.last) = (self.next + 1, sequence);
        self.unsettled.extend(message.reply.clone().map(|reply| (sequence, reply)));
        Ok(Some(Sequenced { sequence, message: decoded, defect }))
    }
}
