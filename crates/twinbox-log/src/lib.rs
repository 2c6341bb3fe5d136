//! The outbox read as a log, through snapshot windows.
//!
//! Values of an identity column do not follow the order of commits, so a reader that remembers the largest
//! one loses messages that commit late. The log is therefore cut by *ticks*, as in PgQ: a tick is a committed
//! row with a snapshot. Between two ticks P and W lies a *window*: the messages that became visible between
//! those snapshots, read in the order of their positions. A cursor is (P, W, position). SQLite has one
//! writer: positions follow the order of commits, and a tick is a position.
//!
//! | item | is |
//! |---|---|
//! | [`Reader`] | the engine: a relay sends its messages to a destination, a consumer to a handler |
//! | [`Shares`], [`Standby`] | the destinations spread evenly over the processes that run them |
//! | [`LogTransport`] | the log as a consumer's transport, without a broker |
//! | [`parking`] | the order of keys and the parked messages, for relays and ordered consumers |
//! | [`Keeper`] | deletes old rows once a day, in one process |
//! | [`run_bulk_actions`] | the acts of operators on many dead letters |
//! | [`Log`] | moving due messages to the log, purging it, and executing replays |

mod bulk_actions;
mod cursor;
mod cursor_error;
mod dead_letter_event;
mod delayed;
mod driver;
mod keeper;
mod kept_rows;
mod log;
mod look;
mod options;
mod owned_cursor;
mod page;
pub mod parking;
#[doc(hidden)]
pub mod plans;
mod reader;
mod reader_check;
mod reader_writes;
mod reading;
mod replay_reading;
mod replays;
mod retention;
mod shares;
mod standby;
mod task;
mod transport;
mod window;
mod write_task;

pub use bulk_actions::run_bulk_actions;
pub use dead_letter_event::DEAD_LETTER;
pub use delayed::MoveReport;
pub use keeper::{KEEPER, Keeper, KeeperReport};
pub use log::Log;
pub use options::{
    BUFFERED_BYTES_MAX, BUFFERED_MAX, CURSOR_INTERVAL, LEASE_MIN, PAGE_BYTES, PAGE_MAX, POLL_BUSY, POLL_IDLE,
    READ_AHEAD_MAX, ReaderOptions, StartPosition, THIN_INTERVAL,
};
pub use reader::Reader;
pub use replays::REPLAY_LOOK_INTERVAL;
pub use retention::{OnMaxLag, PurgeReport, Retention};
pub use shares::Shares;
pub use standby::Standby;
pub use transport::LogTransport;
pub use twinbox_core::lanes::{Budget, Entry, Ticket};
