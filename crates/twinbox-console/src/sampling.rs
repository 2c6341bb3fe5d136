//! Looking every few seconds, for the charts.
use crate::app::App;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use twinbox_ops::Dialect;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(5);

/// Looks until `stop` is cancelled. A look that fails leaves a gap.
pub(crate) async fn run<DB: Dialect>(app: Arc<App<DB>>, stop: CancellationToken) {
    loop {
        if let Ok(readers) = app.ops.readers().await {
            app.samples.add(Instant::now(), &readers);
        }
        if stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            return;
        }
    }
}
