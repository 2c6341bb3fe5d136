//! The turn to write to a database that has one writer.
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};
use tokio::sync::Semaphore;

/// Of this process, by file. SQLite itself hands its lock to whoever asks at the right moment, so that stores of one
/// file that each had a permit of their own would starve each other.
static WRITERS: LazyLock<Mutex<HashMap<PathBuf, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// The one permit of all that write to a file. Without a file: a new one.
pub(crate) fn of(file: Option<PathBuf>) -> Arc<Semaphore> {
    let new = || Arc::new(Semaphore::new(1));
    let Some(file) = file else { return new() };
    let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(writer) = writers.get(&file).and_then(Weak::upgrade) {
        return writer;
    }
    writers.retain(|_, writer| writer.strong_count() > 0);
    let writer = new();
    writers.insert(file, Arc::downgrade(&writer));
    writer
}
