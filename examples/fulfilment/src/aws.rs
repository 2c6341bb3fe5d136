//! A bus, a queue, and a rule that sends everything from the one to the other.
use crate::Failure;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::types::QueueAttributeName;
use aws_smithy_http_client::{
    Builder,
    tls::{Provider, rustls_provider::CryptoMode},
};
use twinbox::aws::{EventBridge, EventBridgeOptions, Sqs, SqsOptions};

/// EventBridge and SQS: of AWS, or of an emulator.
#[derive(Debug)]
pub struct Aws {
    /// Such as `eu-west-1`.
    pub region: String,
    /// None: AWS itself, with the credentials of the environment.
    pub endpoint_url: Option<String>,
}

impl Aws {
    /// Makes what is missing. Answers with the destination for a relay and the transport for `consumer`.
    pub(crate) async fn prepare(&self, bus: &str, consumer: &str) -> Result<(EventBridge, Sqs), Failure> {
        let config = self.config().await;
        let sqs = aws_sdk_sqs::Client::new(&config);
        let queue = format!("{bus}-{}", consumer.replace('.', "-"));
        let queue_url =
            sqs.create_queue().queue_name(&queue).send().await?.queue_url.ok_or("the queue has no URL")?;
        let asked =
            sqs.get_queue_attributes().queue_url(&queue_url).attribute_names(QueueAttributeName::QueueArn);
        let attributes = asked.send().await?.attributes.unwrap_or_default();
        let queue_arn = attributes.get(&QueueAttributeName::QueueArn).ok_or("the queue has no ARN")?;

        let events = aws_sdk_eventbridge::Client::new(&config);
        if events.describe_event_bus().name(bus).send().await.is_err() {
            events.create_event_bus().name(bus).send().await?;
        }
        let pattern = serde_json::json!({"detail-type": ["orders.placed"]}).to_string();
        let rule = events.put_rule().name(&queue).event_bus_name(bus).event_pattern(pattern).send().await?;
        let rule_arn = rule.rule_arn.ok_or("the rule has no ARN")?;
        let target = Target::builder().id(&queue).arn(queue_arn).build()?;
        events.put_targets().rule(&queue).event_bus_name(bus).targets(target).send().await?;
        let allowed = serde_json::json!({"Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage",
            "Resource": queue_arn, "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
        }]});
        let policy = sqs.set_queue_attributes().queue_url(&queue_url);
        policy.attributes(QueueAttributeName::Policy, allowed.to_string()).send().await?;

        let (mut to, mut from) = (EventBridgeOptions::new(bus), SqsOptions::new().queue(consumer, queue_url));
        (to, from) = (to.region(&self.region), from.region(&self.region));
        if let Some(url) = &self.endpoint_url {
            (to, from) = (to.endpoint_url(url), from.endpoint_url(url));
            (to, from) = (to.credentials("any", "any", None), from.credentials("any", "any", None));
        }
        Ok((EventBridge::with_options(to)?, Sqs::with_options(from)?))
    }

    async fn config(&self) -> SdkConfig {
        let http = Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
        let region = Region::new(self.region.clone());
        let config = aws_config::defaults(BehaviorVersion::latest()).http_client(http).region(region);
        match &self.endpoint_url {
            Some(url) => {
                let any = Credentials::new("any", "any", None, None, "fulfilment");
                config.endpoint_url(url).credentials_provider(any).load().await
            }
            None => config.load().await,
        }
    }
}
