//! A private server of MySQL or MariaDB.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::{self, Account};
use super::error::ServerError;
use super::find;
use super::sandbox::{Detached, Sandbox, free_port, retry_port};

mod session;

use session::Session;

/// The name of the account and of the database.
const NAME: &str = "twinbox";
/// Options of every server. Those of the caller come later and win.
const OPTIONS: [&str; 8] = [
    "--bind-address=127.0.0.1",
    // In the data folder. An absolute path can be too long for a socket.
    "--socket=socket",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=256M",
    "--character-set-server=utf8mb4",
    "--max-connections=1000",
];
const OPTIONS_OF_MARIADB: &[&str] = &["--innodb-log-file-size=256M"];
const OPTIONS_OF_MYSQL: &[&str] = &["--innodb-redo-log-capacity=512M", "--mysqlx=OFF", "--secure-file-priv="];

/// Lets root in from the address of tests: the server looks up no names, and at first knows root by name
/// alone.
const ROOT_OF_ADDRESS: &str = "CREATE USER 'root'@'127.0.0.1'; \
    GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n";

/// Options of a [`MySqlServer`].
#[derive(Debug, Clone, Default)]
pub struct MySqlOptions {
    bin: Option<PathBuf>,
    dir: Option<PathBuf>,
    settings: Vec<(String, String)>,
    files: Vec<(String, String)>,
    env: Vec<(OsString, OsString)>,
}

impl MySqlOptions {
    /// Sets the folder of `mariadbd` or `mysqld`, instead of [`find::mysql_bin`].
    pub fn bin(mut self, dir: impl Into<PathBuf>) -> Self {
        self.bin = Some(dir.into());
        self
    }

    /// Sets the folder in which the server gets its private folder, instead of that of temporary files. On a
    /// file system in memory the server writes its log without a flush.
    pub fn dir(mut self, parent: impl Into<PathBuf>) -> Self {
        self.dir = Some(parent.into());
        self
    }

    /// Sets a setting of the server, as in `.set("innodb_flush_log_at_trx_commit", "0")`.
    ///
    /// The start fails if the server does not know the setting.
    pub fn set(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Puts a file into the data directory, which the server alone can read, as in
    /// `.file("server.key", pem).set("ssl_key", "server.key")`.
    pub fn file(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Sets an environment variable of the server.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// A server of MySQL or MariaDB with new data, its own port, and every commit synced to the disk.
///
/// The account `twinbox` has a random password and all rights, also to create databases and accounts. The
/// server writes no binary log, and knows its clients by address alone.
///
/// Dropping it stops it and deletes the data. Root can start it too: the server then runs as another account
/// of the machine.
#[derive(Debug)]
pub struct MySqlServer {
    sandbox: Sandbox,
    bin: PathBuf,
    product: Product,
    account: Option<Account>,
    settings: Vec<(String, String)>,
    env: Vec<(OsString, OsString)>,
    password: String,
    port: u16,
}

/// The products, whose data are made in different ways.
#[derive(Debug, Clone, Copy)]
enum Product {
    MariaDb,
    MySql,
}

impl Product {
    /// The server in a folder. A MariaDB can have a link `mysqld`.
    fn of(bin: &Path) -> Self {
        if bin.join("mariadbd").is_file() { Self::MariaDb } else { Self::MySql }
    }
}

impl MySqlServer {
    /// Creates the data and starts the server with default options.
    ///
    /// # Errors
    ///
    /// No MariaDB or MySQL is found, or it does not start. No file is left behind.
    pub fn start() -> Result<Self, ServerError> {
        Self::start_with(MySqlOptions::default())
    }

    /// Creates the data and starts the server with options.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn start_with(options: MySqlOptions) -> Result<Self, ServerError> {
        let MySqlOptions { bin, dir, settings, files, env } = options;
        let bin = bin.map_or_else(find::mysql_bin, Ok)?;
        // The server looks for its files relative to the real folder, and `/sbin` is often a link.
        let bin = bin.canonicalize().map_err(|source| {
            ServerError::io(format!("cannot find a server in {}", bin.display()), source)
        })?;
        let product = Product::of(&bin);
        let (sandbox, account) = account::sandbox(dir.as_deref(), "mysql", "KILL", "mysql")?;
        let password = format!("{:016x}", RandomState::new().hash_one(NAME));
        let mut server = Self { sandbox, bin, product, account, settings, env, password, port: 0 };
        server.install_db()?;
        for (name, text) in files {
            account::write(server.account.as_ref(), &server.data_dir().join(name), &text)?;
        }
        let login = retry_port(|| {
            server.port = free_port()?;
            server.launch()
        })?;
        login
            .and_then(|session| server.create_account(session))
            .map_err(|source| ServerError::io("cannot create the account of a new server", source))?;
        Ok(server)
    }

    /// Returns the URL: `mysql://twinbox:PASSWORD@127.0.0.1:PORT/twinbox`. It does not change with a restart.
    pub fn url(&self) -> String {
        format!("mysql://{NAME}:{}@127.0.0.1:{}/{NAME}", self.password, self.port)
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

    /// Kills the process with `SIGKILL`, as a crash does. The next start recovers from the log.
    /// Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// The signal cannot be sent.
    pub fn kill(&mut self) -> Result<(), ServerError> {
        self.sandbox.stop("KILL")
    }

    /// Stops the server in order: it rolls back open transactions, closes connections and writes a
    /// checkpoint. Does nothing if it does not run.
    ///
    /// # Errors
    ///
    /// The signal cannot be sent.
    pub fn stop(&mut self) -> Result<(), ServerError> {
        self.sandbox.stop("TERM")
    }

    /// Kills the process if it runs, and starts it again on the same port and the same data.
    ///
    /// # Errors
    ///
    /// It does not start, for example because another program keeps the port for two seconds.
    pub fn restart(&mut self) -> Result<(), ServerError> {
        self.kill()?;
        // A test may have changed the account that logs in. The refusal shows that the server runs.
        retry_port(|| self.launch()).map(|_| ())
    }

    /// Leaves the server running after this process has ended.
    ///
    /// # Errors
    ///
    /// The server does not run. Its folder is deleted.
    pub fn leave_running(self) -> Result<Detached, ServerError> {
        self.sandbox.leave_running()
    }

    fn install_db(&self) -> Result<(), ServerError> {
        let doing = "cannot create the data of MySQL or MariaDB";
        let failed = |source| ServerError::io(doing, source);
        let data = self.data_dir();
        fs::create_dir(&data).map_err(failed)?;
        if let Some(account) = &self.account {
            account.own(&data)?;
        }
        let mut command = match self.product {
            Product::MariaDb => self.install_mariadb(doing)?,
            Product::MySql => self.initialize_mysql()?,
        };
        let output = command.arg(option("datadir", &data)).output().map_err(failed)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(ServerError::new(format!(
                "{doing} ({}): {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stdout).trim(),
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    fn install_mariadb(&self, doing: &str) -> Result<Command, ServerError> {
        let program = find::mariadb_install_db(&self.bin)
            .ok_or_else(|| ServerError::new(format!("{doing}: no mariadb-install-db found")))?;
        let mut command = self.command(&program);
        command.args(["--skip-test-db", "--force", "--auth-root-authentication-method=normal"]);
        if let Some(account) = &self.account {
            // `--user` would also change the owner of a program of the system.
            command.arg(format!("-u{}", account.name));
        }
        Ok(command)
    }

    fn initialize_mysql(&self) -> Result<Command, ServerError> {
        let statements = self.sandbox.dir().join("accounts.sql");
        account::write(self.account.as_ref(), &statements, ROOT_OF_ADDRESS)?;
        let mut command = self.command(&self.bin.join("mysqld"));
        command.arg("--initialize-insecure").arg(option("init-file", &statements));
        if let Some(account) = &self.account {
            command.arg(format!("--user={}", account.name));
        }
        Ok(command)
    }

    /// Starts the server and logs in. The inner error is a refused login.
    fn launch(&mut self) -> Result<io::Result<Session>, ServerError> {
        let (port, log) = (self.port, self.sandbox.dir().join("log"));
        let (program, options) = match self.product {
            Product::MariaDb => ("mariadbd", OPTIONS_OF_MARIADB),
            Product::MySql => ("mysqld", OPTIONS_OF_MYSQL),
        };
        let mut command = self.command(&self.bin.join(program));
        command.arg(option("datadir", &self.data_dir())).arg(format!("--port={port}"));
        command.args(OPTIONS).args(options);
        if let Some(account) = &self.account {
            command.arg(format!("--user={}", account.name));
        }
        for (name, value) in &self.settings {
            command.arg(format!("--{name}={value}"));
        }
        command.envs(self.env.iter().cloned());
        self.sandbox.launch(command, |_| {
            // A connection to the port could reach another program that took it a moment earlier.
            let text = fs::read(&log).ok()?;
            if !String::from_utf8_lossy(&text).contains("ready for connections") {
                return None;
            }
            match Session::login(port, "root") {
                Err(error) if error.kind() != io::ErrorKind::PermissionDenied => None,
                login => Some(login),
            }
        })
    }

    fn create_account(&self, mut session: Session) -> io::Result<()> {
        session.execute(&format!("CREATE DATABASE {NAME}"))?;
        session.execute(&format!("CREATE USER '{NAME}'@'%' IDENTIFIED BY '{}'", self.password))?;
        session.execute(&format!("GRANT ALL PRIVILEGES ON *.* TO '{NAME}'@'%' WITH GRANT OPTION"))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Settings of the caller for clients (MYSQL_HOST, MYSQL_TCP_PORT) must not reach this server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| starts_with_mysql(name)) {
            command.env_remove(name);
        }
        // A server in the cache has its libraries beside it.
        command.env("LC_ALL", "C").env("LD_LIBRARY_PATH", &self.bin).env("TMPDIR", self.sandbox.dir());
        let base = self.bin.parent().unwrap_or(Path::new("/"));
        command.arg("--no-defaults").arg(option("basedir", base)).current_dir(self.sandbox.dir());
        command
    }
}

fn starts_with_mysql(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"MYSQL")
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(path);
    option
}
