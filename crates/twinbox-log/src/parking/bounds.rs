//! The bounds of parking.
use std::time::Duration;

/// The most waiting messages of one destination or partition, give or take those in flight. At that many no
/// more are read.
pub const PARKED_MAX: usize = 10_000;
/// The most bytes of the waiting messages of a partition.
pub const PARKED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How often rows are looked at that an operator may have changed.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The same while no message waits.
pub(super) const IDLE_LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How soon the next look for due messages follows, and how long rows of settled messages are collected
/// before they are deleted together.
pub(super) const DUE_INTERVAL: Duration = Duration::from_millis(100);
/// The most messages that one look takes up.
pub(super) const DUE_MAX: usize = 500;
/// The most keys of which one look takes up more than the first message.
pub(super) const RUNS_MAX: usize = 16;
/// The most messages that are taken up and not settled.
pub(super) const TAKEN_MAX: usize = 1000;
/// The most rows that are written together. Few, because others wait for the owner's row meanwhile.
pub(super) const WRITTEN_MAX: usize = 500;
/// The most bytes of messages that are written together.
pub(super) const WRITTEN_BYTES_MAX: usize = 8 * 1024 * 1024;
