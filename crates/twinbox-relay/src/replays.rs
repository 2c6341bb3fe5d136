//! Replays to a destination, beside what is new.
use crate::{
    Counters, Error, OnExhausted, Relay, RelayOptions,
    breaker::{Breaker, Circuit},
    gate::Gate,
    relay::pause_or_stop,
};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use twinbox_sql::{Dialect, ErrorKind, log::REPLAY_LOOK_INTERVAL, replay::Replay};

/// The part of the messages in flight, and of the rate, as its denominator, that is for replays.
const SHARE: u32 = 4;
/// How long the database may take to say whether there is one.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Executes replays one after another until it is stopped. Whatever fails is tried again.
pub(crate) async fn run<DB: Dialect>(live: Arc<Relay<DB>>, stop: CancellationToken) {
    let destination = live.destination.id();
    let (mut circuit, mut gate) = (Circuit::new(Breaker::unseen()), Gate::default());
    while !stop.is_cancelled() {
        let looked = tokio::time::timeout(LOOK_MAX, live.store.next_replay(destination)).await;
        let executed = match looked {
            Ok(Ok(Some(replay))) => execute(&live, &replay, &stop, &mut circuit, &mut gate).await,
            Ok(Ok(None)) => Ok(()),
            // Whoever relays what is new tells that the database is away.
            Ok(Err(_)) | Err(_) => Ok(()),
        };
        let pause = match executed {
            Ok(()) | Err(Error::OwnedByAnother) => REPLAY_LOOK_INTERVAL,
            // It was cancelled, or another process executes it.
            Err(Error::Store(error)) if error.kind() == ErrorKind::LeaseLost => REPLAY_LOOK_INTERVAL,
            Err(error) => circuit.open(&format!("{destination}, replay"), &error).max(circuit.storm.pause()),
        };
        pause_or_stop(pause, &stop).await;
    }
}

async fn execute<DB: Dialect>(
    live: &Relay<DB>,
    replay: &Replay,
    stop: &CancellationToken,
    circuit: &mut Circuit,
    gate: &mut Gate,
) -> Result<(), Error> {
    let destination = live.destination.id();
    let relay = Relay {
        store: live.store.clone(),
        destination: live.destination.clone(),
        options: options(&live.options, replay.rate),
        owner: live.owner,
        counters: Counters::new(destination),
        breaker: live.breaker.clone(),
    };
    let reading = relay.reader_options().replay(replay);
    let run = live.store.server_run().await?;
    if relay.own(&replay.cursor(), &reading, stop, circuit, gate).await? {
        live.store.finish_replay(replay.id, run).await?;
        tracing::info!(destination, replay = replay.id, published = relay.counters.published(), "replayed");
    }
    Ok(())
}

/// What is given up does not hold the destination: it had taken the message before.
fn options(live: &RelayOptions, rate: Option<u32>) -> RelayOptions {
    let share = live.rate.map(|rate| (rate / SHARE).max(1));
    RelayOptions {
        in_flight: (live.in_flight / SHARE as usize).max(1),
        rate: [share, rate].into_iter().flatten().min(),
        on_exhausted: OnExhausted::DeadLetter,
        dead_letter_events: false,
        elsewhere: None,
        ..live.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_gets_a_quarter_and_no_more_than_was_asked_for() {
        let live = RelayOptions::new().in_flight(2).rate(100).on_exhausted(OnExhausted::Block);
        let rates = [None, Some(10), Some(1000)].map(|rate| options(&live, rate).rate);
        assert_eq!(rates, [Some(25), Some(10), Some(25)]);
        let unbounded = RelayOptions::new();
        assert_eq!([None, Some(7)].map(|rate| options(&unbounded, rate).rate), [None, Some(7)]);
        let replayed = options(&live, None);
        assert_eq!((replayed.in_flight, replayed.on_exhausted), (1, OnExhausted::DeadLetter));
    }
}
