//! Runs the replays to a destination, beside its new messages.
use crate::{
    circuit_breaker::CircuitBreakerStatus,
    counters::Counters,
    destination_state::DestinationState,
    error::Error,
    link::Link,
    options::{OnExhausted, RelayOptions},
    session::{Session, SessionEnd},
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use twinbox_log::{Log, REPLAY_LOOK_INTERVAL};
use twinbox_sql::{Dialect, replay::Replay};

/// The share of the messages in flight and of the rate that a replay gets, as its denominator.
const SHARE: u32 = 4;
/// How long the database may take to look for a replay.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs replays one after another until `stop` is cancelled. A replay that fails is tried again.
pub(crate) async fn run<DB: Dialect>(live: Arc<Link<DB>>, stop: CancellationToken) {
    let destination = live.destination.id();
    let log = Log::new(&live.store);
    let mut state = DestinationState::new(CircuitBreakerStatus::without_metrics());
    let look_interval = REPLAY_LOOK_INTERVAL.max(live.options.idle_poll);
    while !stop.is_cancelled() {
        let found = tokio::time::timeout(LOOK_TIMEOUT, log.next_replay(destination)).await;
        let result = match found {
            Ok(Ok(Some(replay))) => run_replay(&live, &replay, &stop, &mut state).await,
            Ok(Ok(None)) => Ok(()),
            // The relay of the new messages reports an outage of the database.
            Ok(Err(_)) | Err(_) => Ok(()),
        };
        let pause = match result {
            Ok(()) | Err(Error::OwnedByAnother) => look_interval,
            // The replay was cancelled, or another process runs it.
            Err(error) if error.is_lease_lost() => look_interval,
            Err(error) => {
                let pause = state.breaker.open(&format!("{destination}, replay"), &error);
                pause.max(state.storm.pause())
            }
        };
        let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

async fn run_replay<DB: Dialect>(
    live: &Link<DB>,
    replay: &Replay,
    stop: &CancellationToken,
    state: &mut DestinationState,
) -> Result<(), Error> {
    let destination = live.destination.id();
    let link = Link {
        store: live.store.clone(),
        destination: live.destination.clone(),
        options: options(&live.options, replay.rate),
        owner: live.owner,
        shares: live.shares.clone(),
        counters: Counters::new(destination),
        breaker: live.breaker.clone(),
    };
    let reader_options = link.reader_options().replay(replay);
    let log = Log::new(&live.store);
    let server_run = log.server_run().await?;
    let Some(session) = Session::open(&link, &replay.cursor(), &reader_options, state, stop).await? else {
        return Ok(());
    };
    if session.run(stop).await? == SessionEnd::ReplayDone {
        log.finish_replay(replay.id, server_run).await?;
        let published = link.counters.published();
        tracing::info!(destination, replay = replay.id, published, "the replay is done");
    }
    Ok(())
}

/// A dead letter of a replay never blocks its key or destination, because the destination had accepted the
/// message before.
fn options(live: &RelayOptions, rate: Option<u32>) -> RelayOptions {
    let share = live.rate.map(|rate| (rate / SHARE).max(1));
    RelayOptions {
        in_flight: (live.in_flight / SHARE as usize).max(1),
        rate: [share, rate].into_iter().flatten().min(),
        on_exhausted: OnExhausted::DeadLetter,
        dead_letter_events: false,
        types_of_other_destinations: None,
        ..live.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_gets_a_quarter_and_at_most_its_own_rate() {
        let live = RelayOptions::new().in_flight(2).rate(100).on_exhausted(OnExhausted::Block);
        let rates = [None, Some(10), Some(1000)].map(|rate| options(&live, rate).rate);
        assert_eq!(rates, [Some(25), Some(10), Some(25)]);
        let unbounded = RelayOptions::new();
        assert_eq!([None, Some(7)].map(|rate| options(&unbounded, rate).rate), [None, Some(7)]);
        let replayed = options(&live, None);
        assert_eq!((replayed.in_flight, replayed.on_exhausted), (1, OnExhausted::DeadLetter));
    }
}
