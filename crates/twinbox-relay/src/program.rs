//! The program `twinbox-relay`: the library with a configuration file, logs and signals.
use crate::{
    Relay, RelayOptions,
    config::{self, Config, ConfigError, Database, Destination, secret},
};
use clap::{Parser, Subcommand};
use sqlx::{PgPool, Postgres, Sqlite, postgres::PgPoolOptions, sqlite::SqliteConnectOptions};
use std::{error::Error as StdError, io::IsTerminal as _, path::PathBuf, process::ExitCode};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
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
}

/// Runs the program on the process's arguments and environment.
pub fn main() -> ExitCode {
    let Command::Run { config, migrate } = Arguments::parse().command;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,async_nats=warn"));
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(ansi).with_writer(std::io::stderr).init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let ran = runtime.block_on(async {
        let config = Config::load(config.as_deref(), std::env::vars())?;
        run(config, migrate).await
    });
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error),
    }
}

fn failed(error: &dyn StdError) -> ExitCode {
    eprintln!("twinbox-relay: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        tracing::debug!(%cause, "caused by");
        source = cause.source();
    }
    ExitCode::FAILURE
}

type Failure = Box<dyn StdError + Send + Sync>;

async fn run(config: Config, migrate: bool) -> Result<(), Failure> {
    if config.destinations.is_empty() {
        return Err(
            ConfigError("there is no destination: add a table `[destinations.NAME]`".to_owned()).into()
        );
    }
    let stop = CancellationToken::new();
    listen(stop.clone())?;
    let url = secret("url", config.database.url.as_deref(), config.database.url_file.as_deref())?;
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("postgres" | "postgresql") => {
            let pool: PgPool =
                PgPoolOptions::new().max_connections(config.database.max_connections).connect_lazy(&url)?;
            relay::<Postgres>(pool, &config, migrate, stop).await
        }
        Some("sqlite") => {
            let options: SqliteConnectOptions = url.parse()?;
            relay::<Sqlite>(twinbox_sql::sqlite::open(options.get_filename()).await?, &config, migrate, stop)
                .await
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

async fn relay<DB: Dialect>(
    pool: sqlx::Pool<DB>,
    config: &Config,
    migrate: bool,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let Database { service, namespace, .. } = &config.database;
    let store = Store::with_options(pool, service, StoreOptions::new().namespace(namespace))?;
    if migrate {
        store.migrate().await?;
    }
    let stop = stop.child_token();
    let mut relays = JoinSet::new();
    for (id, destination) in &config.destinations {
        let Destination::Nats(options) = destination;
        let start = match options.start {
            config::Start::Beginning => log::Start::Beginning,
            config::Start::Now => log::Start::Now,
        };
        let relay_options = RelayOptions::new().start(start).in_flight(options.in_flight);
        let relay = Relay::with_options(store.clone(), nats(id, options)?, relay_options);
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
    if let Some(file) = &config.token_file {
        options = options.token(secret("token", None, Some(file))?);
    }
    if config.create_stream {
        options = options.create_stream(StreamOptions::default());
    }
    Ok(Nats::with_options(options)?)
}
