//! What guards a vendor from too many calls: a circuit breaker for each operation, a rate gate, and a budget
//! for retries.
mod breaker;
mod guard;

pub(crate) use guard::{Guard, gate};
