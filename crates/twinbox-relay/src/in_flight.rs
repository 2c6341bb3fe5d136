//! The messages in flight: sent to the destination, and still without a result.
use crate::in_flight_limit::InFlightLimit;
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};
use twinbox_core::{
    Message, PublishError, PublishErrorKind as K, Publisher,
    destination::{Acknowledgement, Receipt},
};
use twinbox_log::{Budget, Entry};

/// A message with the result of its publish.
pub(crate) struct PublishResult {
    pub(crate) entry: Entry,
    pub(crate) result: Result<Receipt, PublishError>,
    pub(crate) sent: SendMark,
}

/// The time at which a message was sent, and its number in the order of sending.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendMark {
    pub(crate) at: Instant,
    pub(crate) number: u64,
}

/// The messages in flight, and the limit on them.
pub(crate) struct InFlight {
    publishes: FuturesUnordered<Publish>,
    pub(crate) limit: InFlightLimit,
    sent: u64,
    /// The highest number of a message that got a response.
    last_responded: Option<u64>,
    last_response_at: Option<Instant>,
}

/// Which messages got no response in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Only this one: a message that was sent later got a response. The message is at fault.
    ThisMessage,
    /// Some: a message that was sent before got a response in the meantime. Too much is in flight.
    SomeMessages,
    /// All since this one was sent. The destination may be down.
    AllMessages,
}

impl InFlight {
    pub(crate) fn new(messages_max: usize) -> Self {
        Self {
            publishes: FuturesUnordered::new(),
            limit: InFlightLimit::new(messages_max),
            sent: 0,
            last_responded: None,
            last_response_at: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.publishes.is_empty()
    }

    pub(crate) async fn send(&mut self, publisher: &mut dyn Publisher, entries: Vec<Entry>) {
        let messages: Vec<&Message> = entries.iter().map(|entry| &*entry.message).collect();
        let at = Instant::now();
        let acknowledgements = publisher.send(&messages).await;
        debug_assert_eq!(acknowledgements.len(), entries.len(), "an acknowledgement for each message");
        for (entry, acknowledgement) in entries.into_iter().zip(acknowledgements) {
            self.sent += 1;
            self.limit.note_sent(entry.ticket.room());
            let sent = SendMark { at, number: self.sent };
            self.publishes.push(Publish { entry: Some(entry), acknowledgement, sent });
        }
    }

    /// Waits for the next result. `None`: nothing is in flight.
    pub(crate) async fn next(&mut self) -> Option<PublishResult> {
        self.publishes.next().await
    }

    /// Returns `first` and all further results that are ready. Adapts the limit to them.
    pub(crate) fn take_ready(&mut self, first: PublishResult) -> Vec<PublishResult> {
        let mut results = vec![first];
        while let Some(result) = self.publishes.next().now_or_never().flatten() {
            results.push(result);
        }
        let now = Instant::now();
        let (mut ended, mut responded) = (Budget::NONE, Budget::NONE);
        let (mut last_number, mut accepted_at) = (None, None);
        for PublishResult { entry, result, sent } in &results {
            ended += entry.ticket.room();
            if is_response(result) {
                responded += entry.ticket.room();
                last_number = last_number.max(Some(sent.number));
            }
            if result.is_ok() {
                accepted_at = accepted_at.max(Some(sent.at));
            }
        }
        self.limit.note_ended(ended);
        if last_number.is_some() {
            self.last_responded = self.last_responded.max(last_number);
            self.last_response_at = Some(now);
            self.limit.grow(responded, accepted_at, now);
        }
        results
    }

    /// Tells which messages got no response, given one that got none.
    pub(crate) fn unanswered(&self, sent: SendMark) -> Unanswered {
        if self.last_responded.is_some_and(|number| number > sent.number) {
            Unanswered::ThisMessage
        } else if self.last_response_at.is_some_and(|at| at > sent.at) {
            Unanswered::SomeMessages
        } else {
            Unanswered::AllMessages
        }
    }
}

/// Whether the destination responded to this message, and not only failed.
fn is_response(result: &Result<Receipt, PublishError>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), K::RefusedForNow | K::RefusedForGood | K::Unroutable),
    }
}

/// A publish that is under way.
struct Publish {
    entry: Option<Entry>,
    acknowledgement: Acknowledgement,
    sent: SendMark,
}

impl Future for Publish {
    type Output = PublishResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PublishResult> {
        let result = ready!(self.acknowledgement.as_mut().poll(cx));
        let entry = self.entry.take().expect("a future is not polled after its end");
        Poll::Ready(PublishResult { entry, result, sent: self.sent })
    }
}
