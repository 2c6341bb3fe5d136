//! The values of the statement that reads a page of the log.

/// The values that the statement of a page binds.
#[derive(Debug, Clone, Copy)]
pub struct PageBinds {
    /// The position to begin after.
    pub after: i64,
    /// The first tick of the window.
    pub p: i64,
    /// The second tick of the window.
    pub w: i64,
    /// No newcomer has this position or a lower one.
    pub floor: i64,
    /// No newcomer has a higher position.
    pub ceiling: i64,
    /// The most messages.
    pub limit: i64,
    /// The server run in which the ticks were read.
    pub server_run: i64,
}
