//! How much a run looks at, and its bounds.

/// The most findings of one check that a run writes.
pub const FINDINGS_MAX: usize = 1000;
/// Rows that one statement reads.
pub(super) const PAGE: usize = 1000;
/// The random places of a sample.
pub(super) const SEGMENTS: usize = 10;

/// How much of the tables a run looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// About this many rows of each table, and effects, from up to ten random places on.
    Sample(u32),
    /// All rows of each table, and all effects.
    Full,
}
