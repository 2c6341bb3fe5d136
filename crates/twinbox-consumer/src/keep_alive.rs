//! So that a broker does not deliver again what is being worked on.
use twinbox_core::Settle;

/// Runs `work` and tells the source meanwhile that it goes on.
pub(crate) async fn keep_alive<T>(settles: &[&dyn Settle], work: impl Future<Output = T>) -> T {
    let interval = settles.iter().find_map(|settle| settle.progress_interval());
    let Some(interval) = interval else { return work.await };
    let progress = async {
        loop {
            tokio::time::sleep(interval).await;
            let told = futures::future::join_all(settles.iter().map(|settle| settle.progress())).await;
            if let Some(error) = told.into_iter().find_map(Result::err) {
                tracing::debug!(%error, "progress was not confirmed");
            }
        }
    };
    tokio::select! {
        done = work => done,
        () = progress => unreachable!("progress has no end"),
    }
}
