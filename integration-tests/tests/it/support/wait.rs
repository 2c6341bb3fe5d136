//! Bounded waits.
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use twinbox_core::test_signal;

/// The bound of every wait. It is far longer than any step takes on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(300);

/// Fails the test if the future takes longer than five minutes.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it should not take five minutes")
}

/// Polls until `look` returns a value. Use it for a state without a signal, such as rows of another session.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    in_time(async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Waits until the code passes the test signal `name` once more.
///
/// # Panics
/// The runtime of the test has several threads: signals are counted by thread.
pub(crate) async fn signal(name: &'static str) {
    assert_eq!(Handle::current().runtime_flavor(), RuntimeFlavor::CurrentThread);
    let before = test_signal::passed(name);
    eventually(async || (test_signal::passed(name) > before).then_some(())).await;
}
