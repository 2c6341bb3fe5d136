//! Rows of the application's own that change once, in order, or are made once.
mod column;
mod insert;
mod state;
mod version;

pub use insert::{RowInsert, insert_or_existing};
pub use state::{StateColumn, Transition};
pub use version::{VersionColumn, VersionUpdate};
