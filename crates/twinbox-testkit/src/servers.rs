//! Real servers for tests: each one private, on its own port of 127.0.0.1, gone when the test ends.
//!
//! Everything here is synchronous and needs only the standard library and a POSIX `sh`, so a test harness, a
//! build helper and an async test can all use it. Unix only.
//!
//! ```no_run
//! use twinbox_testkit::servers::{NatsServer, PostgresServer};
//!
//! let mut postgres = PostgresServer::start()?;
//! let mut nats = NatsServer::start()?;
//! println!("{} {}", postgres.url(), nats.url());
//! nats.kill()?; // what a crash does
//! nats.restart()?; // same port, same stored streams
//! postgres.stop_immediate()?;
//! postgres.start_again()?;
//! # Ok::<(), twinbox_testkit::servers::ServerError>(())
//! ```
//!
//! # What is left behind
//!
//! Nothing. Dropping a server stops it and deletes its folder. Beside each server stands a guard process that
//! does the same when this process ends without dropping it: `SIGKILL`, Ctrl-C, a server kept in a `static`.
//!
//! # Which binaries run
//!
//! See [`find`] for where they are looked for and which environment variables name them.

use std::{fmt, io};

mod disk;
pub mod find;
mod moto;
mod nats;
mod pgbouncer;
mod postgres;
mod sandbox;

pub use disk::Disk;
pub use moto::MotoServer;
pub use nats::{NatsOptions, NatsServer};
pub use pgbouncer::PgBouncer;
pub use postgres::{PostgresOptions, PostgresServer};
pub use sandbox::Detached;

/// A server could not be found, started, stopped or cleaned up after.
///
/// The text says what was being done and what to do about it, and ends with the server's log, if any.
#[derive(Debug)]
pub struct ServerError {
    message: String,
    source: Option<io::Error>,
    port_taken: bool,
}

impl ServerError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None, port_taken: false }
    }

    fn io(message: impl Into<String>, source: io::Error) -> Self {
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

#[cfg(test)]
mod tests;
