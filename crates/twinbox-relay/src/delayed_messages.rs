use crate::error::Error;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use twinbox_core::{backoff::Backoff, limits::bounded};
use twinbox_log::{Log, MoveReport};
use twinbox_sql::{Dialect, Store};

/// The longest pause between two looks, by default. Another process may publish a message that is due soon.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest pause, for when another transaction has locked the due messages.
const LOOK_PAUSE: Duration = Duration::from_millis(20);
/// Messages that one transaction moves.
const BATCH: u32 = 500;

/// Moves delayed messages into the outbox when they are due.
///
/// A delayed message is in the outbox within a second of its time. The program `twinbox-relay` runs a mover
/// for each store. Run one yourself beside a [`Relay`](crate::Relay) in your own program, or beside consumers
/// that read the log without a relay. Any number of processes may run one: each message is moved once.
///
/// While nothing is due, it looks at an index four times a second, or as [`idle_poll`](Self::idle_poll) says.
///
/// # Examples
///
/// ```
/// use tokio_util::sync::CancellationToken;
/// use twinbox_relay::{DelayedMessageMover, Error};
/// use twinbox_sql::{Dialect, Store};
///
/// async fn run_mover<DB: Dialect>(store: Store<DB>, stop: CancellationToken) -> Result<(), Error> {
///     DelayedMessageMover::new(store).run(stop).await
/// }
/// ```
#[derive(Debug)]
pub struct DelayedMessageMover<DB: Dialect> {
    store: Store<DB>,
    look_interval: Duration,
}

impl<DB: Dialect> DelayedMessageMover<DB> {
    /// Makes a mover for the delayed messages of a store.
    pub fn new(store: Store<DB>) -> Self {
        Self { store, look_interval: LOOK_INTERVAL }
    }

    /// Sets the longest pause between two looks, if it is longer than a quarter of a second. A message whose
    /// time comes sooner than that after it was published is late by up to this pause.
    #[must_use]
    pub fn idle_poll(self, idle_poll: Duration) -> Self {
        Self { look_interval: bounded(idle_poll.max(LOOK_INTERVAL)), ..self }
    }

    /// Moves due messages until `stop` is cancelled. Waits out outages of the database.
    ///
    /// # Errors
    ///
    /// The error needs a person, such as a missing table or a missing right.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let (log, mut back_off) = (Log::new(&self.store), Backoff::new());
        while !stop.is_cancelled() {
            let pause = match log.move_due(BATCH).await {
                Ok(moved) => {
                    back_off.reset();
                    pause_after(moved, self.look_interval)
                }
                Err(error) if error.is_transient() => {
                    let (pause, error) = (back_off.pause(), &error as &dyn std::error::Error);
                    tracing::warn!(?pause, error, "delayed messages cannot be moved into the outbox");
                    pause
                }
                Err(error) => return Err(error.into()),
            };
            let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        Ok(())
    }
}

fn pause_after(moved: MoveReport, look_interval: Duration) -> Duration {
    match moved.next_due {
        Some(Duration::ZERO) if moved.messages > 0 => Duration::ZERO,
        next_due => next_due.map_or(look_interval, |due| due.clamp(LOOK_PAUSE, look_interval)),
    }
}
