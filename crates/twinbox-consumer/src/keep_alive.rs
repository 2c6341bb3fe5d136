//! Progress acks, so that a broker does not deliver a message again while its handler runs.
use twinbox_core::Settle;

/// Runs `work` and sends the source a progress ack for each delivery in regular intervals.
pub(crate) async fn keep_alive<T>(deliveries: &[&dyn Settle], work: impl Future<Output = T>) -> T {
    let interval = deliveries.iter().find_map(|delivery| delivery.progress_interval());
    let Some(interval) = interval else { return work.await };
    let progress = async {
        loop {
            tokio::time::sleep(interval).await;
            let acks = deliveries.iter().map(|delivery| delivery.progress());
            let acks = futures::future::join_all(acks).await;
            if let Some(error) = acks.into_iter().find_map(Result::err) {
                let cause = &error as &dyn std::error::Error;
                tracing::debug!(error = cause, "the source did not confirm a progress ack");
            }
        }
    };
    tokio::select! {
        done = work => done,
        () = progress => unreachable!("progress has no end"),
    }
}
