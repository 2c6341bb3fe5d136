//! The recorder of metrics.
use crate::{
    failure::Failure,
    metrics::{self, LAG, SECONDS_BUCKETS},
    otlp::Otlp,
};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::layers::FanoutBuilder;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use twinbox_core::task_name::TaskName;

/// How often the recorder moves new samples into its buckets. Without that they pile up while nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Makes recorders for Prometheus.
pub(crate) fn prometheus() -> PrometheusBuilder {
    PrometheusBuilder::new().with_recommended_naming(true)
}

/// Installs the recorder of metrics. Call it before the relays start: they record from then on.
///
/// # Errors
/// The process has a recorder.
pub(crate) fn install(otlp: Option<&Otlp>, stop: CancellationToken) -> Result<PrometheusHandle, Failure> {
    let lag = Matcher::Full(LAG.name.to_owned());
    let prometheus = prometheus().set_buckets_for_metric(lag, &SECONDS_BUCKETS)?.build_recorder();
    let recorded = prometheus.handle();
    match otlp.and_then(Otlp::recorder) {
        None => ::metrics::set_global_recorder(prometheus)?,
        Some(otlp) => {
            let both = FanoutBuilder::default().add_recorder(prometheus).add_recorder(otlp);
            ::metrics::set_global_recorder(both.build()).map_err(|error| error.to_string())?;
        }
    }
    metrics::describe();
    let kept = recorded.clone();
    tokio::spawn(TaskName::MetricsUpkeep.of(stop.run_until_cancelled_owned(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            kept.run_upkeep();
        }
    })));
    Ok(recorded)
}
