//! The program `twinbox-relay`: the library with a configuration file, logs and signals.
use crate::{
    Error, Mover,
    admin::{self, Broken},
    check,
    config::{Config, ConfigError, LogFormat, secret},
    maintenance::{self, Maintenance},
    schemas::Schemas,
    setup::relay,
};
use clap::{Parser, Subcommand};
use sqlx::{
    Postgres, Sqlite,
    postgres::{PgConnectOptions, PgPoolOptions},
    sqlite::SqliteConnectOptions,
};
use std::{
    error::Error as StdError,
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};
use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder};
use tracing_subscriber::EnvFilter;
use twinbox_sql::Dialect;

/// Lines of the log that wait to be written. What comes then is dropped.
const LOG_LINES_MAX: usize = 4096;
/// How long until a destination that was not set up as asked is tried again.
const BROKEN_PAUSE: Duration = Duration::from_secs(30);
/// How long a connection to the database may take: an idle one is asked first whether it lives.
const CONNECTION_MAX: Duration = Duration::from_secs(5);

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
        /// One schema of the file. Without it all of them.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
        #[command(flatten)]
        retention: maintenance::PurgeArguments,
    },
    /// Forget a destination that is gone for good, with what it has put aside, so that the log is not kept for it.
    Retire {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The schema, if the file has several.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
        /// Its name; of a consumer that reads the log, `consumer:NAME`.
        name: String,
    },
    /// Blank the payloads of all messages of a key: in the log, among those that wait, among the dead letters.
    Redact {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// One schema of the file. Without it all of them.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
        /// The key. It stays, and so do ids, types and times.
        key: String,
    },
    /// Make the log readable again after the database was restored from a dump. Runs as the owner of the tables.
    Rebase {
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// One schema of the file. Without it all of them.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
    },
    /// Open the breaker of a destination by hand, in whatever process owns it, or close it again.
    #[command(subcommand)]
    Breaker(BreakerCommand),
    /// About the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum BreakerCommand {
    /// Send nothing more until it is closed, over restarts too. Takes effect within a second.
    Open {
        /// The id of the destination.
        destination: String,
        /// Why, for whoever looks next.
        #[arg(long)]
        reason: String,
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The schema, if the file has several and not this destination.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
    },
    /// Send again.
    Close {
        /// The id of the destination.
        destination: String,
        /// The configuration file.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The schema, if the file has several and not this destination.
        #[arg(long, value_name = "NAME")]
        schema: Option<String>,
    },
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
enum Task {
    Relay { migrate: bool },
    Check,
    Maintain { what: Maintenance, schema: Option<String> },
}

/// Runs the program on the process's arguments and environment.
pub fn main() -> ExitCode {
    let command = Arguments::parse().command;
    // Lossy, so that nobody who logs waits for whoever reads. The guard writes what is left.
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
    let maintain = |config, schema, what| (config, Task::Maintain { what, schema });
    let (path, task) = match command {
        Command::Run { config, migrate } => (config, Task::Relay { migrate }),
        Command::Check { config } => (config, Task::Check),
        Command::Purge { config, schema, retention } => {
            maintain(config, schema, Maintenance::Purge(retention))
        }
        Command::Retire { config, schema, name } => maintain(config, schema, Maintenance::Retire(name)),
        Command::Redact { config, schema, key } => maintain(config, schema, Maintenance::Redact(key)),
        Command::Rebase { config, schema } => maintain(config, schema, Maintenance::Rebase),
        Command::Breaker(BreakerCommand::Open { destination, reason, config, schema }) => {
            maintain(config, schema, Maintenance::OpenBreaker { destination, reason })
        }
        Command::Breaker(BreakerCommand::Close { destination, config, schema }) => {
            maintain(config, schema, Maintenance::CloseBreaker(destination))
        }
        Command::Config(ConfigCommand::Print { config }) => {
            print!("{}", Config::print(config.as_deref(), std::env::vars())?);
            return Ok(());
        }
    };
    let config = Config::load(path.as_deref(), std::env::vars())?;
    start_log(config.log.format, log);
    runtime(config.destinations.len())?.block_on(run(config, task))
}

fn start_log(format: LogFormat, log: NonBlocking) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,async_nats=warn"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(log);
    match format {
        LogFormat::Pretty => lines.init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// A thread for each destination, if there are as many cores: what hands a message from core to core makes a
/// relay slower by a seventh.
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
            let mut options: PgConnectOptions = url.parse()?;
            if config.database.pooler {
                // PgBouncer refuses what it does not know.
                options = options.extra_float_digits(None);
            }
            let pool = PgPoolOptions::new().max_connections(config.database.max_connections);
            let pool = pool.acquire_timeout(CONNECTION_MAX);
            work::<Postgres>(pool.connect_lazy_with(options), &config, task).await
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
    let schemas = Arc::new(Schemas::new(&pool, config)?);
    let migrate = match task {
        Task::Check => return check::run(&schemas, config).await,
        Task::Maintain { what, schema } => return what.run(&schemas, config, schema.as_deref()).await,
        Task::Relay { migrate } => migrate,
    };
    let stop = CancellationToken::new();
    listen(stop.clone())?;
    if migrate {
        for schema in schemas.all() {
            let service = schema.store.service();
            tracing::info!(schema = schema.name, service, "bringing the tables up to date");
            let migrated = schema.store.migrate().await;
            migrated.inspect_err(|_| {
                tracing::error!(schema = schema.name, service, "the tables are not up to date")
            })?;
        }
    }
    let broken = Broken::default();
    if let Some(address) = config.admin.listen {
        let destinations = config.destinations.len();
        admin::serve(address, schemas.clone(), destinations, broken.clone(), stop.clone()).await?;
    }
    let mut tasks = JoinSet::new();
    let mover = |n: usize| Mover::new(schemas.all()[n].store.clone()).run(stop.clone());
    for (n, schema) in schemas.all().iter().enumerate() {
        if !config.destinations.keys().any(|id| config.namespace_of(id) == schema.name) {
            tracing::warn!(schema = schema.name, "no destination reads this schema: its messages go nowhere");
        }
        tasks.spawn(run_after(Duration::ZERO, Runner::Mover(n), mover(n), stop.clone()));
    }
    for id in config.destinations.keys() {
        let relay = relay(&schemas, config, id)?.run(stop.clone());
        tasks.spawn(run_after(Duration::ZERO, Runner::Relay(id.clone()), relay, stop.clone()));
    }
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let (runner, Err(error)) = ended? else { continue };
        let cause = &error as &dyn StdError;
        let id = match runner {
            Runner::Relay(id) => id,
            Runner::Mover(n) => {
                let schema = &schemas.all()[n].name;
                tracing::error!(schema, error = cause, again = ?BROKEN_PAUSE, "messages published for later stay where they are");
                tasks.spawn(run_after(BROKEN_PAUSE, runner, mover(n), stop.clone()));
                continue;
            }
        };
        let again = relay(&schemas, config, &id)?;
        broken.add(&id, &error, again.breaker());
        if broken.all().len() < config.destinations.len() {
            tracing::error!(destination = id, error = cause, again = ?BROKEN_PAUSE, "the others go on");
            tasks.spawn(run_after(BROKEN_PAUSE, Runner::Relay(id), again.run(stop.clone()), stop.clone()));
        } else {
            stop.cancel();
            result = Err(error.into());
        }
    }
    result
}

/// Whose task it is: the mover of a schema, or the relay of a destination.
enum Runner {
    Mover(usize),
    Relay(String),
}

/// Answers with whose it was.
async fn run_after(
    pause: Duration,
    runner: Runner,
    task: impl Future<Output = Result<(), Error>>,
    stop: CancellationToken,
) -> (Runner, Result<(), Error>) {
    let _ = stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    (runner, task.await)
}
