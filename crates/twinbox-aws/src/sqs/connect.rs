//! A client, and the check of a queue.
use super::{
    classify,
    options::{SqsOptions, queue_name, queue_region},
};
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::{
    Client,
    config::{StalledStreamProtectionConfig, retry::RetryConfig},
    types::QueueAttributeName,
};
use std::time::Duration;
use twinbox_core::{MaxAge, SourceError, SourceErrorKind};

/// How long EventBridge tries to deliver an event to a queue, unless its rule sets less.
const DELIVERY_MAX: Duration = Duration::from_secs(24 * 3600);
/// Attempts of the SDK for one request. Messages that a lost response held stay hidden and are then
/// redelivered.
const ATTEMPTS_MAX: u32 = 3;

/// Loads credentials and returns a client with connections of its own.
pub(crate) async fn client(options: &SqsOptions, queue_url: &str) -> Result<Client, SourceError> {
    let config = options.client.load(queue_region(queue_url)).await;
    if config.region().is_none() {
        let text = "no region is known: set `SqsOptions::region` or AWS_REGION";
        return Err(SourceError::new(SourceErrorKind::Misconfigured, text));
    }
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(options.connect_timeout)
        .operation_attempt_timeout(options.request_timeout + options.wait_time);
    let config = aws_sdk_sqs::config::Builder::from(&config)
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS_MAX))
        .timeout_config(timeouts.build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled());
    Ok(Client::from_conf(config.build()))
}

/// Checks that the queue exists, warns of a redrive policy, and returns how old a message can be at its
/// delivery.
pub(crate) async fn check_queue(
    client: &Client,
    consumer: &str,
    queue_url: &str,
) -> Result<MaxAge, SourceError> {
    let request = client
        .get_queue_attributes()
        .queue_url(queue_url)
        .attribute_names(QueueAttributeName::MessageRetentionPeriod)
        .attribute_names(QueueAttributeName::RedrivePolicy);
    let action = format!("checking the queue of the consumer `{consumer}`, {queue_url}");
    let response = request.send().await.map_err(|e| classify::of_request(&action, e))?;
    let attribute = |name| response.attributes().and_then(|attributes| attributes.get(&name));
    if let Some(policy) = attribute(QueueAttributeName::RedrivePolicy) {
        tracing::warn!(
            consumer,
            queue_url,
            policy,
            "the redrive policy of the queue removes messages after a number of deliveries, also during an \
             outage of the database: remove the policy, or allow many deliveries"
        );
    }
    tracing::info!(consumer, queue_url, "subscribed");
    let retention =
        attribute(QueueAttributeName::MessageRetentionPeriod).and_then(|seconds| seconds.parse().ok());
    let queue = queue_name(queue_url);
    let Some(retention) = retention.map(Duration::from_secs) else {
        let reason = format!("the queue `{queue}` does not report how long it keeps messages");
        return Ok(MaxAge::Unlimited { reason });
    };
    let reason = format!(
        "the queue `{queue}` keeps messages for {retention:?} (MessageRetentionPeriod), and EventBridge may \
         take {DELIVERY_MAX:?} to deliver one"
    );
    Ok(MaxAge::Within { age: retention.saturating_add(DELIVERY_MAX), reason })
}
