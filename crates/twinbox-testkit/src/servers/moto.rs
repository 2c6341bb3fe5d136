//! A private moto: EventBridge and SQS as far as somebody else understands them.

use std::fs;
use std::process::Command;

use super::sandbox::{Sandbox, free_port, retry_port};
use super::{ServerError, find};

const LAUNCHER: &str = include_str!("moto.py");

/// A moto of its own, with its own port and nothing in it. Takes any credentials.
///
/// Dropping it stops it. Its queues do not know how many messages they hold: ask for the messages.
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
    /// When there is no Python with moto, see [`find::python`], or it does not start.
    pub fn start() -> Result<Self, ServerError> {
        let python = find::python()?;
        let sandbox = Sandbox::new(&std::env::temp_dir(), "moto", "KILL")?;
        let launcher = sandbox.dir().join("moto_server.py");
        fs::write(&launcher, LAUNCHER).map_err(|source| ServerError::io("cannot write for moto", source))?;
        let mut server = Self { sandbox, port: 0 };
        retry_port(|| {
            server.port = free_port()?;
            let mut command = Command::new(&python);
            command.arg(&launcher).args(["-H", "127.0.0.1", "-p", &server.port.to_string()]);
            let log = server.sandbox.dir().join("log");
            // Asking the port could reach one that took it a moment earlier.
            let running = |_| fs::read_to_string(&log).ok()?.contains("Running on").then_some(());
            server.sandbox.launch(command, running)
        })?;
        Ok(server)
    }

    /// Where its services are: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
