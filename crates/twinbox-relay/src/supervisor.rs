//! Runs the relays and the movers of delayed messages until the program is stopped.
use crate::{
    admin,
    config::Config,
    delayed_messages::DelayedMessageMover,
    error::Error,
    failure::Failure,
    otlp::Otlp,
    readiness::{Broken, Readiness},
    recorder,
    restarts::Restarts,
    schemas::{Schema, Schemas},
    setup, systemd, vendors,
};
use futures::future::join_all;
use std::{
    collections::HashMap,
    error::Error as StdError,
    future::ready,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use twinbox_core::task_name::TaskName;
use twinbox_effects::Dispatcher;
use twinbox_log::{Keeper, Shares};
use twinbox_sql::Dialect;

/// A part of the program that runs until it is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Worker {
    /// The dispatcher of a schema's side effects, by the schema's index.
    Dispatcher(usize),
    /// The mover of delayed messages of a schema, by the schema's index.
    Mover(usize),
    /// The relay of a destination, by the destination's id.
    Relay(String),
}

/// Runs one relay for each destination, and for each schema a mover, a keeper and, if it has vendors, a
/// dispatcher.
///
/// A worker that stops with an error is started again, and the others continue. Fails when every destination
/// has failed.
pub(crate) async fn run<DB: Dialect>(
    schemas: Arc<Schemas<DB>>,
    keepers: Option<Schemas<DB>>,
    config: &Config,
    migrate: bool,
    otlp: Option<Otlp>,
) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    stop_on_signal(stop.clone())?;
    if migrate {
        migrate_all(&schemas).await?;
    }
    let broken = Broken::default();
    let readiness = Arc::new(Readiness::new(&schemas, config, &broken));
    if config.admin.listen.is_some() || otlp.is_some() {
        let recorded = recorder::install(otlp.as_ref(), stop.clone())?;
        if let Some(address) = config.admin.listen {
            admin::serve(address, readiness.clone(), recorded, stop.clone()).await?;
        }
    }
    if let Some(otlp) = otlp {
        otlp.read_databases(schemas.clone(), stop.clone());
    }
    let _notifying = systemd::start(readiness, stop.clone());
    let mut keeping = JoinSet::new();
    for schema in keepers.iter().flat_map(Schemas::all) {
        let keeper = Keeper::new(&schema.store).keep(config.keeper.keep.0);
        let keeping_tables = keeper.first_look(config.keeper.first_look.0).run(stop.clone());
        keeping.spawn(TaskName::RelayKeeper.of(keeping_tables));
    }
    let mut workers = JoinSet::new();
    let mover = |n: usize| {
        let schema = &schemas.all()[n];
        DelayedMessageMover::new(schema.store.clone()).idle_poll(schema.idle_poll).run(stop.clone())
    };
    for (n, schema) in schemas.all().iter().enumerate() {
        if !config.destinations.keys().any(|id| config.outbox_of(id) == schema.name) {
            tracing::warn!(schema = schema.name, "no destination reads this schema: its messages go nowhere");
        }
        start_after(Duration::ZERO, Worker::Mover(n), mover(n), &mut workers, &stop);
        if let Some(dispatcher) = vendors::dispatcher(schema, config)? {
            let dispatching = dispatch(dispatcher, stop.clone());
            start_after(Duration::ZERO, Worker::Dispatcher(n), dispatching, &mut workers, &stop);
        }
    }
    let shares = Shares::new();
    for id in config.destinations.keys() {
        let relay = setup::relay(&schemas, config, id, &shares)?.run(stop.clone());
        start_after(Duration::ZERO, Worker::Relay(id.clone()), relay, &mut workers, &stop);
    }
    let (mut restarts, started_at) = (HashMap::<Worker, Restarts>::new(), Instant::now());
    let mut result = Ok(());
    while let Some(ended) = workers.join_next().await {
        let (worker, Err(error)) = ended? else { continue };
        let cause = &error as &dyn StdError;
        let restarts = restarts.entry(worker.clone()).or_insert_with(|| Restarts::new(started_at));
        let delay = restarts.next_delay(Instant::now());
        let id = match worker {
            Worker::Relay(id) => id,
            Worker::Dispatcher(n) => {
                let schema = &schemas.all()[n];
                tracing::error!(
                    schema = schema.name,
                    error = cause,
                    restart_after = ?delay,
                    "side effects are not sent"
                );
                match vendors::dispatcher(schema, config) {
                    Ok(None) => {}
                    Ok(Some(dispatcher)) => {
                        let dispatching = dispatch(dispatcher, stop.clone());
                        start_after(delay, worker, dispatching, &mut workers, &stop);
                    }
                    Err(failure) => {
                        tracing::error!(
                            schema = schema.name,
                            error = &*failure,
                            "no vendor can be made again"
                        );
                        start_after(delay, worker, ready(Err(error)), &mut workers, &stop);
                    }
                }
                continue;
            }
            Worker::Mover(n) => {
                let schema = &schemas.all()[n].name;
                tracing::error!(
                    schema,
                    error = cause,
                    restart_after = ?delay,
                    "delayed messages are not moved into the outbox"
                );
                start_after(delay, worker, mover(n), &mut workers, &stop);
                continue;
            }
        };
        let relay = match setup::relay(&schemas, config, &id, &shares) {
            Ok(relay) => relay,
            Err(failure) => {
                tracing::error!(destination = id, error = &*failure, "its relay cannot be made again");
                start_after(delay, Worker::Relay(id), ready(Err(error)), &mut workers, &stop);
                continue;
            }
        };
        broken.add(&id, &error, relay.breaker());
        if broken.all().len() < config.destinations.len() {
            tracing::error!(
                destination = id,
                error = cause,
                restart_after = ?delay,
                "the relay of the destination stopped: other destinations continue"
            );
            start_after(delay, Worker::Relay(id), relay.run(stop.clone()), &mut workers, &stop);
        } else {
            stop.cancel();
            result = Err(error.into());
        }
    }
    result
}

/// Cancels `stop` at the first SIGTERM or SIGINT. Exits at the second.
fn stop_on_signal(stop: CancellationToken) -> Result<(), Failure> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(TaskName::Signals.of(async move {
        loop {
            let code = tokio::select! {
                _ = term.recv() => 143,
                _ = int.recv() => 130,
            };
            if stop.is_cancelled() {
                tracing::warn!("stopping at once");
                std::process::exit(code);
            }
            tracing::info!("stopping: waiting for the messages in flight");
            systemd::notify_stopping();
            stop.cancel();
        }
    }));
    Ok(())
}

/// Migrates all databases at once. Fails if none of them could be migrated: one that is away stops no other.
async fn migrate_all<DB: Dialect>(schemas: &Schemas<DB>) -> Result<(), Failure> {
    let databases = schemas.by_database();
    let migrated = join_all(databases.iter().map(|schemas| migrate(schemas))).await;
    if migrated.iter().any(Result::is_ok) { Ok(()) } else { migrated.into_iter().collect() }
}

/// Migrates the schemas of one database.
async fn migrate<DB: Dialect>(schemas: &[&Schema<DB>]) -> Result<(), Failure> {
    for schema in schemas {
        let service = schema.store.service();
        tracing::info!(schema = schema.name, service, "migrating the tables");
        let migrated = schema.store.migrate().await;
        migrated.inspect_err(|error| {
            let error = error as &dyn StdError;
            tracing::error!(schema = schema.name, service, error, "the tables could not be migrated");
        })?;
    }
    Ok(())
}

async fn dispatch<DB: Dialect>(dispatcher: Dispatcher<DB>, stop: CancellationToken) -> Result<(), Error> {
    Ok(dispatcher.run(stop).await?)
}

fn start_after(
    delay: Duration,
    worker: Worker,
    run: impl Future<Output = Result<(), Error>> + Send + 'static,
    workers: &mut JoinSet<(Worker, Result<(), Error>)>,
    stop: &CancellationToken,
) {
    let stop = stop.clone();
    workers.spawn(TaskName::RelayWorker.of(async move {
        let _ = stop.run_until_cancelled(tokio::time::sleep(delay)).await;
        (worker, run.await)
    }));
}
