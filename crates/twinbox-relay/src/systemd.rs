//! Notifies systemd: ready, alive, stopping. All of it does nothing without the variable `NOTIFY_SOCKET`.
use crate::readiness::Readiness;
use sd_notify::NotifyState;
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use twinbox_core::task_name::TaskName;
use twinbox_sql::Dialect;

/// The pause between two looks while the program is not ready.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Notifies until the returned tasks are dropped: `WATCHDOG=1` twice in each interval of the watchdog, and
/// `READY=1` once, when the condition of `/readyz` holds, unless `stop` comes first.
pub(crate) fn start<DB: Dialect>(readiness: Arc<Readiness<DB>>, stop: CancellationToken) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return tasks;
    }
    if let Some(watchdog) = sd_notify::watchdog_enabled() {
        tasks.spawn(TaskName::Systemd.of(async move {
            let mut beats = tokio::time::interval(watchdog / 2);
            loop {
                beats.tick().await;
                notify(&[NotifyState::Watchdog]);
            }
        }));
    }
    tasks.spawn(TaskName::Systemd.of(async move {
        let _ = stop.run_until_cancelled(notify_ready(&readiness)).await;
    }));
    tasks
}

async fn notify_ready<DB: Dialect>(readiness: &Readiness<DB>) {
    while let Err(reasons) = readiness.check().await {
        notify(&[NotifyState::Status(&one_line("waiting for ", &reasons))]);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    notify(&[NotifyState::Ready, NotifyState::Status("relaying")]);
}

/// Notifies that the program waits for the messages in flight and ends.
pub(crate) fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("waiting for the messages in flight")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(error = &error as &dyn std::error::Error, "systemd was not notified");
    }
}

/// A line break would begin another notification.
fn one_line(prefix: &str, reasons: &[String]) -> String {
    prefix.to_owned() + &reasons.join("; ").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_cannot_add_a_notification() {
        assert_eq!(one_line("waiting for ", &["database: a\nREADY=1".into(), "b".into()]), {
            "waiting for database: a READY=1; b"
        });
    }
}
