//! A client, and looks at the bus.
use super::{
    EventBridgeOptions,
    classify::{self, Verdict},
};
use aws_config::timeout::TimeoutConfig;
use aws_sdk_eventbridge::{
    Client, Config,
    config::{StalledStreamProtectionConfig, retry::RetryConfig},
};
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, timeout_at};
use twinbox_core::{PublishError, PublishErrorKind};

/// A client with connections of its own.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    /// When the bus was there.
    seen_at: Instant,
}

impl Link {
    /// Loads credentials and looks whether the bus is there.
    pub(crate) async fn open(options: &EventBridgeOptions) -> Result<Self, PublishError> {
        let deadline = Instant::now() + options.request_timeout;
        let timed_out = || PublishError::new(PublishErrorKind::Unavailable, classify::TIMED_OUT.code);
        let client = timeout_at(deadline, client(options)).await.map_err(|_| timed_out())??;
        let mut link = Self { client, seen_at: Instant::now() };
        link.look(options, deadline).await?;
        tracing::info!(bus = options.bus, "connected to EventBridge");
        Ok(link)
    }

    /// Looks again if the last look is too long ago.
    pub(crate) async fn look_again(
        &mut self,
        options: &EventBridgeOptions,
        deadline: Instant,
    ) -> Result<(), PublishError> {
        if self.seen_at.elapsed() < options.describe_interval {
            return Ok(());
        }
        self.look(options, deadline).await
    }

    async fn look(&mut self, options: &EventBridgeOptions, deadline: Instant) -> Result<(), PublishError> {
        let asked_at = Instant::now();
        let asked = self.client.describe_event_bus().name(&options.bus).customize();
        let asked = asked
            .config_override(Config::builder().timeout_config(timeouts(options, options.request_timeout)));
        match timeout_at(deadline, asked.send()).await {
            Ok(Ok(_)) => {
                self.seen_at = asked_at;
                Ok(())
            }
            Ok(Err(error)) => Err(classify::of_look(&error, SystemTime::now()).error().with_source(error)),
            Err(_) => Err(Verdict { kind: PublishErrorKind::Unavailable, ..classify::TIMED_OUT }.error()),
        }
    }
}

async fn client(options: &EventBridgeOptions) -> Result<Client, PublishError> {
    let environment = options.environment.load(options.region_of_bus()).await;
    if environment.region().is_none() {
        return Err(PublishError::new(PublishErrorKind::Misconfigured, "eventbridge.no_region"));
    }
    let config = aws_sdk_eventbridge::config::Builder::from(&environment)
        // Whoever publishes decides when to send again, and has to be told when something was sent.
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts(options, options.publish_timeout))
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    Ok(Client::from_conf(config.build()))
}

fn timeouts(options: &EventBridgeOptions, whole: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_attempt_timeout(whole)
        .operation_timeout(whole)
        .build()
}
