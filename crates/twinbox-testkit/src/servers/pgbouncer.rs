//! A private PgBouncer.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::error::ServerError;
use super::find;
use super::sandbox::{Sandbox, free_port, retry_port};

/// A PgBouncer in transaction mode: several clients share a server connection, one transaction at a time.
///
/// Dropping it stops it and closes its connections.
#[derive(Debug)]
pub struct PgBouncer {
    sandbox: Sandbox,
    port: u16,
}

impl PgBouncer {
    /// Starts a PgBouncer for the server `upstream`, with at most `connections` to each database.
    ///
    /// `upstream` is a libpq connection string without a database, such as
    /// `host=127.0.0.1 port=5432 user=postgres`.
    ///
    /// # Errors
    ///
    /// No PgBouncer is found, see [`find::pgbouncer`], or it does not start.
    pub fn start(upstream: &str, connections: u32) -> Result<Self, ServerError> {
        let binary = find::pgbouncer()?;
        let sandbox = Sandbox::new(&std::env::temp_dir(), "pgbouncer", "KILL")?;
        let (config, log) = (sandbox.dir().join("pgbouncer.ini"), sandbox.dir().join("log"));
        let mut server = Self { sandbox, port: 0 };
        retry_port(|| {
            server.port = free_port()?;
            // `user` is for a start by root: PgBouncer refuses to run as root.
            let text = format!(
                "[databases]\n* = {upstream}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
                 unix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
                 default_pool_size = {connections}\n\
                 max_client_conn = 1000\nignore_startup_parameters = extra_float_digits\nuser = nobody\n",
                server.port
            );
            fs::write(&config, text)
                .map_err(|source| ServerError::io("cannot configure PgBouncer", source))?;
            let mut command = Command::new(&binary);
            // A PgBouncer in the cache has its libraries beside it.
            command.env("LD_LIBRARY_PATH", binary.parent().unwrap_or(Path::new("/"))).arg(&config);
            let running = |_| fs::read_to_string(&log).ok()?.contains("process up").then_some(());
            server.sandbox.launch(command, running)
        })?;
        Ok(server)
    }

    /// Returns the TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}
