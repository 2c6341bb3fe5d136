//! The statements that read the log, for tests that look at their plans.
use crate::{Dialect, Store};

/// The next messages of a window. Binds: after, p, w, floor, ceiling, limit.
pub fn page<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().log_page.as_str().to_owned()
}

/// The newest tick, made if there is something beyond the last. No binds.
pub fn newest<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().log_newest.as_str().to_owned()
}

/// Between which positions the newcomers of a window lie. Binds: p, w.
pub fn bounds<DB: Dialect>(store: &Store<DB>) -> String {
    store.statements().log_bounds.as_str().to_owned()
}
