//! A private Postgres server.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::{self, Account};
use super::error::ServerError;
use super::find;
use super::sandbox::{Detached, Sandbox, free_port, retry_port};

/// Options of a [`PostgresServer`].
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    bin: Option<PathBuf>,
    settings: Vec<(String, String)>,
    files: Vec<(String, String)>,
}

impl PostgresOptions {
    /// Sets the folder of `initdb` and `postgres`, instead of [`find::postgres_bin`].
    pub fn bin(mut self, dir: impl Into<PathBuf>) -> Self {
        self.bin = Some(dir.into());
        self
    }

    /// Sets a setting of the server, as in `.set("max_connections", "400")` or `.set("fsync", "off")`.
    ///
    /// The start fails if the server does not know the setting.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Puts a file into the data directory, which the server alone can read, as in
    /// `.file("server.key", pem)` with `.set("ssl", "on")`.
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }
}

/// A Postgres server with new data, its own port, superuser `postgres` without password, and `fsync` on.
///
/// Dropping it stops it and deletes the data. Root can start it too: the server then runs as another account
/// of the machine, because Postgres refuses to run as root.
#[derive(Debug)]
pub struct PostgresServer {
    sandbox: Sandbox,
    bin: PathBuf,
    account: Option<Account>,
    settings: Vec<(String, String)>,
    port: u16,
}

impl PostgresServer {
    /// Creates the data and starts the server with default options.
    ///
    /// # Errors
    ///
    /// No Postgres is found, or it does not start. No file is left behind.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(PostgresOptions::default())
    }

    /// Creates the data and starts the server with options.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: PostgresOptions) -> Result<Self, ServerError> {
        let bin = options.bin.map_or_else(find::postgres_bin, Ok)?;
        let (sandbox, account) = account::sandbox(None, "postgres", "QUIT", "postgres")?;
        let mut server = Self { sandbox, bin, account, settings: options.settings, port: 0 };
        server.initdb()?;
        for (name, text) in options.files {
            account::write(server.account.as_ref(), &server.data_dir().join(name), &text)?;
        }
        retry_port(|| {
            server.port = free_port()?;
            server.launch()
        })?;
        Ok(server)
    }

    /// Returns the URL: `postgres://postgres@127.0.0.1:PORT/postgres`. It does not change with a restart.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the TCP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the private folder of the server. Its file `log` has the output of the server.
    pub fn dir(&self) -> &Path {
        self.sandbox.dir()
    }

    /// Returns the data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.sandbox.dir().join("data")
    }

    /// Stops the server as a crash does: it writes no checkpoint and cuts connections. The next start
    /// recovers from the log. Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// The signal cannot be sent.
    pub fn stop_immediate(&mut self) -> Result<(), ServerError> {
        self.sandbox.stop("QUIT")
    }

    /// Stops the server in order: it rolls back open transactions, closes connections and writes a
    /// checkpoint. Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// The signal cannot be sent.
    pub fn stop_fast(&mut self) -> Result<(), ServerError> {
        self.sandbox.stop("INT")
    }

    /// Starts a stopped server on the same data and the same port. Does nothing if it runs.
    ///
    /// # Errors
    ///
    /// It does not start, for example because another program keeps the port for two seconds.
    pub fn start_again(&mut self) -> Result<(), ServerError> {
        if self.sandbox.is_running() {
            return Ok(());
        }
        retry_port(|| self.launch())
    }

    /// Leaves the server running after this process has ended.
    ///
    /// # Errors
    ///
    /// The server does not run. Its folder is deleted.
    pub fn leave_running(self) -> Result<Detached, ServerError> {
        self.sandbox.leave_running()
    }

    fn initdb(&self) -> Result<(), ServerError> {
        let output = self
            .command("initdb")
            .arg("-D")
            .arg(self.data_dir())
            .args(["-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"])
            .current_dir(self.sandbox.dir())
            .output()
            .map_err(|source| ServerError::io("cannot run initdb", source))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(ServerError::new(format!(
                "initdb failed ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    fn launch(&mut self) -> Result<(), ServerError> {
        let data = self.data_dir();
        let mut command = self.command("postgres");
        command.arg("-D").arg(&data).args(["-p", &self.port.to_string()]);
        command.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.sandbox.launch(command, |pid| {
            // Since Postgres 10 the eighth line of the lock file is `ready`; `pg_ctl` reads it too.
            let lock = fs::read_to_string(data.join("postmaster.pid")).ok()?;
            let lines: Vec<&str> = lock.lines().map(str::trim).collect();
            (lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")).then_some(())
        })
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        // Settings of the caller for clients (PGPORT, PGDATA, PGOPTIONS) must not reach this server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| starts_with_pg(name)) {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C");
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

fn starts_with_pg(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"PG")
}
