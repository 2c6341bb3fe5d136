//! The error of every command.

use std::error::Error;

pub(crate) type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;
