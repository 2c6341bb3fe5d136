//! The two ends of a subscription: the connection fills it, a consumer takes from it.
use super::frame::RawMessage;
use crate::{
    ack_subject,
    header_block::{self, Headers},
};
use async_nats::Subject;
use bytes::Bytes;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use tokio::sync::mpsc;

/// The most arrivals that wait in a subscription.
const WAITING_MAX: usize = 4096;
/// The most bytes that wait in a subscription, beside one message. Twice what one pull request asks for.
const WAITING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A delivery, or news, that comes over a subscription.
pub(crate) enum Arrival {
    Delivery(Delivery),
    Status(Status),
    /// The connection was lost and is there again. The server has forgotten its requests.
    Reconnected,
}

/// A message of the stream.
pub(crate) struct Delivery {
    pub(crate) subject: String,
    /// The subject for its ack, which also says where the stream has the message.
    pub(crate) reply: Subject,
    pub(crate) headers: Headers,
    pub(crate) payload: Bytes,
    /// How many bytes came over the network.
    bytes: usize,
}

/// What the server says about a pull request.
#[derive(Debug, PartialEq)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Arrival {
    /// Tells what the stream delivers from what the server says. Only a delivery has a subject for its ack:
    /// its header block may look like a status. None: neither, so it came from another client.
    pub(super) fn read(raw: RawMessage) -> Option<Self> {
        let RawMessage { subject, reply, header_block, payload, .. } = raw;
        match reply {
            Some(reply) if reply.starts_with(ack_subject::PREFIX) => {
                let bytes = payload.len() + header_block.as_ref().map_or(0, Bytes::len);
                let headers = Headers::read(header_block);
                Some(Self::Delivery(Delivery { subject, reply: reply.into(), headers, payload, bytes }))
            }
            Some(_) => None,
            None => {
                let block = header_block?;
                let (code, text) = header_block::status(&block)?;
                Some(Self::Status(Status { code, text: text.to_owned() }))
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Delivery(delivery) => delivery.bytes,
            Self::Status(_) | Self::Reconnected => 0,
        }
    }
}

/// A request of a subscription to the connection.
pub(super) enum Command {
    Subscribe(Entry),
    Unsubscribe(u64),
    /// A request whose responses come over a subscription.
    Request {
        subscription: u64,
        subject: String,
        body: String,
    },
}

/// The end of a subscription that a consumer holds. The server forgets it when it is dropped.
pub(crate) struct Subscription {
    id: u64,
    arrivals: mpsc::Receiver<Arrival>,
    waiting_bytes: Arc<AtomicUsize>,
    commands: mpsc::Sender<Command>,
}

/// The end of a subscription that the connection holds.
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) inbox: String,
    arrivals: mpsc::Sender<Arrival>,
    waiting_bytes: Arc<AtomicUsize>,
}

pub(super) fn pair(id: u64, inbox: String, commands: mpsc::Sender<Command>) -> (Entry, Subscription) {
    let (sender, arrivals) = mpsc::channel(WAITING_MAX);
    let waiting_bytes = Arc::new(AtomicUsize::new(0));
    let entry = Entry { id, inbox, arrivals: sender, waiting_bytes: waiting_bytes.clone() };
    (entry, Subscription { id, arrivals, waiting_bytes, commands })
}

impl Subscription {
    /// Waits for the next arrival. None: the connection has ended, or the subscription. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Arrival> {
        self.arrivals.recv().await.inspect(|arrival| self.count_taken(arrival))
    }

    /// Returns the next arrival if there is one already.
    pub(crate) fn next_waiting(&mut self) -> Option<Arrival> {
        self.arrivals.try_recv().ok().inspect(|arrival| self.count_taken(arrival))
    }

    /// Sends a request whose responses come over this subscription. Returns whether the connection exists.
    pub(crate) async fn request(&self, subject: &str, body: String) -> bool {
        let request = Command::Request { subscription: self.id, subject: subject.to_owned(), body };
        self.commands.send(request).await.is_ok()
    }

    /// Ends the subscription. What has arrived can still be taken.
    pub(crate) fn end(&mut self) {
        self.arrivals.close();
        // A connection that has no room for the command finds out at its next message for this subscription.
        let _ = self.commands.try_send(Command::Unsubscribe(self.id));
    }

    fn count_taken(&self, arrival: &Arrival) {
        self.waiting_bytes.fetch_sub(arrival.bytes(), Relaxed);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.end();
    }
}

/// Why an arrival was not put into a subscription.
pub(super) enum Refused {
    /// It holds as much as it may.
    Full,
    /// Nobody takes from it any more.
    Ended,
}

impl Entry {
    pub(super) fn put(&self, arrival: Arrival) -> Result<(), Refused> {
        let bytes = arrival.bytes();
        let waiting = self.waiting_bytes.load(Relaxed);
        if waiting > 0 && waiting + bytes > WAITING_BYTES_MAX {
            return Err(Refused::Full);
        }
        self.waiting_bytes.fetch_add(bytes, Relaxed);
        self.arrivals.try_send(arrival).map_err(|error| {
            self.waiting_bytes.fetch_sub(bytes, Relaxed);
            match error {
                mpsc::error::TrySendError::Full(_) => Refused::Full,
                mpsc::error::TrySendError::Closed(_) => Refused::Ended,
            }
        })
    }

    pub(super) fn is_ended(&self) -> bool {
        self.arrivals.is_closed()
    }
}
