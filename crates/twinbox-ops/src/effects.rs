//! Side effects: what became of them, and what a person decides about them.
mod acts;
mod body;
mod filter;
mod item;
mod list;
mod problems;

pub use acts::{Change, Resolution};
pub use body::EffectBody;
pub use filter::EffectFilter;
pub use item::{EffectDetails, EffectInfo};
pub use list::{EFFECTS_OF_SOURCE_MAX, EffectPage, SCANNED_MAX};
pub use problems::{EffectProblems, PROBLEMS_MAX};
pub use twinbox_sql::EffectId;
