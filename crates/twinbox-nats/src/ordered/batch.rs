//! A batch that is being sent: the protocol "fast ingest" of NATS, ADR-50.
use super::{queue::Item, results::Answer};
use crate::{connect::Connection, denied::DeniedSubjects};
use async_nats::{Client, PublishErrorKind, Subject, Subscriber};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use serde::Deserialize;
use std::{collections::VecDeque, pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, error::Elapsed, timeout};
use twinbox_core::destination::Receipt;

/// Answers of the server that may be outstanding before no more is sent. They bound what a loaded server has
/// to buffer.
const ANSWERS_AHEAD: u64 = 4;
/// Over a longer way than this, these answers leave the line idle. Then only the relay bounds what is under
/// way, unless the server answers more often than it was asked to: it is loaded.
const LONG_WAY: Duration = Duration::from_millis(50);

/// After how many answers the speed of the server is known.
const ANSWERS_MIN: u64 = 10;
/// Between how many messages a sender looks for answers.
const LOOK_EVERY: u64 = 64;

/// The operation of a message in its batch. The reply subject carries it.
enum Operation {
    Begin = 0,
    Store = 1,
    /// End the batch. This message is not stored.
    End = 3,
}

/// How far the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It stores what comes.
    Open,
    /// It has refused a message, and stores none behind it.
    Broken,
    /// It has stored so many of the batch, and takes no more.
    Ended,
}

/// The reason why nothing more can be said about a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// The connection is gone.
    Connection,
    /// The server did not answer in time.
    Silent,
}

pub(super) struct Batch {
    client: Client,
    /// The subject of answers, whose last token is the id of the batch; after how many messages the server is
    /// asked to answer; and what it does with a gap.
    reply_prefix: String,
    answers: Subscriber,
    timeout: Duration,
    denied: Arc<DeniedSubjects>,
    /// The subject of the first message, which the stream takes.
    subject: Subject,
    /// After how many messages the server is asked to answer.
    flow: u16,
    /// After how many messages it does answer.
    pace: u64,
    sent: u64,
    stored: u64,
    /// Of how many messages an answer may still say that they are stored. Behind a message that is refused
    /// the server stores none, whatever comes in its name.
    stored_max: u64,
    /// Whether the server may have the first message already.
    first_may_be_repeated: bool,
    /// Whether another message has the name of the first one.
    is_name_taken: bool,
    progress: Progress,
    /// The answers for messages that are sent and not known to be stored.
    unanswered: VecDeque<Answer>,
    began: Instant,
    /// How long the first answer took.
    round_trip: Duration,
}

/// An answer of the server.
#[derive(Debug, Deserialize)]
struct ServerAnswer {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    msgs: u64,
    /// The number of the message that a gap is before.
    #[serde(default)]
    last_seq: u64,
    batch: Option<String>,
    #[serde(default)]
    count: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<AnswerError>,
}

#[derive(Debug, Deserialize)]
struct AnswerError {
    err_code: u64,
}

/// The server does not know the batch: it has refused one of its messages, or forgotten it.
const UNKNOWN_BATCH: u64 = 10208;

impl Batch {
    /// Subscribes to the answers. Sends nothing.
    pub(super) async fn new(connection: &Connection, flow: u16) -> Result<Self, Lost> {
        let client = connection.client.clone();
        let inbox = client.new_inbox();
        let answers = client.subscribe(format!("{inbox}.>")).await.map_err(|_| Lost::Connection)?;
        Ok(Self {
            client,
            reply_prefix: format!("{inbox}.{flow}.fail."),
            answers,
            timeout: connection.options.publish_timeout,
            denied: connection.denied.clone(),
            subject: Subject::from_static(""),
            flow,
            pace: 1,
            sent: 0,
            stored: 0,
            stored_max: u64::MAX,
            first_may_be_repeated: false,
            is_name_taken: false,
            progress: Progress::Open,
            unanswered: VecDeque::new(),
            began: Instant::now(),
            round_trip: Duration::ZERO,
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.progress == Progress::Open
    }

    /// Whether another message may be sent now. Takes the answers that are there.
    pub(super) fn has_room(&mut self) -> bool {
        if self.sent.is_multiple_of(LOOK_EVERY) {
            self.take_answers();
        }
        let is_long_way = self.round_trip > LONG_WAY && self.pace >= u64::from(self.flow);
        is_long_way || self.sent < self.stored + self.pace * ANSWERS_AHEAD
    }

    /// Sends a message. Waits for the answer to the first one: without a batch the server would drop others.
    pub(super) async fn send(&mut self, item: Item) -> Result<(), Lost> {
        let operation = if self.sent == 0 { Operation::Begin } else { Operation::Store };
        self.sent += 1;
        self.unanswered.push_back(item.answer);
        let reply = self.reply(self.sent, operation);
        let subject = Subject::from(item.encoded.subject);
        if self.sent == 1 {
            self.subject = subject.clone();
            self.first_may_be_repeated = item.encoded.may_be_repeated;
        }
        let (headers, payload) = (item.encoded.headers, item.encoded.payload);
        match self
            .hand_over(self.client.publish_with_reply_and_headers(subject, reply, headers, payload))
            .await
        {
            Ok(Ok(())) => {}
            // Larger than the server allows. The gap ends the batch before the next message.
            Ok(Err(error)) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                self.progress = Progress::Broken;
            }
            _ => return Err(Lost::Connection),
        }
        if self.sent == 1 && self.is_open() {
            let (denied, first) = (self.denied.clone(), self.subject.clone());
            tokio::select! {
                answered = self.next_answer() => answered?,
                () = denied.until_denied(&first) => self.progress = Progress::Broken,
            }
            self.round_trip = self.began.elapsed();
        }
        Ok(())
    }

    /// Gives the client its time to take a message. It usually has room: a timer for each message would take
    /// as long as the sending.
    async fn hand_over<T>(&self, sending: impl Future<Output = T>) -> Result<T, Elapsed> {
        let mut sending = pin!(sending);
        match sending.as_mut().now_or_never() {
            Some(sent) => Ok(sent),
            None => timeout(self.timeout, sending).await,
        }
    }

    fn reply(&self, number: u64, operation: Operation) -> String {
        format!("{}{number}.{}.$FI", self.reply_prefix, operation as u8)
    }

    /// Waits for an answer of the server.
    pub(super) async fn next_answer(&mut self) -> Result<(), Lost> {
        match timeout(self.timeout, self.answers.next()).await {
            Ok(Some(answer)) => self.take(&answer.payload),
            Ok(None) => return Err(Lost::Connection),
            Err(_) => return Err(Lost::Silent),
        }
        Ok(())
    }

    fn take_answers(&mut self) {
        while let Some(Some(answer)) = self.answers.next().now_or_never() {
            self.take(&answer.payload);
        }
    }

    fn take(&mut self, payload: &Bytes) {
        let Ok(answer) = serde_json::from_slice::<ServerAnswer>(payload) else {
            // No stream that takes the subject.
            return self.note_refused(0);
        };
        match answer {
            ServerAnswer { kind: Some(kind), seq, msgs, .. } if kind == "ack" => {
                self.pace = msgs.max(1);
                self.note_stored(seq);
            }
            ServerAnswer { batch: Some(_), duplicate: true, .. } if !self.first_may_be_repeated => {
                self.is_name_taken = true;
                self.note_refused(0);
            }
            ServerAnswer { batch: Some(_), count, .. } => {
                self.note_stored(count);
                self.progress = Progress::Ended;
            }
            // Nothing more of it is stored, and no other answer will come.
            ServerAnswer { error: Some(AnswerError { err_code: UNKNOWN_BATCH }), .. } => {
                self.note_refused(0);
                self.progress = Progress::Ended;
            }
            // A refusal names the message, a gap the one that is missing. Those before are being stored.
            ServerAnswer { seq, last_seq: 0, .. } => self.note_refused(seq),
            ServerAnswer { last_seq, .. } => self.note_refused(last_seq),
        }
    }

    /// Notes that the server has refused the message with this number. 0: it did not say which.
    fn note_refused(&mut self, number: u64) {
        self.stored_max = self.stored_max.min(number.saturating_sub(1)).max(self.stored);
        if self.progress == Progress::Open {
            self.progress = Progress::Broken;
        }
    }

    fn note_stored(&mut self, stored: u64) {
        while self.stored < stored.min(self.sent).min(self.stored_max) {
            self.stored += 1;
            if let Some(answer) = self.unanswered.pop_front() {
                answer.send(Ok(Receipt { is_duplicate: false }));
            }
        }
    }

    /// Ends the batch, and waits until the server says how many messages it has stored.
    pub(super) async fn end(&mut self) -> Result<(), Lost> {
        if self.sent == 0 || self.is_refused() {
            return Ok(());
        }
        let reply = self.reply(self.sent + 1, Operation::End);
        let ending = self.client.publish_with_reply(self.subject.clone(), reply, Bytes::new());
        if !matches!(timeout(self.timeout, ending).await, Ok(Ok(()))) {
            return Err(Lost::Connection);
        }
        while self.progress != Progress::Ended {
            self.next_answer().await?;
        }
        Ok(())
    }

    /// Whether the server has not begun the batch.
    pub(super) fn is_refused(&self) -> bool {
        self.sent == 1 && self.progress == Progress::Broken
    }

    pub(super) fn is_name_taken(&self) -> bool {
        self.is_name_taken
    }

    /// Messages that were stored in a second.
    pub(super) fn rate(&self) -> f64 {
        self.stored as f64 / self.began.elapsed().as_secs_f64().max(1e-6)
    }

    /// Whether the server answers so often that another batch, which asks for fewer answers, is worth its
    /// round trip. A batch cannot change what it asks for.
    pub(super) fn is_answered_too_often(&self, flow_for: impl FnOnce(f64) -> u16) -> bool {
        self.sent.is_multiple_of(LOOK_EVERY)
            && self.stored >= u64::from(self.flow) * ANSWERS_MIN
            && flow_for(self.rate()) >= self.flow.saturating_mul(2)
    }

    /// The answers for the messages that are not known to be stored, in the order of sending.
    pub(super) fn into_unanswered(self) -> VecDeque<Answer> {
        self.unanswered
    }
}
