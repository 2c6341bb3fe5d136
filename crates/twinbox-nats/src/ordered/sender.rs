//! The task that sends.
use super::{
    batch::{Batch, Lost},
    queue::{Item, Queue},
    results::Answer,
};
use crate::{
    connect::Connection,
    publish::{self, in_doubt, unavailable},
};
use futures::{StreamExt as _, stream::FuturesUnordered};
use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, sleep};
use twinbox_core::{PublishError, PublishErrorKind};

/// Fewer messages than this go one by one.
const BATCH_MIN: usize = 64;
/// How long a batch waits for more messages before it ends. Its last messages are answered after that.
const LINGER: Duration = Duration::from_millis(1);
/// After how many messages the server is asked to answer.
const FLOW_MAX: u16 = 500;
const FLOW_MIN: u16 = 10;
/// The number for the first batch, while nothing is known about the speed of the server.
const FLOW_START: u16 = 50;
/// Answers of the server in a second that are enough.
const ANSWERS_PER_SECOND: f64 = 20.0;
/// How long no batch is tried after the server did not begin one.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Sender {
    connection: Arc<Connection>,
    queue: Arc<Queue>,
    flow: u16,
    /// So many messages go one by one, because a batch has not stored them: one of them is at fault.
    suspects: usize,
    no_batch_until: Instant,
}

/// After how many messages the server should answer, at so many messages a second.
fn flow_for(rate: f64) -> u16 {
    (rate / ANSWERS_PER_SECOND).clamp(f64::from(FLOW_MIN), f64::from(FLOW_MAX)) as u16
}

impl Sender {
    pub(super) fn new(connection: Arc<Connection>, queue: Arc<Queue>) -> Self {
        Self { connection, queue, flow: FLOW_START, suspects: 0, no_batch_until: Instant::now() }
    }

    pub(super) async fn run(mut self) {
        loop {
            self.queue.fail_late();
            match self.queue.len() {
                0 => self.queue.filled().await,
                _ if self.may_batch() => self.batch().await,
                _ => self.one_by_one().await,
            }
        }
    }

    fn may_batch(&self) -> bool {
        self.suspects == 0
            && self.queue.len() >= BATCH_MIN
            && Instant::now() >= self.no_batch_until
            && !self.queue.goes_alone()
    }

    /// Sends messages one by one, of each key one at a time, until a batch is better.
    async fn one_by_one(&mut self) {
        let (mut under_way, mut keys) = (FuturesUnordered::new(), HashSet::new());
        loop {
            while !self.may_batch() {
                let fits = |item: &Item| item.answer.key.is_none_or(|key| !keys.contains(&key));
                let Some(Item { encoded, send_by, answer, .. }) = self.queue.pop_if(fits) else { break };
                self.suspects = self.suspects.saturating_sub(1);
                let (denied, subject) = (self.connection.denied.clone(), encoded.subject.clone());
                match encoded.send(&self.connection, send_by).await {
                    Ok(ack) => {
                        keys.extend(answer.key);
                        // A denied message gets no acknowledgement, and those behind it would wait.
                        under_way.push(async move {
                            tokio::select! {
                                biased;
                                result = ack => (answer, result),
                                () = denied.until_denied(&subject) => (answer, Err(publish::denied())),
                            }
                        });
                    }
                    Err(error) => self.queue.fail([(answer, error)], []),
                }
            }
            tokio::select! {
                ended = under_way.next() => {
                    let Some((answer, result)) = ended else { return };
                    answer.key.inspect(|key| _ = keys.remove(key));
                    match result {
                        Ok(receipt) => answer.send(Ok(receipt)),
                        Err(error) => self.queue.fail([(answer, error)], []),
                    }
                }
                () = self.queue.filled(), if !under_way.is_empty() => {}
            }
        }
    }

    /// Sends messages as a batch, until there are no more, one is not stored, or another batch would be
    /// faster.
    async fn batch(&mut self) {
        let Ok(mut batch) = Batch::new(&self.connection, self.flow).await else {
            return self.fail_all(VecDeque::new(), Lost::Connection);
        };
        let mut ended = self.fill(&mut batch).await;
        if ended.is_ok() {
            ended = batch.end().await;
        }
        let (rate, was_refused, is_name_taken) = (batch.rate(), batch.is_refused(), batch.is_name_taken());
        let mut behind = batch.into_unanswered();
        if let Err(lost) = ended {
            return self.fail_all(behind, lost);
        }
        self.flow = flow_for(rate);
        if behind.is_empty() {
            return;
        }
        if was_refused {
            tracing::debug!("the server did not begin a batch");
            self.no_batch_until = Instant::now() + REFUSED_PAUSE;
        }
        self.suspects = behind.len();
        let first = if is_name_taken { behind.pop_front() } else { None };
        self.queue.fail(first.map(|answer| (answer, publish::name_taken())), behind);
    }

    async fn fill(&mut self, batch: &mut Batch) -> Result<(), Lost> {
        while batch.is_open() && !batch.is_answered_too_often(flow_for) {
            if !batch.has_room() {
                batch.next_answer().await?;
                continue;
            }
            if !self.connection.is_connected() {
                return Err(Lost::Connection);
            }
            match self.next_of_batch() {
                Some(item) => batch.send(item).await?,
                None if self.queue.len() > 0 => {
                    self.suspects = 1;
                    return Ok(());
                }
                None => tokio::select! {
                    () = self.queue.filled() => {}
                    answered = batch.next_answer() => answered?,
                    () = sleep(LINGER) => return Ok(()),
                },
            }
        }
        Ok(())
    }

    /// The next message of a batch. One that the server denies goes alone, which tells why.
    fn next_of_batch(&self) -> Option<Item> {
        let denied = &self.connection.denied;
        self.queue.pop_if(|item| !item.goes_alone && !denied.contains(&item.encoded.subject))
    }

    /// Fails the messages of a batch that are not known to be stored.
    fn fail_all(&mut self, mut unanswered: VecDeque<Answer>, lost: Lost) {
        match lost {
            Lost::Connection => {
                // The next one fails too, so that the relay learns of the loss if no other was under way.
                let unsent = self.queue.pop_if(|_| true).map(|item| item.answer);
                let unsent = unsent.map(|answer| (answer, unavailable("nats.disconnected")));
                self.queue.fail(unanswered.into_iter().map(|answer| (answer, in_doubt())).chain(unsent), []);
            }
            Lost::Silent => {
                self.suspects = unanswered.len();
                let silent = PublishError::new(PublishErrorKind::Unanswered, "nats.timeout");
                let first = unanswered.pop_front().map(|answer| (answer, silent));
                self.queue.fail(first, unanswered);
            }
        }
    }
}
