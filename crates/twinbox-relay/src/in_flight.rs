//! The messages in flight: sent to the destination, and still without a result.
use crate::{in_flight_limit::InFlightLimit, trace::SendSpans};
use futures::{FutureExt as _, Stream, StreamExt as _, stream::SelectAll};
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
};
use twinbox_core::{
    PublishError, PublishErrorKind as K, Publisher,
    destination::{Acknowledgements, Outgoing, Receipt},
};
use twinbox_log::{Budget, Entry};

/// After how many results other tasks send and read again. The last batch of them may bring as many more.
const RESULTS_AT_A_TIME: usize = 128;

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
    sends: SelectAll<SentBatch>,
    pub(crate) limit: InFlightLimit,
    /// The messages that were sent so far, and those that got a result.
    sent: u64,
    ended: u64,
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
            sends: SelectAll::new(),
            limit: InFlightLimit::new(messages_max),
            sent: 0,
            ended: 0,
            last_responded: None,
            last_response_at: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent == self.ended
    }

    /// Sends messages. `spans` end with their results.
    pub(crate) async fn send(
        &mut self,
        publisher: &mut dyn Publisher,
        entries: Vec<Entry>,
        spans: SendSpans,
    ) {
        let outgoing = Vec::from_iter(entries.iter().map(|Entry { ticket, message }| Outgoing {
            message,
            may_be_repeated: ticket.may_be_repeated,
            name: ticket.name,
        }));
        let at = Instant::now();
        let acknowledgements = publisher.send(&outgoing).await;
        entries.iter().for_each(|entry| self.limit.note_sent(entry.ticket.room()));
        let first = SendMark { at, number: self.sent + 1 };
        self.sent += entries.len() as u64;
        self.sends.push(SentBatch::new(entries, spans, first, acknowledgements));
    }

    /// Waits for the next results. `None`: nothing is in flight.
    pub(crate) async fn next(&mut self) -> Option<Vec<PublishResult>> {
        let results = self.sends.next().await?;
        self.ended += results.len() as u64;
        Some(results)
    }

    /// Returns the `first` results and further ones that are ready. Adapts the limit to them.
    pub(crate) fn take_ready(&mut self, first: Vec<PublishResult>) -> Vec<PublishResult> {
        let mut results = first;
        while results.len() < RESULTS_AT_A_TIME
            && let Some(more) = self.next().now_or_never().flatten()
        {
            results.extend(more);
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
        Err(error) => {
            matches!(
                error.kind(),
                K::NameTaken | K::InProcess | K::RefusedForNow | K::RefusedForGood | K::Unroutable
            )
        }
    }
}

/// The messages of one send.
struct SentBatch {
    /// By place, those without a result.
    entries: Vec<Option<Entry>>,
    spans: SendSpans,
    open: usize,
    first: SendMark,
    acknowledgements: Acknowledgements,
}

impl SentBatch {
    fn new(
        entries: Vec<Entry>,
        spans: SendSpans,
        first: SendMark,
        acknowledgements: Acknowledgements,
    ) -> Self {
        let open = entries.len();
        Self { entries: entries.into_iter().map(Some).collect(), spans, open, first, acknowledgements }
    }

    /// Ends the wait for the message at a place. `None`: it had a result.
    fn end(&mut self, place: usize, result: Result<Receipt, PublishError>) -> Option<PublishResult> {
        let entry = self.entries.get_mut(place)?.take()?;
        self.open -= 1;
        self.spans.end(place, &result);
        let sent = SendMark { number: self.first.number + place as u64, ..self.first };
        Some(PublishResult { entry, result, sent })
    }
}

impl Stream for SentBatch {
    type Item = Vec<PublishResult>;

    /// Takes results that are there.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut results = Vec::new();
        while self.open > 0 && results.len() < RESULTS_AT_A_TIME {
            match self.acknowledgements.as_mut().poll_next(cx) {
                Poll::Ready(Some((place, result))) => results.extend(self.end(place, result)),
                Poll::Ready(None) => {
                    let in_doubt = || Err(PublishError::new(K::InDoubt, "relay.no_result"));
                    results.extend((0..self.entries.len()).filter_map(|place| self.end(place, in_doubt())));
                }
                Poll::Pending if results.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready(Some(results).filter(|results| !results.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::stream;
    use std::time::Duration;
    use twinbox_core::{BoxFuture, Destination, Draft, destination::DestinationSecret, lanes::Lanes};

    /// Has a result for the second message only.
    struct Forgetful;

    impl Destination for Forgetful {
        fn id(&self) -> &str {
            "forgetful"
        }

        fn connect<'a>(
            &'a self,
            _: &'a DestinationSecret,
        ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
            Box::pin(async { Ok(Box::new(Self) as Box<dyn Publisher>) })
        }
    }

    impl Publisher for Forgetful {
        fn send<'a>(&'a mut self, _: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
            let second: Acknowledgements = Box::pin(stream::iter([(1, Ok(Receipt { is_duplicate: false }))]));
            Box::pin(std::future::ready(second))
        }

        fn timeout(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
            Box::pin(std::future::ready(Ok(())))
        }
    }

    #[tokio::test]
    async fn a_message_without_a_result_is_in_doubt() {
        let mut lanes = Lanes::new(0);
        for n in 1..=3 {
            lanes.push(Box::new(Draft::raw("orders.placed", 1, "{}").into_message("shop")), n, false);
        }
        let mut in_flight = InFlight::new(10);
        let entries = lanes.take(3.into());
        let spans = SendSpans::start(&Forgetful, &entries);
        in_flight.send(&mut Forgetful, entries, spans).await;
        assert!(!in_flight.is_empty());
        let first = in_flight.next().await.unwrap();
        let mut results = in_flight.take_ready(first);
        results.sort_by_key(|result| result.sent.number);
        let kinds = results.iter().map(|result| result.result.as_ref().map_err(PublishError::kind).err());
        assert_eq!(Vec::from_iter(kinds), [Some(K::InDoubt), None, Some(K::InDoubt)]);
        assert!(in_flight.is_empty() && in_flight.next().await.is_none());
    }
}
