//! Places at which a test makes the process die or freeze, compiled in by the feature `crash-points`.

/// The process kills itself here (SIGKILL), without unwinding or flushing anything, when the environment
/// variable `TWINBOX_CRASH_AT` is `name` or `name:n`, the n-th time that this place is passed. With
/// `TWINBOX_FREEZE_AT` it stops (SIGSTOP) until somebody lets it go on.
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

    struct Armed {
        name: String,
        nth: u64,
        signal: &'static str,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let [crash, freeze] = ["TWINBOX_CRASH_AT", "TWINBOX_FREEZE_AT"].map(|name| std::env::var(name).ok());
        let (at, signal) = crash.map(|at| (at, "-KILL")).or(freeze.map(|at| (at, "-STOP")))?;
        let counted = at.rsplit_once(':').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        let (name, nth) = counted.unwrap_or((at, 1));
        Some(Armed { name, nth, signal })
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn pass(name: &str) {
        if let Some(armed) = ARMED.as_ref().filter(|armed| armed.name == name)
            && PASSED.fetch_add(1, SeqCst) + 1 == armed.nth
        {
            let me = std::process::id().to_string();
            let _ = std::process::Command::new("kill").args([armed.signal, &me]).status();
            if armed.signal == "-KILL" {
                std::process::abort();
            }
        }
    }
}
