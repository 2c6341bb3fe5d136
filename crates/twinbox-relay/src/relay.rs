use crate::{
    circuit_breaker::CircuitBreakerStatus,
    counters::Counters,
    destination_state::DestinationState,
    error::Error,
    link::Link,
    metrics,
    options::RelayOptions,
    replays,
    session::{Session, SessionEnd},
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use twinbox_core::{Destination, task_name::TaskName};
use twinbox_log::{Keeper, ReaderOptions, Shares, Standby, run_bulk_actions};
use twinbox_sql::{Dialect, Store};
use uuid::Uuid;

/// A destination that fails so soon after it was handed over fails because of this process, perhaps.
const HANDED_OVER_LATELY: Duration = Duration::from_secs(60);

/// Moves messages from the outbox of one store to one destination.
///
/// Any number of processes may run the same relay. One of them owns the destination at a time. Another takes
/// over when the lease ends. With several destinations, processes [share](Self::shares) them.
///
/// # Examples
///
/// ```
/// use tokio_util::sync::CancellationToken;
/// use twinbox_core::{Destination, TypePattern};
/// use twinbox_relay::{Error, OnExhausted, Relay, RelayOptions};
/// use twinbox_sql::{Dialect, Store};
///
/// /// Publishes the events of orders until `stop` is cancelled.
/// async fn relay_orders<DB: Dialect>(
///     store: Store<DB>,
///     destination: impl Destination, // of `twinbox-nats`, `twinbox-aws`, or your own
///     stop: CancellationToken,
/// ) -> Result<(), Error> {
///     let orders: TypePattern = "orders.*".parse().expect("a valid pattern");
///     let options = RelayOptions::new().types([orders]).rate(500).on_exhausted(OnExhausted::ParkKey);
///     let relay = Relay::with_options(store, destination, options);
///     let counters = relay.counters();
///     relay.run(stop).await?;
///     println!("{} messages published", counters.published());
///     Ok(())
/// }
/// ```
pub struct Relay<DB: Dialect> {
    link: Link<DB>,
    keeper: Option<Keeper<DB>>,
}

impl<DB: Dialect> Relay<DB> {
    /// Makes a relay with the default options.
    pub fn new(store: Store<DB>, destination: impl Destination) -> Self {
        Self::with_options(store, destination, RelayOptions::new())
    }

    /// Makes a relay with the given options.
    pub fn with_options(store: Store<DB>, destination: impl Destination, options: RelayOptions) -> Self {
        metrics::describe();
        let (counters, breaker) =
            (Counters::new(destination.id()), CircuitBreakerStatus::new(destination.id()));
        let (destination, owner) = (Arc::new(destination), Uuid::now_v7());
        let keeper = Some(Keeper::new(&store));
        Self {
            link: Link { store, destination, options, owner, shares: Shares::new(), counters, breaker },
            keeper,
        }
    }

    /// Sets the keeper, which deletes old rows while the relay runs: with other times, or with a store whose
    /// role may delete them. Default: [`Keeper::new`] of the store.
    #[must_use]
    pub fn keeper(self, keeper: Keeper<DB>) -> Self {
        Self { keeper: Some(keeper), ..self }
    }

    /// Counts the destination among those of this process. Give the same [`Shares`] to all relays of a
    /// process: then several processes with the same destinations own as many each, also after one of them
    /// has died or come back. Default: shares of its own, with which a relay keeps its destination.
    #[must_use]
    pub fn shares(mut self, shares: &Shares) -> Self {
        self.link.shares = shares.clone();
        self
    }

    /// Runs no keeper. Tables grow then until another process deletes old rows.
    #[must_use]
    pub fn without_keeper(self) -> Self {
        Self { keeper: None, ..self }
    }

    /// Returns the counters of this relay. They stay readable while the relay runs and after it has ended.
    pub fn counters(&self) -> Counters {
        self.link.counters.clone()
    }

    /// Returns a handle to the state of this relay's circuit breaker.
    pub fn breaker(&self) -> CircuitBreakerStatus {
        self.link.breaker.clone()
    }

    /// Relays until `stop` is cancelled, and runs replays to the destination beside the new messages.
    ///
    /// The relay waits out outages of the database and of the destination. When `stop` is cancelled, it waits
    /// for the messages in flight, records how far all is settled, and gives the lease back. Dropped or
    /// killed it records nothing: the next relay takes over when the lease ends, and sends at most the
    /// messages of the last 100 ms again.
    ///
    /// # Errors
    ///
    /// The error needs a person: the tables cannot be read, or the destination is not set up as asked. Once
    /// the destination has worked, any error of it is an outage, and the relay continues.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let (link, stop) = (Arc::new(self.link), stop.child_token());
        let keeper = self.keeper.map(|keeper| {
            AbortOnDropHandle::new(tokio::spawn(TaskName::RelayKeeper.of(keeper.run(stop.clone()))))
        });
        let acting = run_bulk_actions(link.store.clone(), link.options.idle_poll, stop.clone());
        let acting = AbortOnDropHandle::new(tokio::spawn(TaskName::RelayBulkActions.of(acting)));
        let replays = AbortOnDropHandle::new(tokio::spawn(
            TaskName::RelayReplays.of(replays::run(link.clone(), stop.clone())),
        ));
        let result = relay_new_messages(&link, &stop).await;
        stop.cancel();
        let _ = replays.await;
        drop((keeper, acting));
        result
    }
}

async fn relay_new_messages<DB: Dialect>(link: &Link<DB>, stop: &CancellationToken) -> Result<(), Error> {
    let mut state = DestinationState::new(link.breaker.clone());
    let (id, options, lease) = (link.destination.id(), link.reader_options(), link.options.lease);
    let standby = Standby::new(&link.store, id, link.owner, lease, link.shares.clone());
    while !stop.is_cancelled() {
        let (started_at, has_wished) = (Instant::now(), standby.wishes());
        let pause = match run_session(link, &options, &mut state, stop).await {
            Ok(SessionEnd::HandedOver) => state.breaker.stand_by(),
            Ok(_) => break,
            Err(Error::OwnedByAnother) => {
                let pause = state.breaker.stand_by();
                // The next session reports an outage of the database.
                let looked = stop.run_until_cancelled(standby.look()).await;
                looked.and_then(Result::ok).map_or(pause, |wait| pause.min(wait))
            }
            Err(error) if state.breaker.is_final(&error) => return Err(error),
            Err(error) => {
                if error.is_lease_lost() {
                    link.counters.note_lease_lost();
                }
                let soon = started_at.elapsed() < HANDED_OVER_LATELY;
                standby.failed(has_wished && soon && error.is_destination_failure());
                state.breaker.open(id, &error)
            }
        };
        // Within a lease a standby looks again, so that a takeover does not wait for a long back-off.
        let pause = pause.min(lease / 4).max(state.storm.pause());
        let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
    Ok(())
}

async fn run_session<DB: Dialect>(
    link: &Link<DB>,
    options: &ReaderOptions,
    state: &mut DestinationState,
    stop: &CancellationToken,
) -> Result<SessionEnd, Error> {
    match Session::open(link, link.destination.id(), options, state, stop).await? {
        Some(session) => session.run(stop).await,
        None => Ok(SessionEnd::Interrupted),
    }
}

impl<DB: Dialect> fmt::Debug for Relay<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("store", &self.link.store)
            .field("destination", &self.link.destination.id())
            .finish_non_exhaustive()
    }
}
