//! Publishing to the stream.
use crate::{
    broker::Nats,
    classify,
    connect::{Connection, Purpose},
    error::{Error, ErrorKind},
    stream, subject, wire,
};
use async_nats::jetstream::{context::PublishAckFuture, message::PublishMessage};
use std::{
    future::ready,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::Mutex,
    time::{Instant, timeout_at},
};
use twinbox_core::{
    BoxFuture, Destination, Message, PublishError, PublishErrorKind, Publisher,
    destination::{Acknowledgement, Receipt},
};

impl Destination for Nats {
    fn id(&self) -> &str {
        &self.options.id
    }

    fn partitions(&self) -> Option<u32> {
        Some(self.options.partitions)
    }

    /// Opens a connection for this publisher and checks the stream.
    ///
    /// JetStream must respond, and the stream must accept subjects below the prefix. A missing stream is
    /// created if [`create_stream`](crate::NatsOptions::create_stream) is set, and an error otherwise.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let connection = Mutex::new(open(self).await?);
            Ok(Box::new(StreamPublisher { nats: self.clone(), connection }) as _)
        })
    }
}

async fn open(nats: &Nats) -> Result<Arc<Connection>, Error> {
    let connection = Connection::open(&nats.options, Purpose::Publish).await?;
    stream::prepare(&connection).await?;
    Ok(Arc::new(connection))
}

/// Owns its connection: acknowledgements hold it only weakly. Dropping the publisher ends the client and
/// discards the client's buffer.
struct StreamPublisher {
    nats: Nats,
    connection: Mutex<Arc<Connection>>,
}

impl Publisher for StreamPublisher {
    fn send<'a>(&'a mut self, batch: &'a [&'a Message]) -> BoxFuture<'a, Vec<Acknowledgement>> {
        let nats = &self.nats;
        let connection = self.connection.get_mut();
        Box::pin(async move {
            let deadline = Instant::now() + nats.options.publish_timeout;
            let mut acknowledgements = Vec::with_capacity(batch.len());
            let mut is_down = false;
            for message in batch {
                let sent = match (is_down, encode(nats, message)) {
                    (_, Err(refused)) => Err(refused),
                    (true, Ok(_)) => Err(unavailable("nats.not_sent")),
                    (false, Ok((subject, _))) if connection.denied.contains(&subject) => Err(denied()),
                    (false, Ok((subject, message))) => {
                        let sent = send(connection, &subject, message, deadline).await;
                        sent.map(|ack| (subject, ack))
                    }
                };
                is_down |= sent.as_ref().is_err_and(|e| e.kind() == PublishErrorKind::Unavailable);
                acknowledgements.push(match sent {
                    Ok((subject, ack)) => acknowledgement(Arc::downgrade(connection), subject, ack),
                    Err(error) => Box::pin(ready(Err(error))),
                });
            }
            acknowledgements
        })
    }

    /// Applies twice: to handing a batch to the client, and to each acknowledgement from its first poll.
    fn timeout(&self) -> Duration {
        self.nats.options.publish_timeout
    }

    /// Checks the stream. Opens a new connection if the present one is lost or does not respond.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async {
            let mut connection = self.connection.lock().await;
            if connection.is_connected() {
                match stream::prepare(&connection).await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    checked => return Ok(checked?),
                }
            }
            *connection = open(&self.nats).await?;
            Ok(())
        })
    }
}

/// Returns the subject and the message for the client, or why NATS can never transport the message.
fn encode(nats: &Nats, message: &Message) -> Result<(String, PublishMessage), PublishError> {
    let refused = |code| PublishError::new(PublishErrorKind::RefusedForGood, code);
    let id = message.message_id();
    let subject = subject::of_message(&nats.options.prefix, nats.options.partitions, message, id);
    let subject = subject.ok_or_else(|| refused("nats.subject"))?;
    let headers = wire::encode(message, id).map_err(|_| refused("nats.header"))?;
    Ok((subject, PublishMessage::build().headers(headers).payload(message.payload.clone())))
}

/// Hands a message to the client, but only while it is connected. A disconnected client would buffer the
/// message and might send it long after another relay has taken over.
async fn send(
    connection: &Connection,
    subject: &str,
    message: PublishMessage,
    deadline: Instant,
) -> Result<PublishAckFuture, PublishError> {
    if !connection.is_connected() {
        return Err(unavailable("nats.disconnected"));
    }
    match timeout_at(deadline, connection.jetstream.send_publish(subject.to_owned(), message)).await {
        Ok(sent) => sent.map_err(classify::unsent),
        Err(_) => Err(unavailable("nats.stalled")),
    }
}

/// Waits for the acknowledgement. The client's time-out runs from the first poll.
fn acknowledgement(connection: Weak<Connection>, subject: String, ack: PublishAckFuture) -> Acknowledgement {
    Box::pin(async move {
        match ack.await {
            Ok(ack) => Ok(Receipt { is_duplicate: ack.duplicate }),
            Err(error) => Err(refine(&connection, &subject, classify::unacknowledged(error)).await),
        }
    })
}

/// Finds the cause behind an ambiguous error. A subject without a stream may mean that the stream is gone; a
/// message without a response may mean that the server denies the subject.
async fn refine(connection: &Weak<Connection>, subject: &str, error: PublishError) -> PublishError {
    let Some(connection) = connection.upgrade() else { return error };
    match error.kind() {
        PublishErrorKind::Unroutable => match stream::check(&connection).await {
            Ok(_) => error,
            Err(error) => error.into(),
        },
        PublishErrorKind::Unanswered if connection.denied.contains(subject) => denied().with_source(error),
        _ => error,
    }
}

/// The server denies this subject. It may accept others.
fn denied() -> PublishError {
    PublishError::new(PublishErrorKind::RefusedForGood, "nats.permission")
}

fn unavailable(code: &str) -> PublishError {
    PublishError::new(PublishErrorKind::Unavailable, code)
}
