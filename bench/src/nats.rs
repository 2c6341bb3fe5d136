//! Streams, and the raw limit: ordered sends, acknowledgements awaited together.
use crate::{Failure, orders};
use async_nats::{
    HeaderMap,
    jetstream::{self, Context, context::PublishAckFuture, stream},
};
use std::{
    collections::VecDeque,
    future::IntoFuture as _,
    time::{Duration, Instant},
};
use twinbox::nats::{Nats, NatsOptions, StreamOptions};
use uuid::Uuid;

/// Messages without an acknowledgement, raw and relayed.
pub(crate) const IN_FLIGHT: usize = 2000;

pub(crate) struct Server {
    url: String,
    jetstream: Context,
}

impl Server {
    pub(crate) async fn connect() -> Result<Self, Failure> {
        let url = std::env::var("TWINBOX_NATS_URL")?;
        let jetstream = jetstream::new(async_nats::connect(&url).await?);
        Ok(Self { url, jetstream })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A destination with a fresh stream of its own name, which is reached through `url`.
    pub(crate) async fn named(&self, url: &str, name: &str) -> Result<Nats, Failure> {
        let _ = self.jetstream.delete_stream(name).await;
        let options = |url: &str| NatsOptions::new(url).id(name).stream(name).prefix(name);
        Nats::with_options(options(&self.url))?.provision(&StreamOptions::default()).await?;
        Ok(Nats::with_options(options(url))?)
    }

    pub(crate) async fn delete_named(&self, name: &str) {
        let _ = self.jetstream.delete_stream(name).await;
    }

    /// A fresh stream and its destination; the stream of the last run is deleted.
    pub(crate) async fn destination(&self, run: usize) -> Result<Nats, Failure> {
        self.delete().await;
        let options = NatsOptions::new(&self.url).id(format!("bench-{run}")).stream("BENCH").prefix("bench");
        let nats = Nats::with_options(options)?;
        nats.provision(&StreamOptions::default()).await?;
        Ok(nats)
    }

    pub(crate) async fn stream(&self) -> Result<stream::Stream, Failure> {
        Ok(self.jetstream.get_stream("BENCH").await?)
    }

    pub(crate) async fn delete(&self) {
        let _ = self.jetstream.delete_stream("BENCH").await;
    }

    /// Waits until the stream holds `count` messages.
    pub(crate) async fn holds(&self, count: usize) -> Result<(), Failure> {
        let mut stream = self.jetstream.get_stream("BENCH").await?;
        while stream.info().await?.state.messages < count as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Messages per second that the bare client publishes to a fresh stream.
    pub(crate) async fn raw(&self, count: usize) -> Result<f64, Failure> {
        self.delete().await;
        let config =
            stream::Config { name: "BENCH".into(), subjects: vec!["bench.>".into()], ..Default::default() };
        self.jetstream.create_stream(config).await?;
        let messages: Vec<_> = (0..count).map(|n| (Uuid::now_v7(), orders::payload(n))).collect();
        let started = Instant::now();
        let mut sent: VecDeque<PublishAckFuture> = VecDeque::with_capacity(IN_FLIGHT);
        for (id, payload) in messages {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", id.to_string().as_str());
            headers.insert("ce-type", orders::TYPE);
            headers.insert("ce-source", "bench");
            if sent.len() >= IN_FLIGHT
                && let Some(oldest) = sent.pop_front()
            {
                oldest.into_future().await?;
            }
            let subject = format!("bench.0.{}", orders::TYPE);
            sent.push_back(self.jetstream.publish_with_headers(subject, headers, payload.into()).await?);
        }
        for ack in sent {
            ack.into_future().await?;
        }
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }
}
