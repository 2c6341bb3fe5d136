use crate::Error;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use twinbox_core::reconnect::Reconnect;
use twinbox_sql::{Dialect, Moved, Store};

/// How often waiting messages are looked at, because another process may have published one that is due soon.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest pause between looks, for when somebody holds what is due.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Messages that one transaction moves.
const BATCH: u32 = 500;

/// Brings messages that were published for later to the log, within a second of their time. The program
/// `twinbox-relay` runs one; a program that embeds a [`Relay`](crate::Relay), or consumers that read the log, runs
/// one beside them. Any number of processes may: each message is moved once.
///
/// While nothing is due it costs one look at an index four times a second.
#[derive(Debug)]
pub struct Mover<DB: Dialect> {
    store: Store<DB>,
}

impl<DB: Dialect> Mover<DB> {
    /// Moves what waits in this store.
    pub fn new(store: Store<DB>) -> Self {
        Self { store }
    }

    /// Runs until `stop` is cancelled. Outages of the database are waited out.
    ///
    /// # Errors
    /// What needs a person: a missing table, a missing right.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let mut reconnect = Reconnect::new();
        while !stop.is_cancelled() {
            let pause = match self.store.move_due(BATCH).await {
                Ok(moved) => {
                    reconnect.reset();
                    pause_after(moved)
                }
                Err(error) if error.is_transient() => {
                    let pause = reconnect.pause();
                    tracing::warn!(
                        ?pause,
                        error = &error as &dyn std::error::Error,
                        "nothing is moved to the log"
                    );
                    pause
                }
                Err(error) => return Err(error.into()),
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(())
    }
}

fn pause_after(moved: Moved) -> Duration {
    match moved.next_due {
        Some(Duration::ZERO) if moved.messages > 0 => Duration::ZERO,
        next_due => next_due.map_or(LOOK_INTERVAL, |due| due.clamp(LOOK_PAUSE, LOOK_INTERVAL)),
    }
}
