//! Reading a stream as a log, partition by partition, for consumers that keep their places themselves.
use crate::{
    Error,
    connect::Link,
    consumer,
    pull::{End, Pull, unavailable},
    source, stream, subject, wire,
};
use async_nats::{
    Message, Subject,
    jetstream::{
        self,
        message::StreamMessage,
        stream::{Info, RawMessage, RetentionPolicy},
    },
};
use bytes::Bytes;
use serde::Deserialize;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use twinbox_core::{
    BoxFuture, Horizon, MessageId, PartitionReader, PartitionedLog, Place, Sequenced, SourceError,
    Subscription, id,
};

/// What JetStream answers when nothing has a sequence.
const NO_MESSAGE: &str = "nats.10037";

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

/// A message as the stream keeps it.
#[derive(Deserialize)]
struct Kept {
    message: RawMessage,
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

    /// Why what lies behind a place is not what came after the messages that were settled. None: it is.
    ///
    /// A server that lost its end, or was put back to an earlier copy, fills the sequences that it had given away with
    /// other messages.
    async fn doubt(&self, place: &Place, info: &Info, log: &str) -> Result<Option<&'static str>, Error> {
        if place.log != log {
            return Ok(Some("another stream of the same name is there"));
        }
        if place.sequence > info.state.last_sequence {
            return Ok(Some("the stream ends before the place"));
        }
        Ok(match message_at(&self.link, place.sequence).await? {
            None => Some("the message at the place is gone"),
            Some(message) if message != place.message => Some("another message is at the place"),
            Some(_) => None,
        })
    }
}

/// The last message of the stream, if it has one.
pub(crate) async fn end(link: &Link) -> Result<Option<End>, Error> {
    let sequence = stream::info(link, &link.options.stream).await?.state.last_sequence;
    Ok(message_at(link, sequence).await?.map(|message| End { sequence, message }))
}

/// None: no message of the stream has this sequence.
async fn message_at(link: &Link, sequence: u64) -> Result<Option<String>, Error> {
    let stream = &link.options.stream;
    let what = format!("message {sequence} of the stream `{stream}`");
    let asked = serde_json::json!({ "seq": sequence });
    let kept: Kept = match link.order(&what, format!("STREAM.MSG.GET.{stream}"), &asked).await {
        Err(error) if error.code() == NO_MESSAGE => return Ok(None),
        kept => kept?,
    };
    let stored_nanos = kept.message.time.unix_timestamp_nanos();
    // Headers that cannot be taken apart: no message of ours, so that another one is there.
    let Ok(kept) = StreamMessage::try_from(kept.message) else { return Ok(Some(String::new())) };
    let place = wire::Place::of(stream, sequence, stored_nanos);
    let (message, _) = wire::decode(Some(&kept.headers), &kept.payload, place);
    Ok(Some(identity(message.message_id(), stored_nanos)))
}

/// A message that is sent again keeps its id, and is stored at another time.
fn identity(id: MessageId, stored_nanos: i128) -> String {
    format!("{id}@{stored_nanos}")
}

impl PartitionedLog for StreamLog {
    fn partitions(&self) -> u32 {
        self.link.options.partitions
    }

    fn partition_of(&self, message: &twinbox_core::Message) -> u32 {
        id::partition(message.key.as_deref(), message.message_id(), self.link.options.partitions)
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
            let (link, consumer) = (&self.link, &self.subscription.consumer);
            let mut began = behind.sequence;
            // Before the look at the stream: a server that loses its end after that look loses this reader as well.
            let mut name = consumer::create_reader(link, &self.subscription, partition, began).await?;
            let info = stream::info(link, &link.options.stream).await?;
            // A stream that is made again counts its messages anew.
            let log = format!("{}@{}", info.config.name, info.created.unix_timestamp_nanos());
            // Where acknowledged messages are removed, all that is missing was settled by somebody.
            let is_kept = info.config.retention == RetentionPolicy::Limits;
            let missing = info.state.first_sequence.saturating_sub(behind.sequence + 1);
            let overtaken = began > 0 && behind.log == log && missing > 0 && is_kept;
            if overtaken {
                tracing::warn!(
                    consumer,
                    partition,
                    sequence = behind.sequence,
                    first = info.state.first_sequence,
                    missing,
                    "the stream has dropped messages behind the place, and those of this partition among them were never \
                     handled: see how old and how many it keeps, and send them again with `twinbox replay resend`"
                );
            }
            if began > 0
                && let Some(why) = self.doubt(behind, &info, &log).await?
            {
                tracing::warn!(
                    consumer,
                    partition,
                    why,
                    before = behind.log,
                    sequence = behind.sequence,
                    now = log,
                    first = info.state.first_sequence,
                    last = info.state.last_sequence,
                    "the stream is read from its first message, and the inbox knows what was handled"
                );
                began = 0;
                name = consumer::create_reader(link, &self.subscription, partition, began).await?;
            }
            let label = format!("{consumer}, partition {partition}");
            let mut pull = Pull::open(self.link.clone(), name, label).await?;
            pull.last = Some(0);
            tracing::debug!(consumer, partition, began, "reading a partition");
            let (last, unsettled) = (began, VecDeque::new());
            Ok(Box::new(StreamReader { pull, log, began, overtaken, last, next: 1, unsettled }) as _)
        })
    }
}

struct StreamReader {
    pull: Pull,
    log: String,
    began: u64,
    overtaken: bool,
    /// The place of the last message.
    last: u64,
    /// The number that the server gives to the next delivery: one that is missing was lost on its way.
    next: u64,
    /// What was received and is not settled, in order.
    unsettled: VecDeque<Unsettled>,
}

struct Unsettled {
    sequence: u64,
    message: String,
    /// Where to acknowledge it.
    reply: Option<Subject>,
}

impl PartitionReader for StreamReader {
    fn log(&self) -> &str {
        &self.log
    }

    fn began_behind(&self) -> u64 {
        self.began
    }

    fn message_at(&self, sequence: u64) -> String {
        let found = self.unsettled.binary_search_by_key(&sequence, |at| at.sequence);
        let end = || self.pull.caught_up.as_ref().filter(|end| end.sequence == sequence);
        match found {
            Ok(n) => self.unsettled[n].message.clone(),
            Err(_) => end().map(|end| end.message.clone()).unwrap_or_default(),
        }
    }

    fn caught_up(&self) -> Option<u64> {
        self.pull.caught_up.as_ref().map(|end| end.sequence)
    }

    fn was_overtaken(&self) -> bool {
        self.overtaken
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
            while self.unsettled.front().is_some_and(|at| at.sequence <= sequence) {
                last = self.unsettled.pop_front();
            }
            if let Some(reply) = last.and_then(|at| at.reply) {
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
        let stored_nanos = info.published.unix_timestamp_nanos();
        let (decoded, defect) = source::read(&message, &info, &self.pull.label);
        let sequence = info.stream_sequence;
        self.pull.last = Some(self.next);
        (self.next, self.last) = (self.next + 1, sequence);
        self.unsettled.push_back(Unsettled {
            sequence,
            message: identity(decoded.message_id(), stored_nanos),
            reply: message.reply.clone(),
        });
        Ok(Some(Sequenced { sequence, message: decoded, defect }))
    }
}
