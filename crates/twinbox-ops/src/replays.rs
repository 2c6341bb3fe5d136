//! Planning, making and controlling replays.
mod control;
mod create;
mod plan;

pub use create::NewReplay;
pub use plan::{PurgeMark, ReplayPlan, SampleMessage, TypeCount};
pub use twinbox_sql::{
    IDS_MAX, Selection, TYPES_MAX,
    replay::{Replay, ReplayState},
};
