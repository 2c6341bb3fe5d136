//! Bounded waits.
use std::time::Duration;
use tokio::runtime::{Handle, RuntimeFlavor};
use twinbox_core::test_signal;

/// The bound of every wait. It is far longer than any step takes on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(300);

/// The bound of a wait. It is far longer than any step takes on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Why a test lets time pass, where nothing could be waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Pause {
    /// Between two looks at a state without a signal, such as that of another process.
    Look,
    /// Between two acts of a load, or as long as the load lasts.
    Pace,
    /// The time that the work of a handler takes.
    Work,
    /// How long a fault lasts.
    Outage,
    /// Only time makes something old.
    Age,
}

/// Lets time pass. No result of a test may depend on how much passes in fact: on a busy machine it is far
/// more.
pub(crate) async fn pause(_why: Pause, time: Duration) {
    tokio::time::sleep(time).await;
}

/// Fails the test if the future takes longer than five minutes.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("it should not take five minutes")
}

/// The pauses between looks become longer, so that tests which wait leave the processor to others.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_millis(40);

/// Polls until `look` returns a value. Use it for a state without a signal, such as rows of another session.
pub(crate) async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    in_time(async {
        let mut between = FIRST_PAUSE;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            pause(Pause::Look, between).await;
            between = between.mul_f64(1.3).min(LAST_PAUSE);
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
