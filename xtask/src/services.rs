//! Postgres and NATS for a run of tests, or for longer.

use std::net::TcpStream;
use std::path::PathBuf;
use std::{env, fs};

use twinbox_testkit::servers::{Detached, NatsServer, PostgresOptions, PostgresServer, find};

use crate::{Result, install};

const POSTGRES_URL: &str = "TWINBOX_POSTGRES_URL";
const NATS_URL: &str = "TWINBOX_NATS_URL";
/// Many tests run at once, each with pools of its own.
const POSTGRES_CONNECTIONS_MAX: &str = "500";

/// The servers of one run; they end when this is dropped. What the environment names is used instead.
pub(crate) struct Services {
    postgres: Option<PostgresServer>,
    nats: Option<NatsServer>,
    env: Vec<(&'static str, String)>,
}

impl Services {
    pub(crate) fn start(postgres_settings: &[(&str, &str)]) -> Result<Self> {
        let mut services = Self { postgres: None, nats: None, env: Vec::new() };
        let named = named(POSTGRES_URL)?;
        if let Some(bin) = needed(install::postgres(), !named)? {
            services.tell("TWINBOX_PG_BIN", bin.display());
        }
        if !named {
            let options = PostgresOptions::default().set("max_connections", POSTGRES_CONNECTIONS_MAX);
            let set = |options: PostgresOptions, (name, value): &(&str, &str)| options.set(*name, *value);
            let server = PostgresServer::start_with(postgres_settings.iter().fold(options, set))?;
            services.tell(POSTGRES_URL, server.url());
            services.postgres = Some(server);
        }
        let named = self::named(NATS_URL)?;
        if let Some(binary) = needed(install::nats(), !named)? {
            services.tell("TWINBOX_NATS_SERVER", binary.display());
        }
        if !named {
            let server = NatsServer::start()?;
            services.tell(NATS_URL, server.url());
            services.nats = Some(server);
        }
        if let Some(binary) = needed(install::nats_old(), false)? {
            services.tell("TWINBOX_NATS_SERVER_OLD", binary.display());
        }
        if let Some(binary) = needed(install::python(), false)? {
            services.tell("TWINBOX_PYTHON", binary.display());
        }
        // Tests look for them in the cache.
        needed(install::python_driver(), false)?;
        needed(install::node_driver(), false)?;
        if let Some(binary) = needed(install::pgbouncer(), false)? {
            services.tell("TWINBOX_PGBOUNCER", binary.display());
        }
        if let Some(library) = needed(install::faketime(), false)? {
            services.tell("TWINBOX_FAKETIME", library.display());
        }
        Ok(services)
    }

    /// What a test needs to know, beyond what the environment says already.
    pub(crate) fn env(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.env.iter().map(|(name, value)| (*name, value.as_str()))
    }

    fn tell(&mut self, name: &'static str, value: impl ToString) {
        self.env.push((name, value.to_string()));
    }
}

/// Starts the servers, unless they run, and prints the environment that names them.
pub(crate) fn up() -> Result<()> {
    let before = State::read()?;
    if !before.servers.is_empty() && before.servers.iter().all(Detached::is_running) {
        before.print_exports();
        return Ok(());
    }
    before.stop()?;
    let mut state = State { servers: Vec::new(), env: Vec::new() };
    if let Err(error) = state.adopt(Services::start(&[])?).and_then(|()| state.write()) {
        state.stop()?;
        return Err(error);
    }
    state.print_exports();
    Ok(())
}

/// Stops what `up` started and deletes its data; prints how to forget the environment.
pub(crate) fn down() -> Result<()> {
    let state = State::read()?;
    state.stop()?;
    eprintln!("{} stopped", state.servers.len());
    if !state.env.is_empty() {
        let names: Vec<&str> = state.env.iter().map(|(name, _)| name.as_str()).collect();
        println!("unset {}", names.join(" "));
    }
    Ok(())
}

/// Prints what `up` left running.
pub(crate) fn status() -> Result<()> {
    let state = State::read()?;
    for server in &state.servers {
        let health = if server.is_running() { "running" } else { "dead" };
        println!("process {} {health} in {}", server.pid, server.dir.display());
    }
    match state.servers.is_empty() {
        true => println!("nothing runs"),
        false => state.print_exports(),
    }
    Ok(())
}

/// What `up` left running, as it stands in the cache folder: lines `server PID DIR` and `env NAME VALUE`.
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
                _ => return Err(format!("{} has a line {line:?}", Self::path()?.display()).into()),
            }
        }
        Ok(state)
    }

    fn adopt(&mut self, services: Services) -> Result<()> {
        self.env = services.env().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if let Some(postgres) = services.postgres {
            self.servers.push(postgres.leave_running()?);
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

/// Whether the environment names a server. One that does not answer is an error: it was probably stopped.
fn named(variable: &str) -> Result<bool> {
    let Ok(url) = env::var(variable) else { return Ok(false) };
    let address = url.split("://").nth(1).and_then(|rest| rest.split(['/', '?']).next());
    let address = address.map(|authority| authority.rsplit('@').next().unwrap_or(authority));
    match address.map(TcpStream::connect) {
        // Without a port there is nothing to try.
        Some(Err(error)) if address.is_some_and(|address| address.contains(':')) => {
            Err(format!("{variable} is set to {url}, which does not answer ({error}); unset it").into())
        }
        _ => Ok(true),
    }
}

/// An optional part that is missing is reported and done without.
fn needed(found: Result<PathBuf>, needed: bool) -> Result<Option<PathBuf>> {
    match found {
        Err(error) if !needed => {
            eprintln!("going on without: {error}");
            Ok(None)
        }
        found => found.map(Some),
    }
}
