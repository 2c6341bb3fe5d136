//! Crash points: places in the code where a test can kill or stop the process.

/// Kills or freezes the process at a named crash point if the environment asks for it.
///
/// Without the feature `crash-points` this does nothing. With it, the environment variable `TWINBOX_CRASH_AT`
/// is `name` or `name:n`: on the n-th call with that name the process kills itself (SIGKILL) and neither
/// unwinds nor flushes anything. `TWINBOX_FREEZE_AT` stops the process (SIGSTOP) until it gets a SIGCONT.
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

    /// The crash point that the environment names.
    struct Armed {
        name: String,
        nth: u64,
        /// Whether the process stops instead of dying.
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

    /// Stops the process and returns when it has stopped, or after a second: its threads do not stop at once.
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
