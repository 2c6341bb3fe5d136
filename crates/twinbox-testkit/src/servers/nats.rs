//! A private NATS server.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::error::ServerError;
use super::find::{self, Version};
use super::sandbox::{Detached, Sandbox, free_port, retry_port};

/// Time-out for the greeting of the server after it has accepted a connection.
const GREETING_MAX: Duration = Duration::from_secs(1);
const GREETING_BYTES_MAX: u64 = 64 * 1024;

/// Options of a [`NatsServer`].
#[derive(Debug, Clone, Default)]
pub struct NatsOptions {
    binary: Option<PathBuf>,
    lines: Vec<String>,
    jetstream: Vec<String>,
    store: Option<PathBuf>,
}

impl NatsOptions {
    /// Sets the program to run, instead of [`find::nats_server`].
    pub fn binary(mut self, path: impl Into<PathBuf>) -> Self {
        self.binary = Some(path.into());
        self
    }

    /// Adds a line to the configuration of the server, as in `.line("max_payload: 8MB")`.
    ///
    /// The start fails if the server does not know the line.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Adds a line to the block `jetstream`, as in `.jetstream_line("sync_interval: always")`.
    ///
    /// The start fails if the server does not know the line.
    pub fn jetstream_line(mut self, line: impl Into<String>) -> Self {
        self.jetstream.push(line.into());
        self
    }

    /// Sets the folder of the streams. It is not deleted with the server.
    pub fn store(mut self, folder: impl Into<PathBuf>) -> Self {
        self.store = Some(folder.into());
        self
    }
}

/// A NATS server with JetStream, its own port and its own empty store.
///
/// Dropping it stops it and deletes the store, unless [`NatsOptions::store`] set a folder.
#[derive(Debug)]
pub struct NatsServer {
    sandbox: Sandbox,
    options: NatsOptions,
    binary: PathBuf,
    port: u16,
    version: Version,
}

impl NatsServer {
    /// Starts the newest server that is found.
    ///
    /// # Errors
    ///
    /// No server is found, or it does not start. No file is left behind.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(NatsOptions::default())
    }

    /// Starts a server with options.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: NatsOptions) -> Result<Self, ServerError> {
        let binary = options.binary.clone().map_or_else(find::nats_server, Ok)?;
        let sandbox = Sandbox::new(&std::env::temp_dir(), "nats", "KILL")?;
        let mut server = Self { sandbox, options, binary, port: 0, version: Version(0, 0, 0) };
        retry_port(|| {
            server.port = free_port()?;
            server.launch()
        })?;
        Ok(server)
    }

    /// Returns the URL: `nats://127.0.0.1:PORT`. It does not change with a restart.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the name of the server.
    pub fn name(&self) -> String {
        format!("twinbox-{}-{}", self.port, std::process::id())
    }

    /// Returns the TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the private folder of the server. Its file `log` has the output of the server.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// Returns the version from the greeting of the server.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Kills the process with `SIGKILL`, as a crash does. Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// The signal cannot be sent.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        self.sandbox.stop("KILL")
    }

    /// Kills the process if it runs, and starts it again on the same port and the same store.
    ///
    /// # Errors
    ///
    /// It does not start, for example because another program keeps the port for two seconds.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.kill()?;
        retry_port(|| self.launch())
    }

    /// Kills the process if it runs, and deletes all streams and consumers, as the loss of a disk does.
    ///
    /// [`restart`](Self::restart) then starts an empty server.
    ///
    /// # Errors
    ///
    /// The store cannot be deleted.
    pub fn wipe_store(&mut self) -> Result<(), ServerError> {
        self.kill()?;
        fs::remove_dir_all(self.store())
            .map_err(|source| ServerError::io("cannot delete the NATS store", source))
    }

    /// Freezes the process with `SIGSTOP`. Connections stay open, the kernel accepts new ones, and no
    /// response comes.
    ///
    /// # Errors
    ///
    /// The server does not run.
    pub fn pause(&self) -> Result<(), ServerError> {
        self.sandbox.pause()
    }

    /// Continues a paused process.
    ///
    /// # Errors
    ///
    /// The server does not run.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.sandbox.signal("CONT")
    }

    /// Makes the server send its clients away, hand over its leaderships, and end, as an operator does before
    /// an upgrade.
    ///
    /// # Errors
    ///
    /// The server does not run.
    pub fn lame_duck(&self) -> Result<(), ServerError> {
        self.sandbox.signal("USR2")
    }

    /// Leaves the server running after this process has ended.
    ///
    /// # Errors
    ///
    /// The server does not run. Its folder is deleted.
    pub fn leave_running(self) -> Result<Detached, ServerError> {
        self.sandbox.leave_running()
    }

    fn store(&self) -> PathBuf {
        self.options.store.clone().unwrap_or_else(|| self.sandbox.dir().join("store"))
    }

    fn launch(&mut self) -> Result<(), ServerError> {
        let port = self.port;
        let name = self.name();
        let config = self.sandbox.dir().join("nats.conf");
        let text = format!(
            "listen: \"127.0.0.1:{port}\"\nserver_name: \"{name}\"\n{}\n\
             jetstream {{\nstore_dir: {:?}\n{}\n}}\n",
            self.options.lines.join("\n"),
            self.store(),
            self.options.jetstream.join("\n"),
        );
        fs::write(&config, text).map_err(|source| ServerError::io("cannot configure NATS", source))?;
        let mut command = Command::new(&self.binary);
        command.arg("-c").arg(config);
        self.version = self.sandbox.launch(command, |_| {
            // The name distinguishes this server from another one that took the port a moment earlier.
            let greeting = greeting(port).filter(|greeting| greeting.contains(&name))?;
            Version::parse(greeting.split_once("\"version\":")?.1)
        })?;
        Ok(())
    }
}

fn greeting(port: u16) -> Option<String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(GREETING_MAX)).ok()?;
    let mut line = String::new();
    BufReader::new(stream.take(GREETING_BYTES_MAX)).read_line(&mut line).ok()?;
    line.starts_with("INFO ").then_some(line)
}
