//! The life of one consumer: open its source or log, read it, and open it again after a failure, until
//! shutdown.
use crate::{
    control,
    error::{Error, ErrorKind},
    in_flight::InFlight,
    partition_leases, redrive,
    runtime::Runtime,
    source_loop,
    status::ConsumerState,
};
use std::{sync::Arc, time::Duration};
use twinbox_core::{
    MaxAge, PartitionedLog, Source, SourceError, SourceErrorKind, Transport, backoff::Backoff,
};
use twinbox_log::Log;
use twinbox_sql::{ClaimFence, Dialect};

/// The longest pause before a failed source is opened again.
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// One consumer and its transport.
pub(crate) struct Worker<DB: Dialect, S> {
    runtime: Arc<Runtime<DB, S>>,
    transport: Arc<dyn Transport>,
}

/// The source or the log that a transport opened for a consumer.
enum Opened {
    /// A source, and the condition of the claims of its deliveries.
    Source(Box<dyn Source>, Option<ClaimFence>),
    /// A log that is read by partition.
    Log(Box<dyn PartitionedLog>),
}

impl Opened {
    fn max_age(&self) -> MaxAge {
        match self {
            Self::Source(source, _) => source.max_age(),
            Self::Log(log) => log.max_age(),
        }
    }
}

impl<DB: Dialect, S: Send + Sync + 'static> Worker<DB, S> {
    pub(crate) fn new(runtime: Runtime<DB, S>, transport: Arc<dyn Transport>) -> Self {
        Self { runtime: Arc::new(runtime), transport }
    }

    /// Runs the consumer until shutdown.
    ///
    /// # Errors
    /// Something that needs a person: the transport is not set up as asked, or the inbox retention is too
    /// short.
    pub(crate) async fn run(self) -> Result<(), Error> {
        let runtime = &self.runtime;
        // Cancelled at the end of consuming, also if that failed.
        let redrive_stop = runtime.stop.child_token();
        let consuming = async {
            // A pause has to be known before the first delivery.
            let _ = runtime.stop.run_until_cancelled(control::beat(runtime)).await;
            let ended = self.consume().await;
            redrive_stop.cancel();
            ended
        };
        let consuming = async { tokio::join!(consuming, redrive::run(runtime, &redrive_stop)).0 };
        let ended = tokio::select! {
            ended = consuming => ended,
            () = runtime.inbox_purge.run(&runtime.inbox, &runtime.stats) => {
                unreachable!("the purge has no end")
            }
            () = control::keep_beating(runtime) => unreachable!("the heartbeat has no end"),
        };
        runtime.stats.set_state(ConsumerState::Stopped);
        ended
    }

    async fn consume(&self) -> Result<(), Error> {
        let mut in_flight = InFlight::new(&self.runtime.group.handlers);
        let ended = self.consume_until_stopped(&mut in_flight).await;
        source_loop::drain(&self.runtime, in_flight.tasks).await;
        ended
    }

    /// Opens the source again after each failure and each pause. Deliveries of a failed source stay in flight
    /// beside those of the next one.
    async fn consume_until_stopped(&self, in_flight: &mut InFlight) -> Result<(), Error> {
        let (runtime, stop) = (&self.runtime, &self.runtime.stop);
        let mut backoff = Backoff::new();
        let mut is_paused = runtime.is_paused.subscribe();
        while !stop.is_cancelled() {
            if *is_paused.borrow_and_update() {
                runtime.stats.set_state(ConsumerState::Paused);
                tokio::select! {
                    _ = is_paused.changed() => {}
                    () = stop.cancelled() => {}
                }
                continue;
            }
            let opened = tokio::select! {
                opened = self.open() => opened,
                () = stop.cancelled() => break,
            };
            if let Ok(opened) = &opened {
                runtime.inbox_purge.set_max_age(runtime.consumer(), opened.max_age())?;
                if let Opened::Log(_) = opened {
                    runtime.group.check_lease(runtime.lease)?;
                }
            }
            let session = stop.child_token();
            let reading = async {
                match opened? {
                    Opened::Source(source, fence) => {
                        source_loop::consume(runtime, source, fence, in_flight, &mut backoff, &session).await
                    }
                    Opened::Log(log) => partition_leases::consume(runtime, log, &mut backoff, &session).await,
                }
            };
            let end_at_pause = async {
                let _ = is_paused.wait_for(|is_paused| *is_paused).await;
                session.cancel();
                std::future::pending().await
            };
            let ended = tokio::select! {
                ended = reading => ended,
                () = end_at_pause => unreachable!("it only cancels the session"),
            };
            let Err(error) = ended else { continue };
            self.report_failure(error)?;
            tokio::select! {
                () = tokio::time::sleep(backoff.pause().min(REOPEN_PAUSE_MAX)) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }

    /// Opens a log if the transport has one for the order of keys, else a source.
    async fn open(&self) -> Result<Opened, SourceError> {
        let subscription = &self.runtime.group.subscription;
        if subscription.is_ordered
            && let Some(log) = self.transport.open_log(subscription).await?
        {
            return Ok(Opened::Log(log));
        }
        // The server run is read before the first delivery: the order rests on the commits of this run.
        let fence = match subscription.is_ordered && self.runtime.store.engine().has_server_runs() {
            true => Some(ClaimFence::ServerRun(Log::new(&self.runtime.store).server_run().await?)),
            false => None,
        };
        Ok(Opened::Source(self.transport.subscribe(subscription).await?, fence))
    }

    /// Logs a failure of the source that can pass.
    ///
    /// # Errors
    /// The failure needs a person.
    fn report_failure(&self, error: SourceError) -> Result<(), Error> {
        let consumer = self.runtime.consumer();
        if !error.is_transient() {
            let message = format!("the consumer {consumer:?} cannot read its messages");
            return Err(Error::new(ErrorKind::Source, message).with_source(error));
        }
        let cause = &error as &dyn std::error::Error;
        if error.kind() == SourceErrorKind::OwnedByAnother {
            self.runtime.stats.set_state(ConsumerState::Standby);
            tracing::debug!(consumer, error = cause, "another process reads for the consumer");
        } else {
            self.runtime.stats.set_state(ConsumerState::Waiting);
            tracing::warn!(consumer, error = cause, "the source failed and is opened again");
        }
        Ok(())
    }
}
