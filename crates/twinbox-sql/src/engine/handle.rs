//! The engine of a store: the pool, the statements, and the state that all clones of a store have in common.
//!
//! A [`Store`](crate::Store) is a thin shell around an [`Engine`].
use crate::{
    Dialect, Error, ErrorKind, OwnedTx,
    catalog::Catalog,
    connection::{Connection, Direct},
    owned_tx::PooledTx,
    statement::{Query, Statement, query, scalar},
    texts::Texts,
    writer,
};
use sqlx::Pool;
use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore, watch};
use twinbox_core::test_signal;

/// How long a transaction waits for its turn to write on SQLite.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Connections of a pool that handlers leave to the runtime and the application.
const CONNECTIONS_LEFT: usize = 2;
/// How often a server run is recorded and read again. Once is enough, unless the server ends in between.
const RUN_TRIES_MAX: u32 = 3;

/// The connection pool and the SQL statements of a store, with the state that its clones share.
pub struct Engine<DB: Dialect> {
    pool: Pool<DB>,
    catalog: Arc<Catalog>,
    shared: Arc<Shared>,
}

/// What all clones of a store have in common.
struct Shared {
    committed: Arc<watch::Sender<()>>,
    writer: Option<Arc<Semaphore>>,
    has_no_pooler: AtomicBool,
    handler_lock: RwLock<()>,
    handler_permits: Semaphore,
    request_permits: Arc<Semaphore>,
    state: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

/// All but two connections, but at least half of a small pool.
fn request_permits(connections: usize) -> usize {
    let left = CONNECTIONS_LEFT.min(connections.saturating_sub(1) / 2);
    (connections - left).clamp(1, Semaphore::MAX_PERMITS)
}

impl<DB: Dialect> Engine<DB> {
    pub(crate) fn new(pool: Pool<DB>, catalog: Catalog) -> Self {
        let connections = usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
        let permits = connections.saturating_sub(CONNECTIONS_LEFT).clamp(1, Semaphore::MAX_PERMITS);
        let shared = Shared {
            committed: Arc::new(watch::Sender::new(())),
            writer: DB::ONE_WRITER.then(|| writer::permit(DB::file_of(&pool))),
            has_no_pooler: AtomicBool::new(false),
            handler_lock: RwLock::default(),
            handler_permits: Semaphore::new(permits),
            request_permits: Arc::new(Semaphore::new(request_permits(connections))),
            state: Mutex::default(),
        };
        Self { pool, catalog: Arc::new(catalog), shared: Arc::new(shared) }
    }

    /// Returns the connection pool.
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// Returns what never changes in an open store: its name, its tables and its SQL statements.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns the SQL statements of the store.
    pub fn sql(&self) -> &Texts<Statement> {
        &self.catalog.sql
    }

    /// Returns the name of the service that owns the store.
    pub fn service(&self) -> &str {
        &self.catalog.service
    }

    /// Returns a channel that changes after each commit of an [`OwnedTx`](crate::OwnedTx), and of a handler
    /// that published an event or asked for an effect.
    pub fn committed(&self) -> watch::Receiver<()> {
        self.shared.committed.subscribe()
    }

    /// Returns a lock that handlers share, and that a handler which runs alone takes exclusively.
    pub fn handler_lock(&self) -> &RwLock<()> {
        &self.shared.handler_lock
    }

    /// Returns the semaphore that bounds how many connections the handlers of all consumers use. The other
    /// connections are for leases, for the records after an attempt, and for the application.
    pub fn handler_permits(&self) -> &Semaphore {
        &self.shared.handler_permits
    }

    /// Waits for a permit for the connection of a request, as long as the pool would wait for one. They bound
    /// how many connections requests use; the others are for what a handler asks the pool for. Consumers have
    /// their own, so that a busy one lets requests pass.
    ///
    /// # Errors
    /// None was free in time.
    pub async fn request_permit(&self) -> Result<OwnedSemaphorePermit, Error> {
        let permit = self.shared.request_permits.clone().acquire_owned();
        let permit = tokio::time::timeout(self.pool.options().get_acquire_timeout(), permit).await;
        Ok(permit.ok().and_then(Result::ok).ok_or(sqlx::Error::PoolTimedOut)?)
    }

    /// Returns a value of type `T` that a crate keeps with the store, which all clones share.
    pub fn state<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let value = state.entry(TypeId::of::<T>()).or_insert_with(|| Arc::new(T::default()));
        value.clone().downcast().expect("the value of its type")
    }

    /// Begins a transaction of Twinbox itself, see [`Dialect::BEGIN_BOUNDED`].
    ///
    /// # Errors
    /// No connection within the pool's time-out, the database refused, or on SQLite another transaction of
    /// this process did not end within 10 s.
    pub async fn begin(&self) -> Result<OwnedTx<DB>, Error> {
        self.begin_with(DB::BEGIN_BOUNDED).await
    }

    /// Begins a transaction for the application, or for a handler, whose guard bounds it.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) async fn begin_for_caller(&self) -> Result<OwnedTx<DB>, Error> {
        self.begin_with(DB::BEGIN).await
    }

    /// Begins a short transaction of the runtime, see [`Dialect::BEGIN_SHORT`].
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn begin_short(&self) -> Result<OwnedTx<DB>, Error> {
        self.begin_with(DB::BEGIN_SHORT).await
    }

    /// Begins a transaction that claims something first, see [`Dialect::BEGIN_TO_CLAIM`].
    pub(crate) async fn begin_to_claim(&self) -> Result<OwnedTx<DB>, Error> {
        self.begin_with(DB::BEGIN_TO_CLAIM).await
    }

    /// Begins a transaction with a given statement instead of `BEGIN`.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub async fn begin_with(&self, statement: &'static str) -> Result<OwnedTx<DB>, Error> {
        let permit = self.write_permit().await?;
        self.begin_permitted(permit, statement).await
    }

    pub(crate) async fn begin_permitted(
        &self,
        permit: Option<OwnedSemaphorePermit>,
        statement: &'static str,
    ) -> Result<OwnedTx<DB>, Error> {
        let tx = PooledTx::begin(self.pool.clone(), statement).await?;
        let committed = self.shared.committed.clone();
        Ok(OwnedTx { tx, permit, committed, taken_at: Instant::now(), last_guard: None })
    }

    /// Waits for this task's turn to write, on databases with a single writer.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`]: another transaction of this process did not end within 10 s.
    pub async fn write_permit(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let Some(writer) = &self.shared.writer else { return Ok(None) };
        if writer.available_permits() == 0 {
            test_signal::pass("store.waits_to_write");
        }
        let permit = tokio::time::timeout(WRITE_WAIT_MAX, writer.clone().acquire_owned()).await;
        let permit = permit.map_err(|_| {
            Error::new(
                ErrorKind::Busy,
                "another transaction of this process has held the write permit for 10 s: \
                 inside a handler write with its own `tx`, and do not begin another transaction",
            )
        })?;
        Ok(permit.ok())
    }

    /// Takes a connection from the pool for statements that need no transaction.
    ///
    /// # Errors
    /// No connection within the pool's time-out.
    pub async fn connection(&self) -> Result<Connection<DB>, Error> {
        Ok(match self.catalog.is_named {
            true => Connection::Direct(Direct { conn: self.pool.acquire().await?.into(), is_done: false }),
            // Behind a pooler, which only Postgres has: there sqlx ends it as one that it has begun.
            false => Connection::InTransaction(PooledTx::begin(self.pool.clone(), DB::BEGIN_BOUNDED).await?),
        })
    }

    /// Takes a connection to read with, by few statements that each run many times. The database would spend
    /// more time on their plans than on their rows.
    ///
    /// # Errors
    /// As [`connection`](Self::connection).
    pub async fn connection_for_many(&self) -> Result<Connection<DB>, Error> {
        Ok(match DB::BEGIN_PLANNED_ONCE {
            Some(begin) => Connection::InTransaction(PooledTx::begin(self.pool.clone(), begin).await?),
            None => self.connection().await?,
        })
    }

    /// Runs one statement outside a transaction. Returns the number of rows that it changed.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn execute<'q>(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Query<'q, DB>) -> Query<'q, DB> + Send,
    ) -> Result<u64, Error> {
        if statement.has_bounded_wait() && DB::COMMIT.is_some() {
            let mut tx = self.begin_short().await?;
            let done = match bind(query::<DB>(statement)).execute(tx.connection()).await {
                Ok(done) => done,
                Err(error) => {
                    let _ = tx.rollback().await;
                    return Err(error.into());
                }
            };
            // Readers of the log have nothing to read.
            tx.commit_guarded(false).await?;
            return Ok(DB::rows_affected(&done));
        }
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let done = bind(query::<DB>(statement)).execute(&mut *conn).await?;
        conn.done().await?;
        Ok(DB::rows_affected(&done))
    }

    /// Reads all rows of a statement.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn fetch_all<'q>(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Query<'q, DB>) -> Query<'q, DB> + Send,
    ) -> Result<Vec<DB::Row>, Error> {
        let mut conn = self.connection().await?;
        let rows = bind(query::<DB>(statement)).fetch_all(&mut *conn).await?;
        conn.done().await?;
        Ok(rows)
    }

    /// Reads the first row of a statement.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn fetch_optional<'q>(
        &self,
        statement: &Statement,
        bind: impl FnOnce(Query<'q, DB>) -> Query<'q, DB> + Send,
    ) -> Result<Option<DB::Row>, Error> {
        let mut conn = self.connection().await?;
        let row = bind(query::<DB>(statement)).fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(row)
    }

    /// Returns the given connection, or takes one from the pool. Another one costs a round trip, because the
    /// pool pings it.
    ///
    /// # Errors
    /// As [`connection`](Self::connection).
    pub async fn connection_or(&self, at_hand: Option<Connection<DB>>) -> Result<Connection<DB>, Error> {
        match at_hand {
            Some(conn) => Ok(conn),
            None => self.connection().await,
        }
    }

    /// Refuses named statements where connections are shared between transactions. Looks once in a process.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`]: there is a pooler; or the database refused or is away.
    pub async fn check_pooler(&self) -> Result<(), Error> {
        if !self.catalog.is_named || self.shared.has_no_pooler.load(Ordering::Relaxed) {
            return Ok(());
        }
        if DB::is_pooled(&self.pool).await? {
            return Err(Error::new(
                ErrorKind::Configuration,
                "a pooler gives this process another server connection for each transaction, where named \
                 statements fail or return the rows of another statement: say `pooler = true` \
                 (`StoreOptions::pooler`), or connect to Postgres directly",
            ));
        }
        self.shared.has_no_pooler.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Reads the server run of a connection, which has no transaction: with GTIDs, MySQL refuses to record a
    /// run in one.
    ///
    /// A database may forget commits that were not flushed, and after a failover also those that were not
    /// replicated. A reader that goes on from memory then skips messages that it believes settled. So readers
    /// keep the server run in which they took a cursor or a partition, and each statement that builds upon
    /// memory compares it.
    ///
    /// # Errors
    /// [`ErrorKind::Standby`], or the database refused or is away.
    pub async fn server_run(&self, conn: &mut DB::Connection) -> Result<i64, Error> {
        for _ in 0..RUN_TRIES_MAX {
            if let Some(run) = self.recorded_server_run(conn).await? {
                return Ok(run);
            }
            query::<DB>(&self.sql().setup.record_server_run).execute(&mut *conn).await?;
        }
        Err(Error::new(ErrorKind::Standby, "the server does not say which run it is: it may be a standby"))
    }

    /// The same in a transaction, which records nothing. None: nobody has recorded this run yet.
    ///
    /// # Errors
    /// The database refused or is away.
    pub(crate) async fn recorded_server_run(&self, conn: &mut DB::Connection) -> Result<Option<i64>, Error> {
        let run = scalar::<DB, Option<i64>>(&self.sql().setup.server_run);
        Ok(run.fetch_one(conn).await?)
    }

    /// Reads the server run on a connection of its own, and records it if nobody has.
    ///
    /// # Errors
    /// [`ErrorKind::Standby`], or the database refused or is away.
    pub async fn record_server_run(&self) -> Result<i64, Error> {
        let mut conn = self.connection().await?;
        let run = self.server_run(&mut conn).await?;
        conn.done().await?;
        Ok(run)
    }

    /// Returns whether the database can forget commits when its server restarts.
    pub fn has_server_runs(&self) -> bool {
        !self.sql().setup.record_server_run.is_absent()
    }

    /// Returns the qualified name of a table, without quotes. The empty name: how all tables begin.
    pub fn table(&self, name: &str) -> String {
        DB::table(&self.catalog.namespace, name).replace('"', "")
    }
}

impl<DB: Dialect> Clone for Engine<DB> {
    fn clone(&self) -> Self {
        Self { pool: self.pool.clone(), catalog: self.catalog.clone(), shared: self.shared.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Engine<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("database", &DB::NAME)
            .field("namespace", &self.catalog.namespace)
            .field("service", &self.catalog.service)
            .finish_non_exhaustive()
    }
}
