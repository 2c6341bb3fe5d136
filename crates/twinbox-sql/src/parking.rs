//! The order of keys between a log and those who take its messages, and what is parked so that other keys go on.
//!
//! One engine for the relay and for consumers that keep the order of a broker's log. [`Queue`] holds the
//! [lanes](twinbox_core::lanes) and writes to one of two tables: a destination's parked rows name messages of the log, a
//! consumer's hold them. What is parked is committed, behind the fence of the owner, before anything later of its key is
//! handed out: an owner that has lost its lease can repeat first deliveries and never reverse them.
mod owner;
mod queue;
pub(crate) mod statements;
mod write;

#[doc(hidden)]
pub use owner::CursorOwner;
pub use owner::Owner;
pub use queue::Queue;

use std::time::Duration;
use twinbox_core::{Message, lanes::Item};

/// Messages of one owner that wait, give or take what is on its way. At that many nothing more is read.
pub const PARKED_MAX: usize = 10_000;
/// Bytes of them where the rows hold the messages.
pub const PARKED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How often rows are looked at that somebody else may have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The same when none wait.
const IDLE_LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How soon after a look the next one is made for what is due, and rows of messages that are done with are deleted while
/// many more are in hand.
const DUE_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that are taken up together.
const DUE_MAX: usize = 500;
/// Keys of which a run is taken up and not the first message alone.
const RUNS_MAX: usize = 16;
/// Messages that are taken up and not done with.
const TAKEN_MAX: usize = 1000;
/// Rows that are written together. Few, because others wait for the owner's row meanwhile.
const WRITTEN_MAX: usize = 500;
/// Bytes of messages that are written together.
const WRITTEN_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What is to become of a message that is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parked {
    /// It is tried again after this long; later messages of its key wait behind it.
    Waiting(Duration),
    /// It is given up; later messages of its key go on.
    Dead,
    /// It is given up; later messages of its key wait until somebody decides.
    DeadHoldingKey,
    /// It is given up; nothing more is handed out until somebody decides.
    Blocking,
}

impl Parked {
    fn state(self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Dead | Self::DeadHoldingKey => "dead",
            Self::Blocking => "blocking",
        }
    }

    fn delay(self) -> Duration {
        if let Self::Waiting(delay) = self { delay } else { Duration::ZERO }
    }
}

/// What a queue holds.
pub trait Parkable: Item + Send + 'static {
    /// The message of it.
    fn message(&self) -> &Message;
    /// The same of a message that was parked.
    fn resumed(message: Box<Message>) -> Self;
}

impl Parkable for Box<Message> {
    fn message(&self) -> &Message {
        self
    }

    fn resumed(message: Box<Message>) -> Self {
        message
    }
}
