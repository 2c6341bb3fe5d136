//! How far consumers are behind on a stream of NATS, for the pages.
use crate::stream::StreamArguments;
use twinbox_console::{BrokerLag, Lag, LagFuture};
use twinbox_nats::{DurableLag, Error, Nats, PartitionLag};
use twinbox_ops::PartitionCheckpoint;

/// Connects for each page, so that a server that was away is asked again.
pub(super) struct Streams(pub(super) StreamArguments);

impl BrokerLag for Streams {
    fn lag<'a>(
        &'a self,
        consumer: &'a str,
        address: Option<&'a str>,
        checkpoints: &'a [PartitionCheckpoint],
    ) -> LagFuture<'a> {
        Box::pin(async move {
            let Some(address) = self.0.address(address) else {
                return Err("the consumer has recorded no stream of NATS".to_owned());
            };
            let Some(server) = self.0.server() else { return Ok(Vec::new()) };
            let asked = async { ask(&server.stream(address)?, consumer, checkpoints).await };
            asked.await.map_err(|error: Error| error.to_string())
        })
    }
}

async fn ask(stream: &Nats, consumer: &str, checkpoints: &[PartitionCheckpoint]) -> Result<Vec<Lag>, Error> {
    let reader = stream.lag_reader().await?;
    let Some(first) = checkpoints.first() else {
        return Ok(reader.durable(consumer).await?.map(of_durable).into_iter().collect());
    };
    let places = checkpoints.iter().map(|one| (one.partition, one.checkpoint.clone()));
    let lags = reader.partitions(consumer, &first.types, &Vec::from_iter(places)).await?;
    Ok(lags.into_iter().map(of_partition).collect())
}

fn of_durable(lag: DurableLag) -> Lag {
    let messages = lag.waiting + lag.unacknowledged;
    Lag { messages, oldest_at: lag.oldest_at, restarts_because: None }
}

fn of_partition(lag: PartitionLag) -> Lag {
    Lag { messages: lag.messages, oldest_at: lag.oldest_at, restarts_because: lag.discontinuity }
}
