//! Executing the replays of a consumer of the log, beside its new messages.
use crate::{Log, Reader, ReaderOptions, driver::Driver};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use twinbox_core::ReceivedMessage;
use twinbox_sql::{Dialect, Error, Store, replay::Replay};
use uuid::Uuid;

/// The interval at which a relay looks for a replay to execute.
pub const REPLAY_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Executes the replays of a consumer.
pub(crate) struct Replays<DB: Dialect> {
    pub(crate) store: Store<DB>,
    pub(crate) destination: String,
    pub(crate) owner: Uuid,
    pub(crate) options: ReaderOptions,
    pub(crate) types: Arc<[String]>,
    pub(crate) deliveries: mpsc::Sender<ReceivedMessage>,
    pub(crate) stop: CancellationToken,
}

impl<DB: Dialect> Replays<DB> {
    /// Runs until it is stopped. A replay that fails is tried again.
    pub(crate) async fn run(self) {
        while !self.stop.is_cancelled() {
            let executed = match Log::new(&self.store).next_replay(&self.destination).await {
                Ok(Some(replay)) => self.execute(&replay).await,
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = executed {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(destination = self.destination, error = cause, "a replay is tried again");
            }
            tokio::select! {
                () = tokio::time::sleep(REPLAY_LOOK_INTERVAL) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    async fn execute(&self, replay: &Replay) -> Result<(), Error> {
        let options = self.options.clone().replay(replay);
        let log = Log::new(&self.store);
        let server_run = log.server_run().await?;
        let Some(reader) = Reader::open(&self.store, &replay.cursor(), self.owner, options).await? else {
            return Ok(());
        };
        tracing::info!(destination = self.destination, replay = replay.id, "replaying");
        let (types, deliveries, stop) = (self.types.clone(), self.deliveries.clone(), self.stop.clone());
        if Driver::new(reader, types, deliveries, replay.rate, stop).run().await? {
            log.finish_replay(replay.id, server_run).await?;
            tracing::info!(destination = self.destination, replay = replay.id, "replayed");
        }
        Ok(())
    }
}
