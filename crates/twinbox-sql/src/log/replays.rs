//! Replays to a consumer of the log, beside what is new.
use super::{Reader, ReaderOptions, driver::Driver};
use crate::{Dialect, Error, Store, replay::Replay};
use std::{sync::Arc, time::Duration};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use twinbox_core::Received;
use uuid::Uuid;

/// How often it is looked for one.
pub const REPLAY_LOOK_INTERVAL: Duration = Duration::from_secs(1);

pub(super) struct Replays<DB: Dialect> {
    pub(super) store: Store<DB>,
    pub(super) destination: String,
    pub(super) owner: Uuid,
    pub(super) options: ReaderOptions,
    pub(super) types: Arc<[String]>,
    pub(super) deliveries: mpsc::Sender<Received>,
    pub(super) stop: CancellationToken,
}

impl<DB: Dialect> Replays<DB> {
    /// Until it is stopped. Whatever fails is tried again.
    pub(super) async fn run(self) {
        while !self.stop.is_cancelled() {
            let executed = match self.store.next_replay(&self.destination).await {
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
        let run = self.store.server_run().await?;
        let Some(reader) = Reader::open(&self.store, &replay.cursor(), self.owner, options).await? else {
            return Ok(());
        };
        tracing::info!(destination = self.destination, replay = replay.id, "replaying");
        let (types, deliveries, stop) = (self.types.clone(), self.deliveries.clone(), self.stop.clone());
        if Driver::new(reader, types, deliveries, replay.rate, stop).run().await? {
            self.store.finish_replay(replay.id, run).await?;
            tracing::info!(destination = self.destination, replay = replay.id, "replayed");
        }
        Ok(())
    }
}
