//! Publishing.
use crate::{
    Error, ErrorKind, Nats, classify,
    connect::{Link, Use},
    subject, wire,
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

    /// Opens a connection of the publisher's own and asks for the stream: JetStream has to answer, the
    /// stream to exist, or to be created if that was asked for, and to take subjects below the prefix.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async {
            let link = open(self).await?;
            Ok(Box::new(StreamPublisher { nats: self.clone(), link: Mutex::new(link) }) as _)
        })
    }
}

async fn open(nats: &Nats) -> Result<Arc<Link>, Error> {
    let link = Link::open(&nats.options, Use::Publish).await?;
    link.prepare_stream().await?;
    Ok(Arc::new(link))
}

/// Owns its connection. Dropping it ends the client, and with it what the client still holds, even while
/// acknowledgements are waited for.
struct StreamPublisher {
    nats: Nats,
    link: Mutex<Arc<Link>>,
}

impl Publisher for StreamPublisher {
    fn send<'a>(&'a mut self, batch: &'a [&'a Message]) -> BoxFuture<'a, Vec<Acknowledgement>> {
        let nats = &self.nats;
        let link = self.link.get_mut();
        Box::pin(async move {
            let deadline = Instant::now() + nats.options.publish_timeout;
            let mut answers = Vec::with_capacity(batch.len());
            let mut down = false;
            for message in batch {
                let answer = match (down, prepare(nats, message)) {
                    (_, Err(refused)) => Err(refused),
                    (true, Ok(_)) => Err(unavailable("nats.not_sent")),
                    (false, Ok((subject, _))) if link.denials.denies(&subject) => Err(denied()),
                    (false, Ok(ready)) => start(link, ready, deadline).await,
                };
                down |= answer.as_ref().is_err_and(|e| e.kind() == PublishErrorKind::Unavailable);
                answers.push(match answer {
                    Ok((subject, sent)) => acknowledgement(Arc::downgrade(link), subject, sent),
                    Err(error) => Box::pin(ready(Err(error))),
                });
            }
            answers
        })
    }

    /// For handing a batch to the client, and again from the first poll of each acknowledgement.
    fn timeout(&self) -> Duration {
        self.nats.options.publish_timeout
    }

    /// Asks for the stream, on another connection if this one is lost or does not answer.
    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async {
            let mut link = self.link.lock().await;
            if link.is_connected() {
                match link.prepare_stream().await {
                    Err(error) if error.kind() == ErrorKind::Unavailable => {}
                    answer => return Ok(answer?),
                }
            }
            *link = open(&self.nats).await?;
            Ok(())
        })
    }
}

/// What is to be sent, or why this message never can be.
fn prepare(nats: &Nats, message: &Message) -> Result<(String, PublishMessage), PublishError> {
    let refused = |code| PublishError::new(PublishErrorKind::RefusedForGood, code);
    let id = message.message_id();
    let subject = subject::of(&nats.options.prefix, nats.options.partitions, message, id);
    let subject = subject.ok_or_else(|| refused("nats.subject"))?;
    let headers = wire::encode(message, id).map_err(|_| refused("nats.header"))?;
    Ok((subject, PublishMessage::build().headers(headers).payload(message.payload.clone())))
}

/// Hands a message to the client. Only while it is connected: it would keep the message otherwise, and
/// might send it long after somebody else took over.
async fn start(
    link: &Link,
    (subject, message): (String, PublishMessage),
    deadline: Instant,
) -> Result<(String, PublishAckFuture), PublishError> {
    if !link.is_connected() {
        return Err(unavailable("nats.disconnected"));
    }
    match timeout_at(deadline, link.jetstream.send_publish(subject.clone(), message)).await {
        Ok(sent) => Ok((subject, sent.map_err(classify::unsent)?)),
        Err(_) => Err(unavailable("nats.stalled")),
    }
}

/// Its time-out runs from the first poll.
fn acknowledgement(link: Weak<Link>, subject: String, sent: PublishAckFuture) -> Acknowledgement {
    Box::pin(async move {
        match sent.await {
            Ok(ack) => Ok(Receipt { duplicate: ack.duplicate }),
            Err(error) => Err(look_closer(&link, &subject, classify::unacknowledged(error)).await),
        }
    })
}

/// Tells a subject without a stream from a stream that is gone, and a server that does not answer from one
/// that does not let us publish.
async fn look_closer(link: &Weak<Link>, subject: &str, error: PublishError) -> PublishError {
    let Some(link) = link.upgrade() else { return error };
    match error.kind() {
        PublishErrorKind::NoHome => match link.check_stream().await {
            Ok(_) => error,
            Err(error) => error.into(),
        },
        PublishErrorKind::Unanswered if link.denials.denies(subject) => denied().with_source(error),
        _ => error,
    }
}

/// The server said so. It says nothing about other subjects.
fn denied() -> PublishError {
    PublishError::new(PublishErrorKind::RefusedForGood, "nats.permission")
}

fn unavailable(code: &str) -> PublishError {
    PublishError::new(PublishErrorKind::Unavailable, code)
}
