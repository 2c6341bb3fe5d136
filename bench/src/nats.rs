//! JetStream streams, and the raw limit: ordered sends whose acknowledgements are awaited together.
use crate::{failure::Failure, orders, processes::Family};
use async_nats::{
    HeaderMap, Subscriber,
    jetstream::{self, Context, context::PublishAckFuture, stream},
};
use futures::StreamExt as _;
use std::{
    collections::VecDeque,
    future::IntoFuture as _,
    time::{Duration, Instant},
};
use twinbox::{
    Timestamp,
    nats::{Nats, NatsOptions, StreamOptions},
};
use twinbox_testkit::database::SERVICE;
use uuid::Uuid;

/// The most messages that wait for an acknowledgement, for the raw client and for the relay.
pub(crate) const IN_FLIGHT: usize = 4000;

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

    /// Creates a stream `name` and returns a destination that reaches it through `url`.
    pub(crate) async fn named(&self, url: &str, name: &str) -> Result<Nats, Failure> {
        let _ = self.jetstream.delete_stream(name).await;
        let options = |url: &str| NatsOptions::new(url).id(name).stream(name).prefix(name);
        Nats::with_options(options(&self.url))?.provision(&StreamOptions::default()).await?;
        Ok(Nats::with_options(options(url))?)
    }

    pub(crate) async fn delete_named(&self, name: &str) {
        let _ = self.jetstream.delete_stream(name).await;
    }

    /// Deletes the stream of the last run. Creates a stream and returns its destination.
    pub(crate) async fn destination(&self, run: usize) -> Result<Nats, Failure> {
        self.destination_of(run, &StreamOptions::default()).await
    }

    /// As [`destination`](Self::destination), with options of the stream.
    pub(crate) async fn destination_of(&self, run: usize, stream: &StreamOptions) -> Result<Nats, Failure> {
        self.delete().await;
        let options = NatsOptions::new(&self.url).id(format!("bench-{run}")).stream("BENCH").prefix("bench");
        let nats = Nats::with_options(options)?;
        nats.provision(stream).await?;
        Ok(nats)
    }

    pub(crate) async fn stream(&self) -> Result<stream::Stream, Failure> {
        Ok(self.jetstream.get_stream("BENCH").await?)
    }

    pub(crate) async fn delete(&self) {
        let _ = self.jetstream.delete_stream("BENCH").await;
    }

    /// Waits until the stream has `count` messages.
    pub(crate) async fn holds(&self, count: usize) -> Result<(), Failure> {
        self.stored_at_least(count as u64, Duration::from_millis(5)).await?;
        Ok(())
    }

    /// Waits until the stream exists and has so many messages. Returns how many it has.
    pub(crate) async fn stored_at_least(&self, least: u64, look_every: Duration) -> Result<u64, Failure> {
        let mut looks = tokio::time::interval(look_every);
        let mut stream = loop {
            looks.tick().await;
            if let Ok(stream) = self.jetstream.get_stream("BENCH").await {
                break stream;
            }
        };
        loop {
            let stored = stream.info().await?.state.messages;
            if stored >= least {
                return Ok(stored);
            }
            looks.tick().await;
        }
    }

    /// Publishes `count` messages with the bare client to a new stream, as a relay does. Returns messages per
    /// second.
    ///
    /// The client sends the same bytes as a relay, except for the ids and sequence numbers.
    pub(crate) async fn raw(&self, count: usize) -> Result<f64, Failure> {
        self.destination(0).await?;
        let messages: Vec<_> = (0..count).map(|n| (Uuid::now_v7(), orders::payload(n))).collect();
        let (subject, now) = (format!("bench.0.{}", orders::TYPE), raw_time());
        let started = Instant::now();
        let mut sent: VecDeque<PublishAckFuture> = VecDeque::with_capacity(IN_FLIGHT);
        for (n, (id, payload)) in messages.into_iter().enumerate() {
            let headers = raw_headers(n, id, &now);
            if sent.len() >= IN_FLIGHT
                && let Some(oldest) = sent.pop_front()
            {
                oldest.into_future().await?;
            }
            let sending = self.jetstream.publish_with_headers(subject.clone(), headers, payload.into());
            sent.push_back(sending.await?);
        }
        for ack in sent {
            ack.into_future().await?;
        }
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// Publishes `count` messages with the bare client to a new stream, as one batch. Returns messages per
    /// second, and the processor time for each in microseconds: of this process and of NATS. The same bytes
    /// as [`raw`](Self::raw).
    pub(crate) async fn raw_in_batches(&self, count: usize) -> Result<(f64, [f64; 2]), Failure> {
        self.destination(0).await?;
        let client = async_nats::connect(&self.url).await?;
        let messages: Vec<_> = (0..count).map(|n| (Uuid::now_v7(), orders::payload(n))).collect();
        let (subject, now) = (format!("bench.0.{}", orders::TYPE), raw_time());
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(format!("{inbox}.>")).await?;
        let processes = [Family::of(std::process::id()), Family::serving(&self.url)?];
        let worked = [processes[0].seconds()?, processes[1].seconds()?];
        let started = Instant::now();
        let (mut stored, mut pace, last) = (0, 0, count as u64);
        let mut number = 0;
        for (n, (id, payload)) in messages.into_iter().enumerate() {
            number = n as u64 + 1;
            let operation = u8::from(n > 0) + u8::from(number == last);
            let reply = format!("{inbox}.500.fail.{number}.{operation}.$FI");
            let headers = raw_headers(n, id, &now);
            client.publish_with_reply_and_headers(subject.clone(), reply, headers, payload.into()).await?;
            while number == 1 && pace == 0 || number < last && stored + 4 * pace <= number {
                (stored, pace) = answer(&mut answers).await?;
            }
        }
        while stored < number {
            stored = answer(&mut answers).await?.0;
        }
        let rate = count as f64 / started.elapsed().as_secs_f64();
        let each = |n: usize| Ok::<_, Failure>((processes[n].seconds()? - worked[n]) * 1e6 / count as f64);
        Ok((rate, [each(0)?, each(1)?]))
    }

    /// Returns the bytes of the stream per message.
    pub(crate) async fn bytes_each(&self, count: usize) -> Result<f64, Failure> {
        Ok(self.stream().await?.info().await?.state.bytes as f64 / count as f64)
    }
}

fn raw_time() -> String {
    Timestamp::from_micros(1_790_000_000_123_456).to_string()
}

fn raw_headers(n: usize, id: Uuid, now: &str) -> HeaderMap {
    let id = id.to_string();
    let mut headers = HeaderMap::new();
    // As many characters as a relay's.
    headers.insert("Nats-Msg-Id", format!("{n:022}"));
    headers.insert("ce-specversion", "1.0");
    headers.insert("ce-id", id);
    headers.insert("ce-source", SERVICE);
    headers.insert("ce-type", orders::TYPE);
    headers.insert("ce-time", now);
    headers.insert("ce-sequence", format!("{n:019}"));
    headers.insert("ce-partitionkey", orders::key(n));
    headers.insert("ce-traceparent", orders::TRACEPARENT);
    headers
}

/// Returns how many messages of a batch are stored, and after how many the server answers.
async fn answer(answers: &mut Subscriber) -> Result<(u64, u64), Failure> {
    let answer = answers.next().await.ok_or("the connection is lost")?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.payload)?;
    match (answer["count"].as_u64(), answer["seq"].as_u64(), answer["msgs"].as_u64()) {
        (Some(count), ..) => Ok((count, 1)),
        (None, Some(stored), Some(pace)) => Ok((stored, pace)),
        _ => Err(format!("the batch was refused: {answer}").into()),
    }
}
