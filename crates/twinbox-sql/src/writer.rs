//! The permit to write to a database that has one writer.
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};
use tokio::sync::Semaphore;

/// The permits of this process, by file. SQLite gives its lock to whoever asks at the right moment, so stores
/// of one file with a permit each would starve each other.
static PERMITS: LazyLock<Mutex<HashMap<PathBuf, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// The one permit of all writers to a file. Without a file: a new one.
pub(crate) fn permit(file: Option<PathBuf>) -> Arc<Semaphore> {
    let new = || Arc::new(Semaphore::new(1));
    let Some(file) = file else { return new() };
    let mut permits = PERMITS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(permit) = permits.get(&file).and_then(Weak::upgrade) {
        return permit;
    }
    permits.retain(|_, permit| permit.strong_count() > 0);
    let permit = new();
    permits.insert(file, Arc::downgrade(&permit));
    permit
}
