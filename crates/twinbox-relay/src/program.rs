//! The program `twinbox-relay`: the library with a configuration file, logs and signals.
use crate::{
    Relay, RelayOptions, check,
    config::{self, Config, ConfigError, Database, Destination, secret},
    log_lines::Log,
};
use clap::{Parser, Subcommand};
use sqlx::{PgPool, Postgres, Sqlite, postgres::PgPoolOptions, sqlite::SqliteConnectOptions};
use std::{
    error::Error as StdError,
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use twinbox_aws::{EventBridge, EventBridgeOptions};
use twinbox_core::RetryPolicy;
use twinbox_nats::{Nats, NatsOptions, StreamOptions};
use twinbox_sql::{Dialect, Store, StoreOptions, log};

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Moves a Twinbox outbox to its destinations",
    after_help = "Exit codes: 0 stopped as asked, 1 failed, 2 used wrongly.\n\
        Logs go to stderr; RUST_LOG chooses them, `info` by default."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Relay until SIGTERM or SIGINT, then finish what is on its way. A second signal stops at once.
    Run {
        /// The configuration file. Without it everything comes from TWINBOX_RELAY__… variables.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Bring the tables up to this version first. Needs the right to create tables.
        #[arg(long)]
        migrate: bool,
    },
    /// Look at the file and at the world: the database, the destinations, and where each type would go.
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Delete the messages that every reader of the log has settled and that are old enough. For a timer.
    Purge {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// How old is old enough. 100 messages a second of 1 KB are about 60 GB a week.
        #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = humantime::parse_duration)]
        keep: std::time::Duration,
    },
    /// About the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every value in force and where it comes from. Secrets are masked.
    Print {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// What to do with a store and its destinations.
#[derive(Clone, Copy)]
enum Task {
    Relay { migrate: bool },
    Check,
    Purge { keep: std::time::Duration },
}

/// Runs the program on the process's arguments and environment.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,async_nats=warn"));
    let (ansi, log) = (std::io::stderr().is_terminal(), Log::to_stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(log.clone()).init();
    let code = match execute(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error, log.clone()),
    };
    log.finish();
    code
}

fn execute(command: Command) -> Result<(), Failure> {
    let (path, task) = match command {
        Command::Run { config, migrate } => (config, Task::Relay { migrate }),
        Command::Check { config } => (config, Task::Check),
        Command::Purge { config, keep } => (config, Task::Purge { keep }),
        Command::Config(ConfigCommand::Print { config }) => {
            print!("{}", Config::print(config.as_deref(), std::env::vars())?);
            return Ok(());
        }
    };
    let config = Config::load(path.as_deref(), std::env::vars())?;
    runtime(config.destinations.len())?.block_on(run(config, task))
}

/// A thread for each destination, if there are as many cores: what hands a message from core to core makes a
/// relay slower by a seventh.
fn runtime(destinations: usize) -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism()?.get();
    Builder::new_multi_thread().worker_threads(destinations.clamp(1, cores)).enable_all().build()
}

fn failed(error: &dyn StdError, mut log: Log) -> ExitCode {
    let _ = writeln!(log, "twinbox-relay: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        tracing::debug!(%cause, "caused by");
        source = cause.source();
    }
    ExitCode::FAILURE
}

pub(crate) type Failure = Box<dyn StdError + Send + Sync>;

async fn run(config: Config, task: Task) -> Result<(), Failure> {
    if config.destinations.is_empty() {
        return Err(
            ConfigError("there is no destination: add a table `[destinations.NAME]`".to_owned()).into()
        );
    }
    let url = secret("url", config.database.url.as_deref(), config.database.url_file.as_deref())?;
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => {
            let pool: PgPool =
                PgPoolOptions::new().max_connections(config.database.max_connections).connect_lazy(&url)?;
            work::<Postgres>(pool, &config, task).await
        }
        Some("sqlite") => {
            let options: SqliteConnectOptions = url.parse()?;
            work::<Sqlite>(twinbox_sql::sqlite::open(options.get_filename()).await?, &config, task).await
        }
        _ => Err(ConfigError("`database.url` starts with `postgres:` or `sqlite:`".to_owned()).into()),
    }
}

/// The first signal asks, the second does not.
fn listen(stop: CancellationToken) -> Result<(), Failure> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        loop {
            let code = tokio::select! {
                _ = term.recv() => 143,
                _ = int.recv() => 130,
            };
            if stop.is_cancelled() {
                tracing::warn!("stopping at once");
                std::process::exit(code);
            }
            tracing::info!("stopping: finishing what is on its way");
            stop.cancel();
        }
    });
    Ok(())
}

async fn work<DB: Dialect>(pool: sqlx::Pool<DB>, config: &Config, task: Task) -> Result<(), Failure> {
    let Database { service, namespace, .. } = &config.database;
    let store = Store::with_options(pool, service, StoreOptions::new().namespace(namespace))?;
    let migrate = match task {
        Task::Check => return check::run(&store, config).await,
        Task::Purge { keep } => {
            store.check().await?;
            let purged = store.purge(keep).await?;
            println!("{} messages deleted", purged.messages);
            if let Some(reader) = purged.held_by {
                println!("{reader:?} is furthest behind and keeps messages that are old enough to go");
            }
            return Ok(());
        }
        Task::Relay { migrate } => migrate,
    };
    let stop = CancellationToken::new();
    listen(stop.clone())?;
    if migrate {
        store.migrate().await?;
    }
    let mut relays = JoinSet::new();
    for (n, (id, configured)) in config.destinations.iter().enumerate() {
        // One of them looks out for what nobody takes.
        let options = options(config, id, n == 0)?;
        let relay = Relay::with_options(store.clone(), destination(id, configured)?, options);
        relays.spawn(relay.run(stop.clone()));
    }
    let mut result = Ok(());
    while let Some(ended) = relays.join_next().await {
        if let Err(error) = ended? {
            stop.cancel();
            result = Err(error.into());
        }
    }
    result
}

pub(crate) fn destination(
    id: &str,
    configured: &Destination,
) -> Result<Arc<dyn twinbox_core::Destination>, Failure> {
    match configured {
        Destination::Nats(configured) => Ok(Arc::new(nats(id, configured)?)),
        Destination::EventBridge(configured) => {
            let mut options = EventBridgeOptions::new(&configured.bus).id(id);
            if let Some(region) = &configured.region {
                options = options.region(region);
            }
            if let Some(url) = &configured.endpoint_url {
                options = options.endpoint_url(url);
            }
            Ok(Arc::new(EventBridge::with_options(options)?))
        }
    }
}

pub(crate) fn options(config: &Config, id: &str, reports: bool) -> Result<RelayOptions, Failure> {
    let common = config.destinations[id].common();
    let retry = match common.retry {
        "vendor" => RetryPolicy::vendor(),
        "client" => RetryPolicy::client(),
        name => config.retry.get(name).map(|retry| RetryPolicy::from(*retry)).ok_or_else(|| {
            let what = format!(
                "destination {id:?} asks for the retries {name:?}: write `vendor`, `client`, or add a table \
                 `[retry.{name}]`"
            );
            ConfigError(what)
        })?,
    };
    let mut options = RelayOptions::new()
        .types(common.types.iter().cloned())
        .start(common.start.map_or(log::Start::IfEmpty, |start| start.0))
        .in_flight(common.in_flight)
        .retry(retry)
        .on_exhausted(common.on_exhausted.into())
        .lease(common.lease.0);
    if let Some(rate) = common.rate {
        options = options.rate(rate);
    }
    if reports {
        let others = config.destinations.iter().filter(|(other, _)| *other != id);
        let everything = || vec![">".parse().expect("a pattern")];
        let types = others.flat_map(|(_, other)| match other.common().types {
            [] => everything(),
            types => types.to_vec(),
        });
        options = options.elsewhere(types);
    }
    Ok(options)
}

fn nats(id: &str, config: &config::Nats) -> Result<Nats, Failure> {
    let url = secret("url", config.url.as_deref(), config.url_file.as_deref())?;
    let mut options = NatsOptions::new(url)
        .id(id)
        .stream(&config.stream)
        .prefix(&config.prefix)
        .partitions(config.partitions);
    if let Some(file) = &config.credentials_file {
        options = options.credentials_file(file);
    }
    if let Some(file) = &config.ca_file {
        options = options.ca_file(file);
    }
    match (&config.client_certificate_file, &config.client_key_file) {
        (Some(certificate), Some(key)) => options = options.client_certificate(certificate, key),
        (None, None) => {}
        _ => {
            let what =
                format!("destination {id:?}: `client_certificate_file` and `client_key_file` go together");
            return Err(ConfigError(what).into());
        }
    }
    if let Some(file) = &config.token_file {
        options = options.token(secret("token", None, Some(file))?);
    }
    if config.create_stream {
        options = options.create_stream(StreamOptions::default());
    }
    Ok(Nats::with_options(options)?)
}
