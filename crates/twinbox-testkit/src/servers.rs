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

use std::fs::OpenOptions;
use std::io::Write as _;
use std::{env, fmt, io};

pub mod find;
mod moto;
mod nats;
mod postgres;
mod sandbox;

pub use moto::MotoServer;
pub use nats::{NatsOptions, NatsServer};
pub use postgres::{PostgresOptions, PostgresServer};
pub use sandbox::Detached;

/// Says why a test cannot run on this machine, so that `cargo xtask test` counts it as skipped.
///
/// # Panics
///
/// When that cannot be written down: the test would count as passed.
pub fn skip(reason: impl fmt::Display) {
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {reason}");
    if let Some(path) = env::var_os("TWINBOX_SKIPPED") {
        let file = OpenOptions::new().append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{reason}\n").as_bytes()));
        written.expect("what TWINBOX_SKIPPED names can be written to");
    }
}

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
