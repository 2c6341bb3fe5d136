//! What a broker knows about consumers, and the database does not.
use std::{future::Future, pin::Pin, time::Duration};
use tokio::time::timeout;
use twinbox_ops::{PartitionCheckpoint, Timestamp};

/// The longest time that a page waits for a broker.
const ANSWER: Duration = Duration::from_secs(3);

/// Reads from a broker how far consumers are behind.
pub trait BrokerLag: Send + Sync + 'static {
    /// Returns how far a consumer is behind each of its checkpoints, in their order. Without checkpoints it
    /// reads without order: then one lag for all of it, or none if the broker does not know it. `address`:
    /// where at its broker the consumer has its messages, as it recorded.
    ///
    /// A page waits three seconds for it, then drops the future.
    ///
    /// # Errors
    /// The page shows the text instead of numbers.
    fn lag<'a>(
        &'a self,
        consumer: &'a str,
        address: Option<&'a str>,
        checkpoints: &'a [PartitionCheckpoint],
    ) -> LagFuture<'a>;
}

/// What [`BrokerLag::lag`] returns.
pub type LagFuture<'a> = Pin<Box<dyn Future<Output = Result<Vec<Lag>, String>> + Send + 'a>>;

/// How far a consumer is behind at a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lag {
    /// How many messages the consumer has not settled.
    pub messages: u64,
    /// When the broker stored the oldest of them.
    pub oldest_at: Option<Timestamp>,
    /// Why the consumer will read the partition from its first message. None: it continues.
    pub restarts_because: Option<&'static str>,
}

/// Asks within the time of a page.
pub(crate) async fn ask(
    broker: &dyn BrokerLag,
    consumer: &str,
    address: Option<&str>,
    checkpoints: &[PartitionCheckpoint],
) -> Result<Vec<Lag>, String> {
    let asked = timeout(ANSWER, broker.lag(consumer, address, checkpoints)).await;
    asked.unwrap_or_else(|_| Err(format!("it did not answer within {} seconds", ANSWER.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Silent;

    impl BrokerLag for Silent {
        fn lag<'a>(&'a self, _: &'a str, _: Option<&'a str>, _: &'a [PartitionCheckpoint]) -> LagFuture<'a> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_does_not_wait_for_a_broker_without_an_answer() {
        let asked = ask(&Silent, "billing.invoice", None, &[]).await;
        assert_eq!(asked, Err("it did not answer within 3 seconds".to_owned()));
    }
}
