//! Settling of deliveries.
use crate::connect::Connection;
use async_nats::Subject;
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use twinbox_core::{BoxFuture, Settle, SourceError, SourceErrorKind};

/// Acks or naks one delivery. Holds the connection, so that the delivery can be settled after its source is
/// gone.
pub(crate) struct AckHandle {
    pub(crate) connection: Arc<Connection>,
    pub(crate) reply: Subject,
    pub(crate) ack_wait: Duration,
}

/// Returns the body of a nak with a delay.
pub(crate) fn nak_body(delay: Duration) -> Bytes {
    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
    format!("-NAK {{\"delay\":{nanos}}}").into()
}

impl AckHandle {
    /// Sends `body` as a request and waits for its response.
    ///
    /// The client's own confirmed ack does not fit: it takes any response for a confirmation, also the one
    /// that says that nobody subscribes to the subject, because the consumer is gone.
    async fn send_confirmed(&self, body: Bytes) -> Result<(), SourceError> {
        match self.connection.client.request(self.reply.clone(), body).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let text = "NATS did not confirm the settling of a delivery";
                Err(SourceError::new(SourceErrorKind::NotConfirmed, text).with_source(error))
            }
        }
    }
}

impl Settle for AckHandle {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.send_confirmed(Bytes::from_static(b"+ACK")).await })
    }

    fn nak(self: Box<Self>, delay: Duration) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.send_confirmed(nak_body(delay)).await })
    }

    fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(self.send_confirmed(Bytes::from_static(b"+WPI")))
    }

    fn progress_interval(&self) -> Option<Duration> {
        Some(self.ack_wait / 3)
    }
}
