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
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};
use twinbox_core::{BoxError, PublishError, PublishErrorKind};

/// The result of a look; none yet.
type Found = Option<Result<(), Verdict>>;

/// A client with connections of its own.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) client: Client,
    /// When the bus was there.
    seen_at: Instant,
    /// The error of the last look, if the bus was not there.
    missed: Option<Verdict>,
    /// A look beside what is published, and when it began.
    looking: Option<(Instant, watch::Receiver<Found>)>,
    task: JoinSet<()>,
}

/// Whether the bus was there when something was published.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    /// Not long before.
    Lately,
    /// The look that is under way will say.
    Pending(watch::Receiver<Found>),
}

impl Seen {
    /// For what the service has taken: it would have dropped it without a word if the bus was gone.
    pub(crate) async fn by(self, deadline: Instant) -> Result<(), PublishError> {
        let Self::Pending(mut looking) = self else { return Ok(()) };
        let found = timeout_at(deadline, looking.wait_for(Option::is_some)).await;
        match found.ok().and_then(|found| found.ok().and_then(|found| *found)) {
            Some(Ok(())) => Ok(()),
            Some(Err(verdict)) => Err(verdict.error()),
            None => Err(UNSEEN.error()),
        }
    }
}

/// A look took longer than what was published may.
const UNSEEN: Verdict = Verdict { kind: PublishErrorKind::Unavailable, ..classify::TIMED_OUT };

impl Link {
    /// Loads credentials and looks whether the bus is there.
    pub(crate) async fn open(options: &EventBridgeOptions) -> Result<Self, PublishError> {
        let deadline = Instant::now() + options.request_timeout;
        let timed_out = || PublishError::new(PublishErrorKind::Unavailable, classify::TIMED_OUT.code);
        let client = timeout_at(deadline, client(options)).await.map_err(|_| timed_out())??;
        let seen_at = Instant::now();
        let (verdict, error) = match look(&client, options, deadline).await {
            Ok(()) => {
                tracing::info!(bus = options.bus, "connected to EventBridge");
                return Ok(Self { client, seen_at, missed: None, looking: None, task: JoinSet::new() });
            }
            Err(failed) => failed,
        };
        Err(match error {
            Some(error) => verdict.error().with_source(error),
            None => verdict.error(),
        })
    }

    /// Looks again, beside what is published, once half of the interval is over: a look that is slow takes none of the
    /// time of a batch. Nothing more is sent while the bus was not there at the last look.
    pub(crate) fn look_again(&mut self, options: &EventBridgeOptions) -> Result<Seen, PublishError> {
        let found = self.looking.as_ref().and_then(|(at, looking)| Some((*at, (*looking.borrow())?)));
        if let Some((began_at, found)) = found {
            match found {
                Ok(()) => (self.seen_at, self.missed) = (began_at, None),
                Err(verdict) => self.missed = Some(verdict),
            }
            self.looking = None;
        }
        let seen = self.seen_at.elapsed();
        if self.looking.is_none() && (self.missed.is_some() || seen >= options.describe_interval / 2) {
            self.begin_look(options);
        }
        match (self.missed, &self.looking) {
            (Some(verdict), _) => Err(verdict.error()),
            (None, Some((_, looking))) if seen >= options.describe_interval => {
                Ok(Seen::Pending(looking.clone()))
            }
            (None, _) => Ok(Seen::Lately),
        }
    }

    fn begin_look(&mut self, options: &EventBridgeOptions) {
        let (client, options, (tell, looking)) = (self.client.clone(), options.clone(), watch::channel(None));
        self.looking = Some((Instant::now(), looking));
        while self.task.try_join_next().is_some() {}
        self.task.spawn(async move {
            let found = look(&client, &options, Instant::now() + options.request_timeout).await;
            tell.send_replace(Some(found.map_err(|(verdict, error)| {
                tracing::warn!(bus = options.bus, code = verdict.code, ?error, "the bus was not found");
                verdict
            })));
        });
    }
}

/// Whether the bus is there.
async fn look(
    client: &Client,
    options: &EventBridgeOptions,
    deadline: Instant,
) -> Result<(), (Verdict, Option<BoxError>)> {
    let asked = client.describe_event_bus().name(&options.bus).customize();
    let asked =
        asked.config_override(Config::builder().timeout_config(timeouts(options, options.request_timeout)));
    match timeout_at(deadline, asked.send()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err((classify::of_look(&error, SystemTime::now()), Some(error.into()))),
        Err(_) => Err((UNSEEN, None)),
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
