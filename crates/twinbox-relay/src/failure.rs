//! The error type of the program's commands.

/// Any error that ends a command of the program.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
