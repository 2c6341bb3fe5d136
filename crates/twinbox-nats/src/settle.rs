//! Settling a delivery.
use crate::connect::Link;
use async_nats::Subject;
use bytes::Bytes;
use std::{sync::Arc, time::Duration};
use twinbox_core::{BoxFuture, Settle, SourceError, SourceErrorKind};

/// Holds the connection, so that a delivery can be settled after its source is gone.
pub(crate) struct Delivery {
    pub(crate) link: Arc<Link>,
    pub(crate) reply: Subject,
    pub(crate) ack_wait: Duration,
}

/// The order to deliver again after `delay`.
pub(crate) fn again(delay: Duration) -> Bytes {
    let nanos = i64::try_from(delay.as_nanos()).unwrap_or(i64::MAX);
    format!("-NAK {{\"delay\":{nanos}}}").into()
}

impl Delivery {
    /// As a request, because only its reply tells a consumer that took note from one that is gone: the
    /// client's own confirmed acknowledgement takes any reply for a yes, also that nobody listens.
    async fn tell(&self, order: Bytes) -> Result<(), SourceError> {
        match self.link.client.request(self.reply.clone(), order).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let what = "NATS did not confirm how a delivery was settled";
                Err(SourceError::new(SourceErrorKind::NotConfirmed, what).with_source(error))
            }
        }
    }
}

impl Settle for Delivery {
    fn ack(self: Box<Self>) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.tell(Bytes::from_static(b"+ACK")).await })
    }

    fn nak(self: Box<Self>, delay: Duration) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move { self.tell(again(delay)).await })
    }

    fn progress(&self) -> BoxFuture<'_, Result<(), SourceError>> {
        Box::pin(self.tell(Bytes::from_static(b"+WPI")))
    }

    fn progress_interval(&self) -> Option<Duration> {
        Some(self.ack_wait / 3)
    }
}
