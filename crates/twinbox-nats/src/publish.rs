//! One message on its way to the stream.
use crate::{
    broker::Nats,
    classify,
    connect::{Connection, Purpose},
    denied::DENIED,
    error::{Error, ErrorKind},
    facts,
    signer::Signer,
    stream, subject, wire,
};
use async_nats::{
    HeaderMap,
    jetstream::{context::PublishAckFuture, message::PublishMessage, stream::Info},
};
use bytes::Bytes;
use std::sync::{Arc, Weak};
use tokio::time::{Instant, timeout_at};
use twinbox_core::{
    PublishError, PublishErrorKind,
    destination::{Acknowledgement, Outgoing, Receipt},
};

/// Opens a connection for publishing, and prepares the stream.
pub(crate) async fn open(nats: &Nats, signer: &Signer) -> Result<(Arc<Connection>, Info), Error> {
    let connection = Connection::open(&nats.options, Purpose::Publish).await?;
    let info = prepare(&connection, signer).await?;
    Ok((Arc::new(connection), info))
}

/// Prepares the stream, and returns what it is. Returns a new connection if the present one is lost or does
/// not respond.
pub(crate) async fn check(
    nats: &Nats,
    signer: &Signer,
    present: &Connection,
) -> Result<(Option<Arc<Connection>>, Info), Error> {
    if present.is_connected() {
        match prepare(present, signer).await {
            // Another server may have more to say.
            Err(error) if error.kind() == ErrorKind::Unavailable => {}
            checked => return checked.map(|info| (None, info)),
        }
    }
    open(nats, signer).await.map(|(connection, info)| (Some(connection), info))
}

async fn prepare(connection: &Connection, signer: &Signer) -> Result<Info, Error> {
    let info = stream::prepare(connection).await?;
    let info = stream::with_quorum(connection, info).await?;
    facts::write(connection, &info, signer).await?;
    Ok(info)
}

/// A message as NATS transports it.
pub(crate) struct Encoded {
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
    /// Whether the server may have it already.
    pub(crate) may_be_repeated: bool,
}

impl Encoded {
    /// Returns why NATS can never transport the message if it is so.
    pub(crate) fn new(nats: &Nats, signer: &Signer, outgoing: &Outgoing<'_>) -> Result<Self, PublishError> {
        let refused = |code| PublishError::new(PublishErrorKind::RefusedForGood, code);
        let (message, may_be_repeated) = (outgoing.message, outgoing.may_be_repeated);
        let subject = subject::of_message(&nats.options.prefix, nats.options.partitions, message);
        let subject = subject.ok_or_else(|| refused("nats.subject"))?;
        let headers = wire::encode(outgoing, signer).map_err(|_| refused("nats.header"))?;
        Ok(Self { subject, headers, payload: message.payload.clone(), may_be_repeated })
    }

    /// Hands the message to the client, but only while it is connected. A disconnected client would buffer it
    /// and might send it long after another relay has taken over.
    pub(crate) async fn send(
        self,
        connection: &Arc<Connection>,
        deadline: Instant,
    ) -> Result<Acknowledgement, PublishError> {
        let Self { subject, headers, payload, may_be_repeated } = self;
        if connection.denied.contains(&subject) {
            return Err(denied());
        }
        if !connection.is_connected() {
            return Err(unavailable("nats.disconnected"));
        }
        let message = PublishMessage::build().headers(headers).payload(payload);
        match timeout_at(deadline, connection.jetstream.send_publish(subject.clone(), message)).await {
            Ok(Ok(ack)) => Ok(acknowledgement(Arc::downgrade(connection), subject, may_be_repeated, ack)),
            Ok(Err(error)) => Err(classify::unsent(error)),
            Err(_) => Err(unavailable("nats.stalled")),
        }
    }
}

/// Waits for the acknowledgement. The client's time-out runs from the first poll.
fn acknowledgement(
    connection: Weak<Connection>,
    subject: String,
    may_be_repeated: bool,
    ack: PublishAckFuture,
) -> Acknowledgement {
    Box::pin(async move {
        match ack.await {
            Ok(ack) if ack.duplicate && !may_be_repeated => Err(name_taken()),
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
pub(crate) fn denied() -> PublishError {
    PublishError::new(PublishErrorKind::RefusedForGood, DENIED)
}

/// Another message of the stream has the name of this one, which was not sent before.
pub(crate) fn name_taken() -> PublishError {
    PublishError::new(PublishErrorKind::NameTaken, "nats.name_taken")
}

pub(crate) fn unavailable(code: &str) -> PublishError {
    PublishError::new(PublishErrorKind::Unavailable, code)
}

/// The connection is gone, and the message may have arrived.
pub(crate) fn in_doubt() -> PublishError {
    PublishError::new(PublishErrorKind::InDoubt, "nats.disconnected")
}
