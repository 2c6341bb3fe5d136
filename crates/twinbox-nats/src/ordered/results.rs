//! The way of the results back to the relay.
use super::keys::Keys;
use crate::publish::in_doubt;
use futures::Stream;
use std::{
    collections::VecDeque,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use twinbox_core::{PublishError, destination::Receipt};

/// How many results are taken from the channel at a time.
const AT_A_TIME: usize = 500;

/// The place of a message in its send, and its result.
type PlacedResult = (usize, Result<Receipt, PublishError>);

/// The way back to the relay for the result of one message. Dropped, the message is in doubt.
pub(super) struct Answer {
    /// The hash of the message's key.
    pub(super) key: Option<u64>,
    place: usize,
    /// None: it is sent.
    results: Option<UnboundedSender<PlacedResult>>,
}

impl Answer {
    pub(super) fn send(mut self, result: Result<Receipt, PublishError>) {
        self.send_once(result);
    }

    fn send_once(&mut self, result: Result<Receipt, PublishError>) {
        if let Some(results) = self.results.take() {
            // The relay may have dropped the stream.
            let _ = results.send((self.place, result));
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.results.is_some() {
            self.send_once(Err(in_doubt()));
        }
    }
}

/// The results of one send. Each message has an [`Answer`], so the channel holds at most one result for each.
pub(super) struct Results {
    known: Arc<Keys>,
    /// The keys of the messages whose results the relay has not taken, by place.
    unheard: Vec<Option<u64>>,
    /// Results on their way out of the channel, and the keys of their messages. The keys count as heard when
    /// the relay has all of these results: the failure of a key may be the last of them.
    taken: VecDeque<PlacedResult>,
    keys_taken: Vec<u64>,
    results: UnboundedReceiver<PlacedResult>,
}

/// Makes the answers of a send.
pub(super) struct Answers {
    keys: Vec<Option<u64>>,
    results: (UnboundedSender<PlacedResult>, UnboundedReceiver<PlacedResult>),
}

impl Answers {
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), results: unbounded_channel() }
    }

    /// The answer for the next message, by the hash of its key.
    pub(super) fn next(&mut self, key: Option<u64>) -> Answer {
        self.keys.push(key);
        Answer { key, place: self.keys.len() - 1, results: Some(self.results.0.clone()) }
    }

    pub(super) fn into_results(self, known: Arc<Keys>) -> Results {
        Results {
            known,
            unheard: self.keys,
            taken: VecDeque::new(),
            keys_taken: Vec::new(),
            results: self.results.1,
        }
    }
}

impl Results {
    /// Takes results from the channel. The relay has all that were taken before.
    fn poll_taken(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.keys_taken.is_empty() {
            self.known.lock().note_heard(self.keys_taken.drain(..));
        }
        let mut taken = Vec::new();
        ready!(self.results.poll_recv_many(cx, &mut taken, AT_A_TIME));
        self.keys_taken.extend(taken.iter().filter_map(|(place, _)| self.unheard.get_mut(*place)?.take()));
        self.taken = taken.into();
        Poll::Ready(())
    }
}

impl Stream for Results {
    type Item = PlacedResult;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<PlacedResult>> {
        if self.taken.is_empty() {
            ready!(self.poll_taken(cx));
        }
        Poll::Ready(self.taken.pop_front())
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        let (taken, unheard) = (mem::take(&mut self.keys_taken), mem::take(&mut self.unheard));
        self.known.lock().note_heard(taken.into_iter().chain(unheard.into_iter().flatten()));
    }
}
