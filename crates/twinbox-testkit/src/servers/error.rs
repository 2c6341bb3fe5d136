//! The error of every server.

use std::{fmt, io};

/// The error of finding, starting, stopping or cleaning up a server.
///
/// Its text says what was being done and names what to change. It ends with the log of the server, if there
/// is one.
#[derive(Debug)]
pub struct ServerError {
    pub(super) message: String,
    pub(super) source: Option<io::Error>,
    /// Another program has taken the port of the server.
    pub(super) port_taken: bool,
}

impl ServerError {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None, port_taken: false }
    }

    pub(crate) fn io(message: impl Into<String>, source: io::Error) -> Self {
        Self { message: message.into(), source: Some(source), port_taken: false }
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
