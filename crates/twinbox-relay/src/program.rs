//! The program `twinbox-relay`: the library with a configuration file, logs and signals.
use crate::{
    check,
    config::{Config, ConfigError, LogFormat},
    failure::Failure,
    otlp::Otlp,
    pools::{DatabaseUrl, Pools},
    purge::PurgeArguments,
    schemas::Schemas,
    supervisor, trace,
};
use clap::{Parser, Subcommand};
use std::{
    error::Error as StdError,
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
};
use tokio::runtime::{Builder, Runtime};
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};
use twinbox_sql::Dialect;

/// Lines of the log that wait to be written. Further lines are dropped.
const LOG_LINES_MAX: usize = 4096;

#[derive(Debug, Parser)]
#[command(
    version,
    about = "Moves messages from a Twinbox outbox to their destinations",
    after_help = "Exit codes: 0 stopped by a signal or done, 1 failed, 2 wrong arguments.\n\
        The log goes to stderr. RUST_LOG sets its level, `info` by default.\n\
        The program `twinbox` pauses, resumes, retires and repairs destinations."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Relay until SIGTERM or SIGINT, then wait for the messages in flight. A second signal stops at once.
    Run {
        /// The configuration file. Without it all values come from TWINBOX_RELAY__… variables.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Migrate the tables to this version first. Needs the right to create tables.
        #[arg(long)]
        migrate: bool,
    },
    /// Check the configuration, the database and the destinations, and print where each type goes. Creates
    /// nothing.
    Check {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Delete old rows now: messages, keys, ended effects, runs of jobs. The keeper of `run` does it daily.
    Purge {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// One schema of the file. Default: all schemas.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
        #[command(flatten)]
        retention: PurgeArguments,
    },
    /// Commands about the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every value in force with its origin. Secrets are masked.
    Print {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

/// A command that needs the configuration and the database.
enum DatabaseCommand {
    Run { migrate: bool },
    Check,
    Purge { retention: PurgeArguments, schema: Option<String> },
}

/// Runs the program `twinbox-relay` with the arguments and the environment of the process.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Lossy, so that the relay never waits for the reader of its log. The guard writes the remaining lines.
    let (log, _guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(LOG_LINES_MAX)
        .finish(std::io::stderr());
    match execute(command, log.clone()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error, log),
    }
}

fn execute(command: Command, log: NonBlocking) -> Result<(), Failure> {
    let (path, command) = match command {
        Command::Run { config, migrate } => (config, DatabaseCommand::Run { migrate }),
        Command::Check { config } => (config, DatabaseCommand::Check),
        Command::Purge { config, schema, retention } => {
            (config, DatabaseCommand::Purge { retention, schema })
        }
        Command::Config(ConfigCommand::Print { config }) => {
            print!("{}", Config::print(config.as_deref(), std::env::vars())?);
            return Ok(());
        }
    };
    let config = Config::load(path.as_deref(), std::env::vars())?;
    let runtime = runtime(config.destinations.len())?;
    let otlp = match command {
        DatabaseCommand::Run { .. } => {
            runtime.block_on(async { Otlp::from_env(config.collector.allow_plain) })?
        }
        _ => None,
    };
    start_log(config.log.format, log, otlp.as_ref())?;
    let result = runtime.block_on(run(config, command, otlp.clone()));
    otlp.into_iter().for_each(Otlp::shut_down);
    result
}

/// Starts the log. The spans of sends go only to a collector: the log would pay for them and show none.
///
/// Without a collector there is one filter for all: filters of layers drop a line of the log now and then,
/// after a span that none of them takes.
fn start_log(format: LogFormat, log: NonBlocking, otlp: Option<&Otlp>) -> Result<(), Failure> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,async_nats=warn"));
    let filter = filter.add_directive(format!("{}=off", trace::TARGET).parse()?);
    // It logs parameters of a URL that it does not know with their values, such as `sslpassword`.
    let filter = filter.add_directive("sqlx_postgres::options::parse=off".parse()?);
    let lines = fmt::layer().with_ansi(std::io::stderr().is_terminal()).with_writer(log);
    let lines = match format {
        LogFormat::Pretty => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    match otlp.and_then(Otlp::layer) {
        None => tracing_subscriber::registry().with(lines).with(filter).init(),
        Some(exported) => {
            let spans = Targets::new().with_target(trace::TARGET, LevelFilter::INFO);
            let lines = lines.with_filter(filter);
            tracing_subscriber::registry().with(lines).with(exported.with_filter(spans)).init();
        }
    }
    Ok(())
}

/// Makes a thread for each destination, up to the number of cores. With more threads messages move from core
/// to core, which makes a relay slower by a seventh.
fn runtime(destinations: usize) -> std::io::Result<Runtime> {
    let cores = std::thread::available_parallelism()?.get();
    Builder::new_multi_thread().worker_threads(destinations.clamp(1, cores)).enable_all().build()
}

fn failed(error: &dyn StdError, mut log: NonBlocking) -> ExitCode {
    let _ = writeln!(log, "twinbox-relay: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        tracing::debug!(%cause, "caused by");
        source = cause.source();
    }
    ExitCode::FAILURE
}

async fn run(config: Config, command: DatabaseCommand, otlp: Option<Otlp>) -> Result<(), Failure> {
    if config.destinations.is_empty() && config.vendors.is_empty() {
        let what =
            "there is no destination and no vendor: add a table `[destinations.NAME]` or `[vendors.NAME]`";
        return Err(ConfigError::new(what).into());
    }
    let url = DatabaseUrl::of_main(&config)?;
    match url.scheme() {
        Some("postgres" | "postgresql") => {
            run_with(Pools::postgres(&config, &url)?, &config, command, otlp).await
        }
        Some("mysql" | "mariadb") => run_with(Pools::mysql(&config, &url)?, &config, command, otlp).await,
        Some("sqlite") => {
            let makes_files = matches!(command, DatabaseCommand::Run { migrate: true });
            run_with(Pools::sqlite(&config, &url, makes_files).await?, &config, command, otlp).await
        }
        _ => {
            Err(ConfigError::new("`database.url` has to start with `postgres:`, `mysql:` or `sqlite:`")
                .into())
        }
    }
}

async fn run_with<DB: Dialect>(
    mut pools: Pools<DB>,
    config: &Config,
    command: DatabaseCommand,
    otlp: Option<Otlp>,
) -> Result<(), Failure> {
    let schemas = Arc::new(Schemas::new(&pools, config)?);
    match command {
        DatabaseCommand::Run { migrate } => {
            pools.main = pools.keeper.take().unwrap_or(pools.main);
            let keepers = config.keeper.enabled.then(|| Schemas::new(&pools, config)).transpose()?;
            supervisor::run(schemas, keepers, config, migrate, otlp).await
        }
        DatabaseCommand::Check => {
            let keepers = match pools.keeper.take().filter(|_| config.keeper.enabled) {
                Some(main) => Some(Schemas::new(&Pools { main, ..pools }, config)?),
                None => None,
            };
            check::run(&schemas, keepers.as_ref(), config).await
        }
        DatabaseCommand::Purge { retention, schema } => {
            pools.main = pools.keeper.take().unwrap_or(pools.main);
            retention.run(&Schemas::new(&pools, config)?, schema.as_deref()).await
        }
    }
}
