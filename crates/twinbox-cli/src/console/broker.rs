//! How far consumers are behind on a stream of NATS, for the pages.
use twinbox_console::{BrokerLag, Lag, LagFuture};
use twinbox_nats::{DurableLag, Error, Nats, PartitionLag};
use twinbox_ops::PartitionCheckpoint;

/// Connects for each page, so that a server that was away is asked again.
pub(super) struct Stream(pub(super) Nats);

impl BrokerLag for Stream {
    fn lag<'a>(&'a self, consumer: &'a str, checkpoints: &'a [PartitionCheckpoint]) -> LagFuture<'a> {
        Box::pin(async move { self.ask(consumer, checkpoints).await.map_err(|error| error.to_string()) })
    }
}

impl Stream {
    async fn ask(&self, consumer: &str, checkpoints: &[PartitionCheckpoint]) -> Result<Vec<Lag>, Error> {
        let reader = self.0.lag_reader().await?;
        let Some(first) = checkpoints.first() else {
            return Ok(reader.durable(consumer).await?.map(of_durable).into_iter().collect());
        };
        let places = checkpoints.iter().map(|one| (one.partition, one.checkpoint.clone()));
        let lags = reader.partitions(consumer, &first.types, &Vec::from_iter(places)).await?;
        Ok(lags.into_iter().map(of_partition).collect())
    }
}

fn of_durable(lag: DurableLag) -> Lag {
    let messages = lag.waiting + lag.unacknowledged;
    Lag { messages, oldest_at: lag.oldest_at, restarts_because: None }
}

fn of_partition(lag: PartitionLag) -> Lag {
    Lag { messages: lag.messages, oldest_at: lag.oldest_at, restarts_because: lag.discontinuity }
}
