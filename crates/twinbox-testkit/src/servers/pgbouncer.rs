//! A private PgBouncer in front of a Postgres.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::sandbox::{Sandbox, free_port, retry_port};
use super::{ServerError, find};

/// A PgBouncer in transaction mode: one server connection serves many clients, a transaction at a time.
///
/// Dropping it stops it, and its connections with it.
#[derive(Debug)]
pub struct PgBouncer {
    sandbox: Sandbox,
    port: u16,
}

impl PgBouncer {
    /// Starts one in front of `upstream`, a libpq connection string without a database, such as
    /// `host=127.0.0.1 port=5432 user=postgres`, with at most `connections` to each database.
    ///
    /// # Errors
    ///
    /// When none is found, see [`find::pgbouncer`], or it does not start.
    pub fn start(upstream: &str, connections: u32) -> Result<Self, ServerError> {
        let binary = find::pgbouncer()?;
        let sandbox = Sandbox::new(&std::env::temp_dir(), "pgbouncer", "KILL")?;
        let (config, log) = (sandbox.dir().join("pgbouncer.ini"), sandbox.dir().join("log"));
        let mut server = Self { sandbox, port: 0 };
        retry_port(|| {
            server.port = free_port()?;
            // `user` is whom it becomes when root starts it: it refuses to stay root.
            let text = format!(
                "[databases]\n* = {upstream}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\n\
                 unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = {connections}\n\
                 max_client_conn = 1000\nignore_startup_parameters = extra_float_digits\nuser = nobody\n",
                server.port
            );
            fs::write(&config, text)
                .map_err(|source| ServerError::io("cannot configure PgBouncer", source))?;
            let mut command = Command::new(&binary);
            // Where an unpacked one has its libraries.
            command.env("LD_LIBRARY_PATH", binary.parent().unwrap_or(Path::new("/"))).arg(&config);
            let running = |_| fs::read_to_string(&log).ok()?.contains("process up").then_some(());
            server.sandbox.launch(command, running)
        })?;
        Ok(server)
    }

    /// The TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}
