//! Places at which a test makes the process die, compiled in by the feature `crash-points`.

/// The process kills itself here (SIGKILL), without unwinding or flushing anything, when the environment
/// variable `TWINBOX_CRASH_AT` is `name` or `name:n`, the n-th time that this place is passed.
#[inline]
pub fn point(name: &str) {
    #[cfg(feature = "crash-points")]
    armed::pass(name);
    let _ = name;
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::SeqCst},
    };

    static ARMED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let at = std::env::var("TWINBOX_CRASH_AT").ok()?;
        Some(match at.rsplit_once(':').and_then(|(name, n)| Some((name, n.parse().ok()?))) {
            Some((name, n)) => (name.to_owned(), n),
            None => (at, 1),
        })
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn pass(name: &str) {
        if let Some((_, n)) = ARMED.as_ref().filter(|(armed, _)| armed == name)
            && PASSED.fetch_add(1, SeqCst) + 1 == *n
        {
            let me = std::process::id().to_string();
            let _ = std::process::Command::new("kill").args(["-KILL", &me]).status();
            std::process::abort();
        }
    }
}
