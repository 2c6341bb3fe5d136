use super::*;
use metrics::{HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit, with_local_recorder};
use std::{collections::BTreeMap, time::Duration};

/// Recorded numbers by name and outcome. Of a histogram: how many values.
#[derive(Default)]
struct Recorded(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

struct ValueCount(Arc<AtomicU64>);

impl HistogramFn for ValueCount {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Recorded {
    fn number(&self, key: &Key) -> Arc<AtomicU64> {
        assert!(key.labels().any(|label| (label.key(), label.value()) == ("consumer", "billing")), "{key}");
        let outcome = key.labels().find(|label| label.key() == "outcome");
        let name = outcome.map_or(key.name().to_owned(), |label| format!("{} {}", key.name(), label.value()));
        self.0.lock().unwrap().entry(name).or_default().clone()
    }

    fn get(&self, name: &str) -> u64 {
        self.0.lock().unwrap()[name].load(Relaxed)
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(ValueCount(self.number(key))))
    }
}

#[test]
fn outcomes_are_counted_and_recorded() {
    let (recorded, status) = (Recorded::default(), Status::default());
    assert!(!status.is_ready());
    let stats = with_local_recorder(&recorded, || status.add("billing"));
    assert_eq!(status.consumers()[0].state, ConsumerState::Waiting);
    let failed = |counted| DeliveryOutcome::Retried { delay: Duration::ZERO, counted, error: String::new() };
    let dead = DeliveryOutcome::DeadLettered { error: String::new() };
    for outcome in [
        DeliveryOutcome::Handled,
        DeliveryOutcome::Handled,
        DeliveryOutcome::Handled,
        DeliveryOutcome::Duplicate,
        failed(true),
        failed(false),
        DeliveryOutcome::Redacted,
        dead,
    ] {
        let timer = stats.begin_delivery();
        assert_eq!(
            (status.consumers()[0].in_flight, status.is_ready()),
            (1, stats.handled.load(Relaxed) > 0)
        );
        timer.end(&outcome);
        stats.count(&outcome);
    }
    stats.count_overtaken(true);
    stats.count_overtaken(false);
    stats.count_failed_batch("no".to_owned());
    stats.set_lag(3, Some(40));
    stats.set_lag(4, Some(2));
    stats.set_lag(3, None);
    let expected = ConsumerStatus {
        consumer: "billing".to_owned(),
        state: ConsumerState::Consuming,
        in_flight: 0,
        handled: 3,
        duplicates: 1,
        failed: 1,
        dead_letters: 1,
        overtaken: 1,
        failed_batches: 1,
        batch_error: Some("no".to_owned()),
        lag: Some(2),
    };
    assert_eq!(status.consumers(), [expected]);
    stats.count(&DeliveryOutcome::Unavailable);
    assert_eq!((status.consumers()[0].state, status.is_ready()), (ConsumerState::DatabaseAway, false));

    for (name, number) in [
        ("twinbox_consumer_deliveries_total handled", 3),
        ("twinbox_consumer_deliveries_total retried_uncounted", 1),
        ("twinbox_consumer_deliveries_total unavailable", 1),
        ("twinbox_consumer_process_seconds handled", 3),
        ("twinbox_consumer_process_seconds dead_lettered", 1),
        ("twinbox_consumer_process_seconds unavailable", 0),
        ("twinbox_consumer_duplicates_total", 1),
        ("twinbox_consumer_failed_attempts_total", 1),
        ("twinbox_consumer_dead_letters_total", 1),
    ] {
        assert_eq!(recorded.get(name), number, "{name}");
    }
    let gauge = |name| f64::from_bits(recorded.get(name));
    assert!(gauge("twinbox_consumer_in_flight_deliveries").abs() < 1e-9);
    assert!((gauge("twinbox_consumer_lag_messages") - 2.0).abs() < 1e-9);
}
