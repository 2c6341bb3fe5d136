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
    use std::{
        process::Command,
        sync::{
            LazyLock,
            atomic::{AtomicU64, Ordering::SeqCst},
        },
    };

    struct Armed {
        name: String,
        nth: u64,
        freezes: bool,
    }

    static ARMED: LazyLock<Option<Armed>> = LazyLock::new(|| {
        let [crash, freeze] = ["TWINBOX_CRASH_AT", "TWINBOX_FREEZE_AT"].map(|name| std::env::var(name).ok());
        let (at, freezes) = crash.map(|at| (at, false)).or(freeze.map(|at| (at, true)))?;
        let counted = at.rsplit_once(':').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
        let (name, nth) = counted.unwrap_or((at, 1));
        Some(Armed { name, nth, freezes })
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    /// Ends when the process has stopped, which each of its threads does in its own time, or after a second.
    const STOP: &str = r#"kill -STOP "$1"
        for _ in 1 2 3 4 5 6 7 8 9 10; do grep -q ') T ' "/proc/$1/stat" && exit; sleep 0.1; done"#;

    pub(super) fn pass(name: &str) {
        if let Some(armed) = ARMED.as_ref().filter(|armed| armed.name == name)
            && PASSED.fetch_add(1, SeqCst) + 1 == armed.nth
        {
            let me = std::process::id().to_string();
            if armed.freezes {
                let _ = Command::new("sh").args(["-c", STOP, "sh", &me]).status();
            } else {
                let _ = Command::new("kill").args(["-KILL", &me]).status();
                std::process::abort();
            }
        }
    }
}
