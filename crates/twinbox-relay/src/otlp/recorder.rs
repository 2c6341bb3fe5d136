//! Gives the metrics of the crate `metrics` to OpenTelemetry.
//!
//! The crates that do this give the description of a metric to its first series only, after which the SDK
//! takes the second series for another metric of the same name.
use crate::metrics::SECONDS_BUCKETS;
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use opentelemetry::{KeyValue, metrics::Meter};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

pub(crate) struct OtlpRecorder {
    meter: Meter,
    descriptions: Mutex<HashMap<String, Description>>,
}

#[derive(Clone, Default)]
struct Description {
    unit: &'static str,
    text: String,
}

impl OtlpRecorder {
    pub(super) fn new(meter: Meter) -> Self {
        Self { meter, descriptions: Mutex::default() }
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>, text: &SharedString) {
        let unit = unit.map_or("", |unit| unit.as_canonical_label());
        let mut descriptions = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        descriptions.insert(name.as_str().to_owned(), Description { unit, text: text.to_string() });
    }

    fn description(&self, key: &Key) -> Description {
        let descriptions = self.descriptions.lock().unwrap_or_else(PoisonError::into_inner);
        descriptions.get(key.name()).cloned().unwrap_or_default()
    }
}

impl Recorder for OtlpRecorder {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe(&name, unit, &text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let Description { unit, text } = self.description(key);
        let counter = self.meter.u64_counter(key.name().to_owned()).with_unit(unit).with_description(text);
        Counter::from_arc(Arc::new(Series {
            of: counter.build(),
            labels: labels(key),
            value: AtomicU64::new(0),
        }))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let Description { unit, text } = self.description(key);
        let gauge = self.meter.f64_gauge(key.name().to_owned()).with_unit(unit).with_description(text);
        Gauge::from_arc(Arc::new(Series { of: gauge.build(), labels: labels(key), value: AtomicU64::new(0) }))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let Description { unit, text } = self.description(key);
        let histogram =
            self.meter.f64_histogram(key.name().to_owned()).with_unit(unit).with_description(text);
        let histogram = histogram.with_boundaries(SECONDS_BUCKETS.to_vec()).build();
        Histogram::from_arc(Arc::new(Series { of: histogram, labels: labels(key), value: AtomicU64::new(0) }))
    }
}

fn labels(key: &Key) -> Vec<KeyValue> {
    key.labels().map(|label| KeyValue::new(label.key().to_owned(), label.value().to_owned())).collect()
}

/// A metric with one set of labels.
struct Series<T> {
    of: T,
    labels: Vec<KeyValue>,
    /// The last value of a counter that is set, or the bits of a gauge's.
    value: AtomicU64,
}

impl CounterFn for Series<opentelemetry::metrics::Counter<u64>> {
    fn increment(&self, value: u64) {
        self.of.add(value, &self.labels);
    }

    fn absolute(&self, value: u64) {
        let before = self.value.fetch_max(value, Relaxed);
        self.of.add(value.saturating_sub(before), &self.labels);
    }
}

impl GaugeFn for Series<opentelemetry::metrics::Gauge<f64>> {
    fn increment(&self, by: f64) {
        let add = |bits| Some((f64::from_bits(bits) + by).to_bits());
        let before = self.value.fetch_update(Relaxed, Relaxed, add).unwrap_or_default();
        self.of.record(f64::from_bits(before) + by, &self.labels);
    }

    fn decrement(&self, by: f64) {
        self.increment(-by);
    }

    fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Relaxed);
        self.of.record(value, &self.labels);
    }
}

impl HistogramFn for Series<opentelemetry::metrics::Histogram<f64>> {
    fn record(&self, value: f64) {
        self.of.record(value, &self.labels);
    }
}
