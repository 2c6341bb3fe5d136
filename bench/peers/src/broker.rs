//! The stream that all outboxes publish to.
use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        context::{ContextBuilder, PublishAckFuture},
    },
};
use std::{future::IntoFuture as _, time::Duration};

const SUBJECT: &str = "bench.peer";
/// Messages without an acknowledgement. A sender of batches waits for ever if they do not fit.
const UNDER_WAY_MAX: usize = 50_000;

#[derive(Clone, Debug)]
pub(crate) struct Broker(jetstream::Context);

impl Broker {
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let client = async_nats::connect(std::env::var("NATS_URL")?).await?;
        let jetstream =
            ContextBuilder::new().timeout(Duration::from_secs(10)).max_ack_inflight(UNDER_WAY_MAX);
        Ok(Self(jetstream.build(client)))
    }

    /// Sends a message. Await the result for its acknowledgement.
    pub(crate) async fn send(&self, id: String, payload: Vec<u8>) -> anyhow::Result<PublishAckFuture> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        Ok(self.0.publish_with_headers(SUBJECT, headers, payload.into()).await?)
    }

    /// Sends a message and waits for its acknowledgement.
    pub(crate) async fn publish(&self, id: String, payload: Vec<u8>) -> anyhow::Result<()> {
        self.send(id, payload).await?.into_future().await?;
        Ok(())
    }
}
