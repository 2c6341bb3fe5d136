//! Log lines of a test.
use serde_json::Value;
use std::{
    io,
    sync::{Arc, LazyLock, Mutex},
};
use tracing::{
    Dispatch, Subscriber,
    subscriber::{DefaultGuard, NoSubscriber},
};

/// Records the log lines of this thread, on which all tasks of the test run.
///
/// It sets a second subscriber. With only one, `tracing` caches for all threads whether a line is recorded,
/// as the first thread that logs it decides, and other tests have no subscriber.
pub(crate) fn record(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::default()));
    LazyLock::force(&ANOTHER);
    tracing::subscriber::set_default(subscriber)
}

/// Log lines as JSON.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    pub(crate) fn record() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
        (lines, record(subscriber))
    }

    /// Returns the lines whose message contains `words`.
    pub(crate) fn saying(&self, words: &str) -> Vec<Value> {
        let bytes = self.0.lock().unwrap();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        lines.filter(|line| line["fields"]["message"].as_str().unwrap().contains(words)).collect()
    }
}
