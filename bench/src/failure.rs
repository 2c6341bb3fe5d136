//! The error of every benchmark.

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
