//! Messages on their way.
use crate::window::Window;
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
use twinbox_sql::log::{Entry, Room};

/// A message with its answer.
pub(crate) struct Ended {
    pub(crate) entry: Entry,
    pub(crate) result: Result<Receipt, PublishError>,
    pub(crate) sent: Sent,
}

/// When a message was sent, and as which.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) number: u64,
}

/// What was sent and is not answered, and how much more may be.
pub(crate) struct Flight {
    answers: FuturesUnordered<Answer>,
    pub(crate) window: Window,
    sent: u64,
    /// The last of what was sent and is answered.
    answered: Option<u64>,
    answered_at: Option<Instant>,
}

/// What an answer that does not come says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// Later ones were answered: it is this message.
    Alone,
    /// Others were answered since it was sent: too much is under way.
    Slow,
    /// Nothing was: it may be the destination.
    Everywhere,
}

impl Flight {
    /// For at most so many messages.
    pub(crate) fn new(in_flight: usize) -> Self {
        let window = Window::new(in_flight);
        Self { answers: FuturesUnordered::new(), window, sent: 0, answered: None, answered_at: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.answers.len()
    }

    pub(crate) async fn send(&mut self, publisher: &mut dyn Publisher, entries: Vec<Entry>) {
        let messages: Vec<&Message> = entries.iter().map(|entry| &*entry.message).collect();
        let at = Instant::now();
        let answers = publisher.send(&messages).await;
        debug_assert_eq!(answers.len(), entries.len(), "an answer for each message");
        for (entry, acknowledgement) in entries.into_iter().zip(answers) {
            self.sent += 1;
            self.window.sent(entry.ticket.room());
            let sent = Sent { at, number: self.sent };
            self.answers.push(Answer { entry: Some(entry), acknowledgement, sent });
        }
    }

    /// The next answer. None: nothing is on its way.
    pub(crate) async fn next(&mut self) -> Option<Ended> {
        self.answers.next().await
    }

    /// The answers that are there already, behind this one. Notes what they say of the destination.
    pub(crate) fn all(&mut self, first: Ended) -> Vec<Ended> {
        let mut all = vec![first];
        while let Some(ended) = self.answers.next().now_or_never().flatten() {
            all.push(ended);
        }
        let now = Instant::now();
        let (mut landed, mut answered) = (Room::NONE, Room::NONE);
        let (mut last, mut taken_at) = (None, None);
        for Ended { entry, result, sent } in &all {
            landed += entry.ticket.room();
            if is_answer(result) {
                answered += entry.ticket.room();
                last = last.max(Some(sent.number));
            }
            if result.is_ok() {
                taken_at = taken_at.max(Some(sent.at));
            }
        }
        self.window.landed(landed);
        if last.is_some() {
            self.answered = self.answered.max(last);
            self.answered_at = Some(now);
            self.window.answered(answered, taken_at, now);
        }
        all
    }

    /// What it says that a message was not answered.
    pub(crate) fn silence(&self, sent: Sent) -> Silence {
        if self.answered.is_some_and(|number| number > sent.number) {
            Silence::Alone
        } else if self.answered_at.is_some_and(|at| at > sent.at) {
            Silence::Slow
        } else {
            Silence::Everywhere
        }
    }
}

/// Whether the destination has said something to the message.
fn is_answer(result: &Result<Receipt, PublishError>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => matches!(error.kind(), K::RefusedForNow | K::RefusedForGood | K::NoHome),
    }
}

struct Answer {
    entry: Option<Entry>,
    acknowledgement: Acknowledgement,
    sent: Sent,
}

impl Future for Answer {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let result = ready!(self.acknowledgement.as_mut().poll(cx));
        let entry = self.entry.take().expect("a future is not polled after its end");
        Poll::Ready(Ended { entry, result, sent: self.sent })
    }
}
