//! A private moto: EventBridge and SQS as a third party implements them.

use std::fs;
use std::process::Command;

use super::error::ServerError;
use super::find;
use super::sandbox::{Sandbox, free_port, retry_port};

const LAUNCHER: &str = include_str!("moto.py");

/// A moto server with its own port and no data. It accepts all credentials.
///
/// Dropping it stops it. Its queues do not report the number of their messages: receive the messages instead.
#[derive(Debug)]
pub struct MotoServer {
    sandbox: Sandbox,
    port: u16,
}

impl MotoServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// There is no Python with moto, see [`find::python`], or it does not start.
    pub fn start() -> Result<Self, ServerError> {
        let python = find::python()?;
        let sandbox = Sandbox::new(&std::env::temp_dir(), "moto", "KILL")?;
        let launcher = sandbox.dir().join("moto_server.py");
        fs::write(&launcher, LAUNCHER)
            .map_err(|source| ServerError::io("cannot write the launcher of moto", source))?;
        let mut server = Self { sandbox, port: 0 };
        retry_port(|| {
            server.port = free_port()?;
            let mut command = Command::new(&python);
            command.arg(&launcher).args(["-H", "127.0.0.1", "-p", &server.port.to_string()]);
            let log = server.sandbox.dir().join("log");
            // A connection to the port could reach another program that took it a moment earlier.
            let running = |_| fs::read_to_string(&log).ok()?.contains("Running on").then_some(());
            server.sandbox.launch(command, running)
        })?;
        Ok(server)
    }

    /// Returns the URL of its services: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
