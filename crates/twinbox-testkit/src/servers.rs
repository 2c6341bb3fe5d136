//! Real servers for tests. Each one is private, has its own port of 127.0.0.1, and ends with the test.
//!
//! The functions are synchronous and need only the standard library and a POSIX `sh`. A test harness, a build
//! helper and an async test can use them. Unix only.
//!
//! ```no_run
//! use twinbox_testkit::servers::{NatsServer, PostgresServer};
//!
//! let mut postgres = PostgresServer::start()?;
//! let mut nats = NatsServer::start()?;
//! println!("{} {}", postgres.url(), nats.url());
//! nats.kill()?; // as a crash does
//! nats.restart()?; // same port, same streams
//! postgres.stop_immediate()?;
//! postgres.start_again()?;
//! # Ok::<(), twinbox_testkit::servers::ServerError>(())
//! ```
//!
//! # Cleaning up
//!
//! Dropping a server stops it and deletes its folder. Each server also has a guard process. The guard does
//! the same when this process ends without dropping the server: by `SIGKILL`, by Ctrl-C, with a server in a
//! `static`.
//!
//! # Binaries
//!
//! [`find`] lists the folders that are searched and the environment variables that name a binary.

mod account;
mod disk;
mod error;
pub mod find;
mod moto;
mod mysql;
mod nats;
mod pgbouncer;
mod postgres;
mod sandbox;

pub use disk::Disk;
pub use error::ServerError;
pub use moto::MotoServer;
pub use mysql::{MySqlOptions, MySqlServer};
pub use nats::{NatsOptions, NatsServer};
pub use pgbouncer::PgBouncer;
pub use postgres::{PostgresOptions, PostgresServer};
pub use sandbox::Detached;
#[cfg(feature = "harness")]
pub(crate) use sandbox::free_port;

#[cfg(test)]
mod tests;
