//! The operator's pause, and the heartbeat that shows an operator which consumers run.
use crate::runtime::Runtime;
use std::{error::Error, time::Duration};
use tokio::time::Instant;
use twinbox_sql::{Dialect, inbox::HEARTBEAT};

/// How often a running consumer reads whether it is paused.
const PAUSE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the database may take for the heartbeat.
const HEARTBEAT_MAX: Duration = Duration::from_secs(5);

/// Writes the heartbeat and reads whether the consumer is paused. While the database is away the pause stays
/// as it is. A refusal is logged each time: operators would not see the consumer.
pub(crate) async fn beat<DB: Dialect, S>(runtime: &Runtime<DB, S>) {
    let beat = runtime.inbox.heartbeat(runtime.address.as_deref());
    match tokio::time::timeout(HEARTBEAT_MAX, beat).await {
        Ok(Ok(pause_reason)) => set_paused(runtime, pause_reason),
        Ok(Err(error)) if !error.is_transient() => tracing::warn!(
            consumer = runtime.consumer(),
            error = &error as &dyn Error,
            "the database refuses the heartbeat of the consumer"
        ),
        _ => {}
    }
}

/// Writes the heartbeat and reads whether the consumer is paused, in intervals. Never returns.
pub(crate) async fn keep_beating<DB: Dialect, S>(runtime: &Runtime<DB, S>) {
    let mut beat_at = Instant::now() + HEARTBEAT;
    loop {
        tokio::time::sleep(PAUSE_CHECK_INTERVAL).await;
        if Instant::now() >= beat_at {
            beat_at = Instant::now() + HEARTBEAT;
            beat(runtime).await;
        } else if let Ok(pause_reason) = runtime.inbox.pause_reason().await {
            set_paused(runtime, pause_reason);
        }
    }
}

fn set_paused<DB: Dialect, S>(runtime: &Runtime<DB, S>, pause_reason: Option<String>) {
    let (consumer, is_paused) = (runtime.consumer(), pause_reason.is_some());
    let has_changed =
        runtime.is_paused.send_if_modified(|was| std::mem::replace(was, is_paused) != is_paused);
    match pause_reason {
        Some(reason) if has_changed => tracing::warn!(consumer, reason, "an operator paused the consumer"),
        None if has_changed => tracing::info!(consumer, "an operator resumed the consumer"),
        _ => {}
    }
}
