//! Starts Postgres, MariaDB or MySQL, and NATS, for one run of tests or until `services down`.

use std::net::TcpStream;
use std::path::PathBuf;
use std::{env, fs};

use twinbox_testkit::servers::{
    Detached, MySqlOptions, MySqlServer, NatsOptions, NatsServer, PostgresOptions, PostgresServer, find,
};

use crate::error::Result;
use crate::install;
use crate::strict::{self, Certificates};
use crate::versions::{self, Server, Versions};

const POSTGRES_URL: &str = "TWINBOX_POSTGRES_URL";
const MYSQL_URL: &str = "TWINBOX_MYSQL_URL";
const NATS_URL: &str = "TWINBOX_NATS_URL";
/// Many tests run at the same time, and each has its own connection pools.
const POSTGRES_CONNECTIONS_MAX: &str = "500";

/// Whether the servers sync what they write. Those that never lose power need not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fsync {
    On,
    Off,
}

/// Which servers to start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Servers {
    All,
    PostgresAndNats,
    None,
}

/// The servers of one run. Dropping this stops them.
///
/// A server that the environment names is used instead of a new one.
pub(crate) struct Services {
    postgres: Option<PostgresServer>,
    mysql: Option<MySqlServer>,
    nats: Option<NatsServer>,
    /// Those of servers that offer TLS and give few rights.
    certificates: Option<Certificates>,
    env: Vec<(&'static str, String)>,
}

impl Services {
    /// Starts servers for benchmarks and for work by hand, which let everybody in.
    pub(crate) fn start(servers: Servers, fsync: Fsync) -> Result<Self> {
        Self::start_with(servers, Versions::default(), fsync, None)
    }

    /// Starts servers for tests: with TLS, and with users that have few rights.
    pub(crate) fn start_strict(servers: Servers, versions: Versions<'_>) -> Result<Self> {
        Self::start_with(servers, versions, Fsync::Off, Some(Certificates::create()?))
    }

    fn start_with(
        servers: Servers,
        versions: Versions<'_>,
        fsync: Fsync,
        certificates: Option<Certificates>,
    ) -> Result<Self> {
        let mut services = Self { postgres: None, mysql: None, nats: None, certificates, env: Vec::new() };
        if servers != Servers::None {
            services.start_postgres(versions.postgres, fsync)?;
            services.start_nats()?;
        }
        if servers == Servers::All {
            services.start_mysql(versions.mysql, fsync)?;
            services.find_programs()?;
        }
        Ok(services)
    }

    fn start_postgres(&mut self, version: Option<&str>, fsync: Fsync) -> Result<()> {
        let named = named(POSTGRES_URL, version.is_some())?;
        let bin = needed(version.map_or_else(install::postgres, versions::postgres), !named)?;
        if let Some(bin) = &bin {
            self.set("TWINBOX_PG_BIN", bin.display());
        }
        if let (Some(bin), false) = (bin, named) {
            let mut options =
                PostgresOptions::default().bin(bin).set("max_connections", POSTGRES_CONNECTIONS_MAX);
            if fsync == Fsync::Off {
                // Each database that is dropped makes a checkpoint, and after it each page is logged whole.
                options = options.set("fsync", "off").set("full_page_writes", "off");
            }
            let mut parameters = String::new();
            if let Some(certificates) = &self.certificates {
                let (certificate, key) = (&certificates.certificate, &certificates.key);
                options = options.file("server.crt", certificate).file("server.key", key).set("ssl", "on");
                parameters = strict::postgres_parameters(&certificates.file("ca.pem"));
            }
            let server = PostgresServer::start_with(options)?;
            self.set(POSTGRES_URL, server.url() + &parameters);
            self.postgres = Some(server);
        }
        Ok(())
    }

    fn start_mysql(&mut self, version: Option<Server<'_>>, fsync: Fsync) -> Result<()> {
        let named = named(MYSQL_URL, version.is_some())?;
        let bin = needed(version.map_or_else(install::mariadb, versions::mysql), !named)?;
        if let Some(bin) = &bin {
            self.set("TWINBOX_MYSQL_BIN", bin.display());
        }
        if let (Some(bin), false) = (bin, named) {
            let mut options = MySqlOptions::default().bin(bin);
            if fsync == Fsync::Off {
                options = options.set("innodb_flush_method", "nosync").set("innodb_doublewrite", "0");
            }
            let mut parameters = String::new();
            if let Some(certificates) = &self.certificates {
                let (certificate, key) = (&certificates.certificate, &certificates.key);
                options = options.file("server.crt", certificate).set("ssl_cert", "server.crt");
                options = options.file("server.key", key).set("ssl_key", "server.key");
                // A transaction is committed to two logs, as where there are replicas.
                options = options.set("log_bin", "binlog").set("sync_binlog", "0");
                parameters = strict::mysql_parameters(&certificates.file("ca.pem"));
            }
            let server = MySqlServer::start_with(options)?;
            self.set(MYSQL_URL, server.url() + &parameters);
            self.mysql = Some(server);
        }
        Ok(())
    }

    fn start_nats(&mut self) -> Result<()> {
        let named = named(NATS_URL, false)?;
        if let Some(binary) = needed(install::nats(), !named)? {
            self.set("TWINBOX_NATS_SERVER", binary.display());
        }
        if !named {
            let (mut options, mut url_of): (_, fn(&str) -> String) = (NatsOptions::default(), str::to_owned);
            if let Some(certificates) = &self.certificates {
                options = options.line(strict::nats_lines(certificates)?);
                url_of = strict::nats_url;
                // sqlx reads all of them for each connection, so they are few.
                let trusted = [
                    (strict::TRUSTED, "ca.pem"),
                    (strict::MORE_TRUSTED, "none"),
                    (strict::TRUSTED_BY_CARGO, "trusted.pem"),
                ];
                for (name, file) in trusted.map(|(name, file)| (name, certificates.file(file))) {
                    self.env.push((name, file.display().to_string()));
                }
            }
            let server = NatsServer::start_with(options)?;
            self.set(NATS_URL, url_of(&server.url()));
            self.nats = Some(server);
        }
        Ok(())
    }

    /// Names the programs that some tests start.
    fn find_programs(&mut self) -> Result<()> {
        if let Some(binary) = needed(install::nats_old(), false)? {
            self.set("TWINBOX_NATS_SERVER_OLD", binary.display());
        }
        if let Some(binary) = needed(install::python(), false)? {
            self.set("TWINBOX_PYTHON", binary.display());
        }
        // Tests look for these packages in the cache, not in the environment.
        needed(install::python_packages(), false)?;
        needed(install::node_packages(), false)?;
        if let Some(binary) = needed(install::pgbouncer(), false)? {
            self.set("TWINBOX_PGBOUNCER", binary.display());
        }
        if let Some(library) = needed(install::faketime(), false)? {
            self.set("TWINBOX_FAKETIME", library.display());
        }
        for (variable, program) in [("TWINBOX_PROMETHEUS", "prometheus"), ("TWINBOX_PROMTOOL", "promtool")] {
            if let Some(binary) = needed(install::prometheus(program), false)? {
                self.set(variable, binary.display());
            }
        }
        if let Some(binary) = needed(install::chromium(), false)? {
            self.set("TWINBOX_CHROMIUM", binary.display());
        }
        if let Some(binary) = needed(install::systemd_analyze(), false)? {
            self.set("TWINBOX_SYSTEMD_ANALYZE", binary.display());
        }
        Ok(())
    }

    /// Returns the environment variables of a test, without those that are set already.
    pub(crate) fn env(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.env.iter().map(|(name, value)| (*name, value.as_str()))
    }

    fn set(&mut self, name: &'static str, value: impl ToString) {
        self.env.push((name, value.to_string()));
    }
}

/// Starts the servers, unless they run, and prints their environment variables.
pub(crate) fn up() -> Result<()> {
    let before = State::read()?;
    if !before.servers.is_empty() && before.servers.iter().all(Detached::is_running) {
        before.print_exports();
        return Ok(());
    }
    before.stop()?;
    let mut state = State { servers: Vec::new(), env: Vec::new() };
    if let Err(error) = state.adopt(Services::start(Servers::All, Fsync::On)?).and_then(|()| state.write()) {
        state.stop()?;
        return Err(error);
    }
    state.print_exports();
    Ok(())
}

/// Stops the servers that `up` started and deletes their data. Prints a command that unsets the variables.
pub(crate) fn down() -> Result<()> {
    let state = State::read()?;
    state.stop()?;
    eprintln!("stopped {} servers", state.servers.len());
    if !state.env.is_empty() {
        let names: Vec<&str> = state.env.iter().map(|(name, _)| name.as_str()).collect();
        println!("unset {}", names.join(" "));
    }
    Ok(())
}

/// Prints the servers that `up` left running.
pub(crate) fn status() -> Result<()> {
    let state = State::read()?;
    for server in &state.servers {
        let health = if server.is_running() { "runs" } else { "is dead" };
        println!("process {} {health}, folder {}", server.pid, server.dir.display());
    }
    match state.servers.is_empty() {
        true => println!("no server runs"),
        false => state.print_exports(),
    }
    Ok(())
}

/// The servers that `up` left running, and their environment variables.
///
/// The file in the cache folder has lines `server PID DIR` and `env NAME VALUE`.
struct State {
    servers: Vec<Detached>,
    env: Vec<(String, String)>,
}

impl State {
    fn path() -> Result<PathBuf> {
        Ok(find::cache()?.join("services"))
    }

    fn read() -> Result<Self> {
        let mut state = Self { servers: Vec::new(), env: Vec::new() };
        let text = match fs::read_to_string(Self::path()?) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(state),
            text => text?,
        };
        for line in text.lines() {
            match *line.splitn(3, ' ').collect::<Vec<_>>() {
                ["server", pid, dir] => state.servers.push(Detached { dir: dir.into(), pid: pid.parse()? }),
                ["env", name, value] => state.env.push((name.to_owned(), value.to_owned())),
                _ => {
                    return Err(
                        format!("cannot read {}: unknown line {line:?}", Self::path()?.display()).into()
                    );
                }
            }
        }
        Ok(state)
    }

    fn adopt(&mut self, services: Services) -> Result<()> {
        self.env = services.env().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some(postgres) = services.postgres {
            self.servers.push(postgres.leave_running()?);
        }
        if let Some(mysql) = services.mysql {
            self.servers.push(mysql.leave_running()?);
        }
        if let Some(nats) = services.nats {
            self.servers.push(nats.leave_running()?);
        }
        Ok(())
    }

    fn write(&self) -> Result<()> {
        let mut text = String::new();
        for Detached { dir, pid } in &self.servers {
            text += &format!("server {pid} {}\n", dir.display());
        }
        for (name, value) in &self.env {
            text += &format!("env {name} {value}\n");
        }
        fs::create_dir_all(find::cache()?)?;
        let new = Self::path()?.with_extension("new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, Self::path()?)?)
    }

    fn stop(&self) -> Result<()> {
        for server in &self.servers {
            server.stop()?;
        }
        match fs::remove_file(Self::path()?) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn print_exports(&self) {
        for (name, value) in &self.env {
            println!("export {name}='{}'", value.replace('\'', r"'\''"));
        }
    }
}

/// Returns whether the environment names a server.
///
/// # Errors
///
/// The named server does not answer, because it was probably stopped. Or the run names a version.
fn named(variable: &str, in_a_version: bool) -> Result<bool> {
    let Ok(url) = env::var(variable) else { return Ok(false) };
    if in_a_version {
        return Err(format!("{variable} names a server, and this run a version: unset it").into());
    }
    let address = url.split("://").nth(1).and_then(|rest| rest.split(['/', '?']).next());
    let address = address.map(|authority| authority.rsplit('@').next().unwrap_or(authority));
    match address.map(TcpStream::connect) {
        // A URL without a port cannot be tried.
        Some(Err(error)) if address.is_some_and(|address| address.contains(':')) => {
            Err(format!("{variable} is set to {url}, which does not answer ({error}); unset it").into())
        }
        _ => Ok(true),
    }
}

/// Reports a missing part and goes on without it, unless it is `needed`.
fn needed(found: Result<PathBuf>, needed: bool) -> Result<Option<PathBuf>> {
    match found {
        Err(error) if !needed => {
            eprintln!("continuing without it: {error}");
            Ok(None)
        }
        found => found.map(Some),
    }
}
