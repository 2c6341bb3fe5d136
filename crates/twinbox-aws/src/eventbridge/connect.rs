//! A client, and checks that the bus exists.
use super::{
    classify::{self, Verdict},
    options::EventBridgeOptions,
};
use aws_config::timeout::TimeoutConfig;
use aws_sdk_eventbridge::{
    Client, Config,
    config::{StalledStreamProtectionConfig, retry::RetryConfig},
};
use std::time::{Duration, SystemTime};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};
use twinbox_core::{BoxError, PublishError, PublishErrorKind, task_name::TaskName};

/// The result of a check, or None while it is in progress.
type CheckResult = Option<Result<(), Verdict>>;

/// A client with connections of its own.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The start of the last check that found the bus.
    found_at: Instant,
    /// The error of the last check, if it did not find the bus.
    missing: Option<Verdict>,
    /// The check in progress, with its start.
    check: Option<(Instant, watch::Receiver<CheckResult>)>,
    task: JoinSet<()>,
}

/// Whether the bus existed when a batch was sent.
#[derive(Debug, Clone)]
pub(crate) enum BusPresence {
    /// A recent check has found the bus.
    Confirmed,
    /// The result of the check in progress decides.
    Pending(watch::Receiver<CheckResult>),
}

impl BusPresence {
    /// Waits until the bus is known to have existed. Without it the service would have acknowledged and
    /// dropped the events.
    pub(crate) async fn confirm_by(self, deadline: Instant) -> Result<(), PublishError> {
        let Self::Pending(mut check) = self else { return Ok(()) };
        let result = timeout_at(deadline, check.wait_for(Option::is_some)).await;
        match result.ok().and_then(|result| result.ok().and_then(|result| *result)) {
            Some(Ok(())) => Ok(()),
            Some(Err(verdict)) => Err(verdict.error()),
            None => Err(CHECK_TIMED_OUT.error()),
        }
    }
}

/// The check of the bus took too long.
const CHECK_TIMED_OUT: Verdict = Verdict { kind: PublishErrorKind::Unavailable, ..classify::TIMED_OUT };

impl Connection {
    /// Loads credentials and checks that the bus exists.
    pub(crate) async fn open(options: &EventBridgeOptions) -> Result<Self, PublishError> {
        let deadline = Instant::now() + options.request_timeout;
        let client = timeout_at(deadline, client(options)).await.map_err(|_| CHECK_TIMED_OUT.error())??;
        let found_at = Instant::now();
        let (verdict, error) = match describe_bus(&client, options, deadline).await {
            Ok(()) => {
                tracing::info!(bus = options.bus, "connected to EventBridge");
                return Ok(Self { client, found_at, missing: None, check: None, task: JoinSet::new() });
            }
            Err(failed) => failed,
        };
        Err(match error {
            Some(error) => verdict.error().with_source(error),
            None => verdict.error(),
        })
    }

    /// Returns whether the bus exists, and starts a check once half of the interval is over.
    ///
    /// The check runs beside the batches, so a slow check takes none of their time. Fails while the last
    /// check did not find the bus; nothing may be sent then.
    pub(crate) fn bus_presence(&mut self, options: &EventBridgeOptions) -> Result<BusPresence, PublishError> {
        let checked = self.check.as_ref().and_then(|(at, check)| Some((*at, (*check.borrow())?)));
        if let Some((started_at, result)) = checked {
            match result {
                Ok(()) => (self.found_at, self.missing) = (started_at, None),
                Err(verdict) => self.missing = Some(verdict),
            }
            self.check = None;
        }
        let age = self.found_at.elapsed();
        if self.check.is_none() && (self.missing.is_some() || age >= options.describe_interval / 2) {
            self.start_check(options);
        }
        match (self.missing, &self.check) {
            (Some(verdict), _) => Err(verdict.error()),
            (None, Some((_, check))) if age >= options.describe_interval => {
                Ok(BusPresence::Pending(check.clone()))
            }
            (None, _) => Ok(BusPresence::Confirmed),
        }
    }

    fn start_check(&mut self, options: &EventBridgeOptions) {
        let (client, options, (sender, check)) = (self.client.clone(), options.clone(), watch::channel(None));
        self.check = Some((Instant::now(), check));
        while self.task.try_join_next().is_some() {}
        self.task.spawn(TaskName::BusCheck.of(async move {
            let found = describe_bus(&client, &options, Instant::now() + options.request_timeout).await;
            sender.send_replace(Some(found.map_err(|(verdict, error)| {
                tracing::warn!(bus = options.bus, code = verdict.code, ?error, "the bus was not found");
                verdict
            })));
        }));
    }
}

/// Fails if the bus does not exist or cannot be described.
async fn describe_bus(
    client: &Client,
    options: &EventBridgeOptions,
    deadline: Instant,
) -> Result<(), (Verdict, Option<BoxError>)> {
    let timeouts = Config::builder().timeout_config(timeouts(options, options.request_timeout));
    let request = client.describe_event_bus().name(&options.bus).customize().config_override(timeouts);
    match timeout_at(deadline, request.send()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err((classify::of_bus_check(&error, SystemTime::now()), Some(error.into()))),
        Err(_) => Err((CHECK_TIMED_OUT, None)),
    }
}

async fn client(options: &EventBridgeOptions) -> Result<Client, PublishError> {
    let config = options.client.load(options.region_of_bus()).await;
    if config.region().is_none() {
        return Err(PublishError::new(PublishErrorKind::Misconfigured, "eventbridge.no_region"));
    }
    let config = aws_sdk_eventbridge::config::Builder::from(&config)
        // The relay decides when to retry, and must know whether anything was sent.
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
