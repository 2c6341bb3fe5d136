//! The loop over one source: receive, start, settle, until the source fails or the session ends.
use crate::{
    handler::{Handler, Run},
    in_flight::{InFlight, Load},
    runtime::Runtime,
    status::ConsumerState,
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use twinbox_core::{
    ReceivedMessage, Source, SourceError, SourceErrorKind, backoff::Backoff, task_name::TaskName,
};
use twinbox_sql::{ClaimFence, Dialect};

/// How often the lag is recorded.
const LAG_INTERVAL: Duration = Duration::from_secs(1);
/// How long the database may take to confirm that it is available again.
const CHECK_MAX: Duration = Duration::from_secs(5);

/// Receives and processes deliveries until `session` is cancelled or the source fails. Deliveries stay in
/// flight when this returns.
pub(crate) async fn consume<DB: Dialect, S: Send + Sync + 'static>(
    runtime: &Arc<Runtime<DB, S>>,
    mut source: Box<dyn Source>,
    fence: Option<ClaimFence>,
    in_flight: &mut InFlight,
    backoff: &mut Backoff,
    session: &CancellationToken,
) -> Result<(), SourceError> {
    // A request costs the source as much for one delivery as for many.
    let room_min = in_flight.smallest_share().div_ceil(4);
    runtime.stats.set_state(ConsumerState::Consuming);
    tracing::info!(consumer = runtime.consumer(), "consuming");
    let mut outage = Backoff::new();
    let mut is_receiving = true;
    let mut lag_tick = tokio::time::interval(LAG_INTERVAL);
    let result = loop {
        // A request stays open until there is no room at all, because its deliveries can come at any time.
        let room = in_flight.room(Instant::now());
        is_receiving = room > 0 && (is_receiving || room >= room_min);
        if runtime.is_server_restarted.swap(false, Relaxed) {
            let message =
                "the database server restarted and may have lost commits: the source is opened again";
            break Err(SourceError::new(SourceErrorKind::Unavailable, message));
        }
        if runtime.is_database_away.swap(false, Relaxed) {
            let pause = outage.pause();
            tracing::warn!(?pause, "the database is not available, receiving pauses");
            let check = async {
                tokio::time::sleep(pause).await;
                tokio::time::timeout(CHECK_MAX, runtime.store.check()).await
            };
            tokio::select! {
                checked = check => match checked {
                    Ok(Ok(())) => runtime.stats.set_state(ConsumerState::Consuming),
                    _ => runtime.is_database_away.store(true, Relaxed),
                },
                () = session.cancelled() => {}
            }
        }
        tokio::select! {
            biased;
            () = session.cancelled() => break Ok(()),
            Some(done) = in_flight.tasks.join_next() => {
                in_flight.remove(&done.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())));
                if !runtime.is_database_away.load(Relaxed) {
                    outage.reset();
                }
            }
            _ = lag_tick.tick() => runtime.stats.set_lag(0, source.lag()),
            received = source.receive(room), if is_receiving => match received {
                Ok(received) => {
                    backoff.reset();
                    start(runtime, received, fence, in_flight);
                }
                Err(error) => break Err(error),
            }
        }
    };
    result?;
    let mut closing = source.close();
    tokio::select! {
        biased;
        closed = &mut closing => closed,
        // At a shutdown drain meanwhile, so that returned deliveries can go to another process.
        () = runtime.stop.cancelled() => {
            tokio::join!(drain(runtime, std::mem::take(&mut in_flight.tasks)), closing).1
        }
    }
}

/// Starts the processing of received deliveries: of each one, or of each batch.
fn start<DB: Dialect, S: Send + Sync + 'static>(
    runtime: &Arc<Runtime<DB, S>>,
    received: Vec<ReceivedMessage>,
    fence: Option<ClaimFence>,
    in_flight: &mut InFlight,
) {
    let handlers = &runtime.group.handlers;
    let (singles, batches) = into_batches(runtime, received);
    for one in singles {
        let (load, span) =
            (Load::new(handlers, std::slice::from_ref(&one)), runtime.span(std::iter::once(&one.message)));
        let runtime = runtime.clone();
        in_flight.add(&load);
        let process = async move {
            runtime.process_and_settle(fence, one).await;
            load
        };
        in_flight.tasks.spawn(TaskName::Delivery.of(process.instrument(span)));
    }
    for batch in batches {
        let (load, span) = (Load::new(handlers, &batch), runtime.span(batch.iter().map(|one| &one.message)));
        let runtime = runtime.clone();
        in_flight.add(&load);
        let process = async move {
            runtime.process_and_settle_batch(batch).await;
            load
        };
        in_flight.tasks.spawn(TaskName::Delivery.of(process.instrument(span)));
    }
}

/// Divides deliveries into those that are handled one by one, and batches of one type. A message that is
/// unreadable, redacted or a replay is handled by itself.
fn into_batches<DB: Dialect, S>(
    runtime: &Runtime<DB, S>,
    received: Vec<ReceivedMessage>,
) -> (Vec<ReceivedMessage>, Vec<Vec<ReceivedMessage>>) {
    let (mut singles, mut batches) = (Vec::new(), Vec::<Vec<ReceivedMessage>>::new());
    for one in received {
        let message = &one.message;
        match runtime.group.handler(&message.event_type) {
            Some(Handler { run: Run::Batch(_), event_type, policy, .. })
                if one.defect.is_none() && !message.is_redacted() && message.reprocess_target().is_none() =>
            {
                let has_room = |batch: &&mut Vec<ReceivedMessage>| {
                    batch[0].message.event_type == *event_type && batch.len() < policy.batch
                };
                match batches.iter_mut().find(has_room) {
                    Some(batch) => batch.push(one),
                    None => batches.push(vec![one]),
                }
            }
            _ => singles.push(one),
        }
    }
    (singles, batches)
}

/// Waits for the deliveries in flight. Those that take too long are aborted, and delivered again.
pub(crate) async fn drain<DB: Dialect, S>(runtime: &Runtime<DB, S>, mut tasks: JoinSet<Load>) {
    let done = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(runtime.drain, done).await.is_err() {
        tracing::warn!(deliveries = tasks.len(), "deliveries were not drained in time, they come again");
        tasks.shutdown().await;
        runtime.starts.end(&runtime.inbox, runtime.starts.take_all()).await;
    }
}
