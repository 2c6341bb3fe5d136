//! Messages on their way.
use futures::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use twinbox_core::{
    Message, PublishError, Publisher,
    destination::{Acknowledgement, Receipt},
};
use twinbox_sql::log::Entry;

/// A message with its answer.
pub(crate) struct Ended {
    pub(crate) entry: Entry,
    pub(crate) result: Result<Receipt, PublishError>,
}

/// What was sent and is not answered.
#[derive(Default)]
pub(crate) struct Flight(FuturesUnordered<Answer>);

impl Flight {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) async fn send(&mut self, publisher: &mut dyn Publisher, entries: Vec<Entry>) {
        let messages: Vec<&Message> = entries.iter().map(|entry| &*entry.message).collect();
        let answers = publisher.send(&messages).await;
        debug_assert_eq!(answers.len(), entries.len(), "an answer for each message");
        for (entry, acknowledgement) in entries.into_iter().zip(answers) {
            self.0.push(Answer { entry: Some(entry), acknowledgement });
        }
    }

    /// The next answer. None: nothing is on its way.
    pub(crate) async fn next(&mut self) -> Option<Ended> {
        self.0.next().await
    }

    /// An answer that is there already.
    pub(crate) fn ready(&mut self) -> Option<Ended> {
        self.0.next().now_or_never().flatten()
    }
}

struct Answer {
    entry: Option<Entry>,
    acknowledgement: Acknowledgement,
}

impl Future for Answer {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let result = ready!(self.acknowledgement.as_mut().poll(cx));
        let entry = self.entry.take().expect("a future is not polled after its end");
        Poll::Ready(Ended { entry, result })
    }
}
