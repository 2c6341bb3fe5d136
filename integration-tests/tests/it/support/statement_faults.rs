//! Connections that know which statement passes, and fail there.
mod catalog;
mod sqlite;
mod wire;

use super::stores::{TestDb, World};
use catalog::Catalog;
use sqlx::{MySql, Pool, Postgres, mysql::MySqlSslMode, pool::PoolOptions, postgres::PgSslMode};
use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::oneshot, task::JoinSet};
use twinbox::{Dialect, Store};
use twinbox_core::task_name::TaskName;
use wire::Wire;

/// A failure of a connection at a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing passes any more, in either direction, not even the end. The server has not got the statement.
    Silent,
    /// The same, behind the statement: the server has executed it.
    Unanswered,
    /// It is cut before the server gets the statement.
    Cut,
    /// It is cut when the server has executed it, or the first of several that came together, before the
    /// answer.
    CutUnanswered,
}

impl Fault {
    fn is_cut(self) -> bool {
        matches!(self, Self::Cut | Self::CutUnanswered)
    }

    /// Whether the server gets the statement.
    fn is_late(self) -> bool {
        matches!(self, Self::Unanswered | Self::CutUnanswered)
    }
}

/// A fault that has happened.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) at: Instant,
    /// How long after it the client closed the connection. On SQLite: how long after it the file answered.
    pub(crate) hung_up: oneshot::Receiver<Duration>,
}

struct Armed {
    statement: String,
    fault: Fault,
    happened: oneshot::Sender<Happened>,
}

/// How a silent connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// As it does in the field: the server does not hear that the client is gone. A file answers after a
    /// time.
    AsItIs,
    /// The server hears of it when a client has closed the connection, and ends its session. A file answers
    /// when the statement is [`disarmed`](StatementFaults::disarm).
    UntilItIsOver,
}

/// A database whose connections can fail at a statement.
pub(crate) trait Faulty: TestDb {
    /// The faults that it can have.
    const FAULTS: &[Fault];
    /// In how many parts the statements of a program with many are shared, so that all ends in time.
    const PARTS: u64;
    /// Whether a silence ends by itself.
    const ANSWERS_AGAIN: bool = false;
    /// Tasks that it never has.
    const WITHOUT: &[TaskName] = &[];

    fn faults(runtime: &Handle, world: &World<Self>, silence: Silence) -> StatementFaults<Self>;
}

/// The failures of one program.
pub(crate) struct StatementFaults<DB: Dialect> {
    shared: Arc<Shared>,
    open: Box<dyn Fn(PoolOptions<DB>) -> Pool<DB> + Send + Sync>,
    _accepting: JoinSet<()>,
}

struct Shared {
    catalog: Catalog,
    seen: Mutex<BTreeSet<String>>,
    armed: Mutex<Option<Armed>>,
    silence: Silence,
    is_over: Mutex<bool>,
    over: Condvar,
}

impl Shared {
    fn of<DB: TestDb>(world: &World<DB>, silence: Silence) -> Arc<Self> {
        Arc::new(Self {
            catalog: Catalog::of(world),
            seen: Mutex::default(),
            armed: Mutex::default(),
            silence,
            is_over: Mutex::default(),
            over: Condvar::new(),
        })
    }

    fn note(&self, names: &[String]) {
        self.seen.lock().unwrap().extend(names.iter().cloned());
    }

    /// Returns the fault of one of these statements.
    fn take(&self, names: &[String], is_right: impl Fn(Fault) -> bool) -> Option<Armed> {
        let is_taken = |armed: &mut Armed| names.contains(&armed.statement) && is_right(armed.fault);
        self.armed.lock().unwrap().take_if(is_taken)
    }
}

impl<DB: Dialect> StatementFaults<DB> {
    /// Opens connections that may fail.
    pub(crate) fn pool(&self, connections: u32) -> Pool<DB> {
        (self.open)(PoolOptions::new().max_connections(connections))
    }

    /// The names of the statements that have passed so far.
    pub(crate) fn seen(&self) -> BTreeSet<String> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Lets the next execution of a statement fail. Only one statement waits for that.
    pub(crate) fn arm(&self, statement: &str, fault: Fault) -> oneshot::Receiver<Happened> {
        let (happened, happens) = oneshot::channel();
        let armed = Armed { statement: statement.to_owned(), fault, happened };
        *self.shared.is_over.lock().unwrap() = false;
        *self.shared.armed.lock().unwrap() = Some(armed);
        happens
    }

    /// Ends the wait for the statement.
    pub(crate) fn disarm(&self) {
        *self.shared.armed.lock().unwrap() = None;
        *self.shared.is_over.lock().unwrap() = true;
        self.shared.over.notify_all();
    }
}

impl Faulty for Postgres {
    const FAULTS: &[Fault] = &[Fault::Silent, Fault::Unanswered, Fault::Cut, Fault::CutUnanswered];
    const PARTS: u64 = 2;

    fn faults(runtime: &Handle, world: &World<Self>, silence: Silence) -> StatementFaults<Self> {
        let shared = Shared::of(world, silence);
        let (port, _accepting) = wire::listen(runtime, Wire::Postgres, world.url(), &shared);
        let options = (*Store::pool(world).connect_options()).clone();
        let options = options.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
        let open = Box::new(move |pool: PoolOptions<Self>| pool.connect_lazy_with(options.clone()));
        StatementFaults { shared, open, _accepting }
    }
}

impl Faulty for MySql {
    const FAULTS: &[Fault] = Postgres::FAULTS;
    const PARTS: u64 = 2;

    fn faults(runtime: &Handle, world: &World<Self>, silence: Silence) -> StatementFaults<Self> {
        let shared = Shared::of(world, silence);
        let (port, _accepting) = wire::listen(runtime, Wire::MySql, world.url(), &shared);
        let options = (*Store::pool(world).connect_options()).clone();
        let options = options.host("127.0.0.1").port(port).ssl_mode(MySqlSslMode::Disabled);
        let open = Box::new(move |pool: PoolOptions<Self>| pool.connect_lazy_with(options.clone()));
        StatementFaults { shared, open, _accepting }
    }
}
