//! How far a reader has settled the log.

/// The progress of one reader: two ticks and a position, up to which every message is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    /// The tick up to which every message is settled.
    pub p: i64,
    /// The tick that ends the window being read.
    pub w: i64,
    /// The position in the window. 0: nothing of it is settled.
    pub position: i64,
}
