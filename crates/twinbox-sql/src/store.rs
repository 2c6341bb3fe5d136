use crate::{
    Dialect, Error, ErrorKind, Outbox,
    codec::Codecs,
    log::look::Look,
    micros::Micros,
    sql::{Statements, rows, scalar},
    writer,
};
use sqlx::Pool;
use std::{
    fmt,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore, watch};
use twinbox_core::{PayloadCodec, Timestamp, limits};

/// How long the database may take to say that it is there.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a transaction waits for its turn to write on SQLite.
const WRITE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where Twinbox keeps its tables, and how payloads lie in them.
#[derive(Debug, Clone)]
#[must_use]
pub struct StoreOptions {
    namespace: String,
    pooler: bool,
    codecs: Codecs,
}

impl StoreOptions {
    /// Tables in the schema `twinbox` (Postgres) or behind the prefix `twinbox_` (SQLite).
    pub fn new() -> Self {
        Self { namespace: "twinbox".to_owned(), pooler: false, codecs: Codecs::default() }
    }

    /// Another schema, or another prefix (without its underscore). Several services share a database by
    /// using one each.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// For a Postgres behind a pooler in transaction mode, such as PgBouncer: every statement of Twinbox runs
    /// without a name and inside a transaction, which costs two round trips more where none was needed.
    /// [`Store::check`] refuses such a pooler without this, because a named statement fails there or returns
    /// the rows of another one, and an unnamed one outside a transaction can do so too.
    ///
    /// The same goes for your own statements: inside `tx` say `.persistent(false)` to sqlx. A handler that did
    /// not is rolled back with an error that says so, as long as the pool caches statements, which it does by
    /// default. Outside a transaction use only [`sqlx::raw_sql`].
    ///
    /// PgBouncer refuses sqlx's start-up parameter `extra_float_digits`: put it into `ignore_startup_parameters`,
    /// or say `.extra_float_digits(None)` in the pool's options.
    pub fn pooler(self, pooler: bool) -> Self {
        Self { pooler, ..self }
    }

    /// What encodes every payload that is published with this store, and decodes those that its consumers get.
    /// Relays need none: they carry what was encoded.
    ///
    /// Consumers first: one that lacks the codec buries what was encoded with it.
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.codecs.encoder = Some(Arc::new(codec));
        self
    }

    /// A codec that decodes only: one that encoded before, or that another service encodes with. May be called
    /// several times; of one name, [`codec`](Self::codec) comes before it.
    pub fn decoder(mut self, codec: impl PayloadCodec) -> Self {
        self.codecs.decoders.push(Arc::new(codec));
        self
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Connections of a pool that handlers leave to others.
const CONNECTIONS_LEFT: usize = 2;

/// The database of one service: its outbox, its log, its inbox.
///
/// Cheap to clone. On SQLite all stores of one file in a process share the permit by which writers take turns.
pub struct Store<DB: Dialect> {
    pool: Pool<DB>,
    statements: Arc<Statements>,
    committed: Arc<watch::Sender<()>>,
    writer: Option<Arc<Semaphore>>,
    looked_for_pooler: Arc<AtomicBool>,
    alone: Arc<RwLock<()>>,
    handlers: Arc<Semaphore>,
    look: Arc<Look>,
}

impl<DB: Dialect> Store<DB> {
    /// The store of `service`, which is the CloudEvents `source` of all it publishes. Connects to nothing.
    ///
    /// # Errors
    /// The name is empty, too long, or holds a control character.
    pub fn new(pool: Pool<DB>, service: &str) -> Result<Self, Error> {
        Self::with_options(pool, service, StoreOptions::new())
    }

    /// The same with tables elsewhere.
    ///
    /// # Errors
    /// As [`new`](Self::new), or the namespace is not a plain lower-case identifier, or a codec's name is not fit for
    /// a header, or SQLite has a pooler.
    pub fn with_options(pool: Pool<DB>, service: &str, options: StoreOptions) -> Result<Self, Error> {
        if service.is_empty()
            || service.len() > limits::SOURCE_BYTES_MAX
            || service.chars().any(char::is_control)
        {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!("the service name {service:?} must have 1 to 255 bytes and no control character"),
            ));
        }
        let StoreOptions { namespace, pooler, codecs } = options;
        if pooler && DB::ONE_WRITER {
            return Err(Error::new(ErrorKind::Configuration, "SQLite has no pooler: leave `pooler` away"));
        }
        check_namespace(&namespace)?;
        codecs.check()?;
        let mut statements = Statements::new::<DB>(&namespace, service, !pooler);
        statements.codecs = codecs;
        let connections = usize::try_from(pool.options().get_max_connections()).unwrap_or(usize::MAX);
        let handlers = connections.saturating_sub(CONNECTIONS_LEFT).clamp(1, Semaphore::MAX_PERMITS);
        let writer = DB::ONE_WRITER.then(|| writer::of(DB::file_of(&pool)));
        Ok(Self {
            pool,
            statements: Arc::new(statements),
            committed: Arc::new(watch::Sender::new(())),
            writer,
            looked_for_pooler: Arc::default(),
            alone: Arc::default(),
            handlers: Arc::new(Semaphore::new(handlers)),
            look: Arc::new(Look::new()),
        })
    }

    /// Looks for everything that would lose messages or break their order: missing or foreign tables, a
    /// restored database, a standby, a cached sequence, a journal mode, a pooler. Readers do it before they start.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub async fn check(&self) -> Result<(), Error> {
        self.check_pooler().await?;
        let mut conn = self.connection().await?;
        self.check_version(&mut conn).await?;
        self.check_owner(&mut conn).await?;
        DB::check(&mut conn, &self.statements.namespace).await?;
        conn.done().await
    }

    /// The store whose tables are there, whatever service owns them: for tools.
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options), or there are no tables.
    pub async fn found(pool: Pool<DB>, options: StoreOptions) -> Result<Self, Error> {
        let nobody = Self::with_options(pool.clone(), "unknown", options.clone())?;
        nobody.check_pooler().await?;
        let mut conn = nobody.connection().await?;
        nobody.version_found(&mut conn).await?;
        let owner = scalar::<DB, String>(&nobody.statements.service_of).fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Self::with_options(pool, &owner.unwrap_or_default(), options)
    }

    /// Settings of the database on which durability rests, as names and values.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn facts(&self) -> Result<Vec<(String, String)>, Error> {
        let mut conn = self.connection().await?;
        let facts = rows::<DB, (String, String)>(&self.statements.facts).fetch_all(&mut *conn).await?;
        conn.done().await?;
        Ok(facts)
    }

    /// Whether the database answers, within 5 s.
    pub async fn answers(&self) -> bool {
        let asked = async {
            let mut conn = self.connection().await?;
            scalar::<DB, Micros>(&self.statements.now).fetch_one(&mut *conn).await?;
            conn.done().await
        };
        tokio::time::timeout(ANSWER_MAX, asked).await.is_ok_and(|answer: Result<(), Error>| answer.is_ok())
    }

    /// The time of the database.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        let mut conn = self.connection().await?;
        let now = scalar::<DB, Micros>(&self.statements.now).fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(now.0)
    }

    /// The types among the newest `messages` of the log, by name.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn newest_types(&self, messages: u32) -> Result<Vec<String>, Error> {
        let types = scalar::<DB, String>(&self.statements.newest_types);
        let mut conn = self.connection().await?;
        let types = types.bind(i64::from(messages)).fetch_all(&mut *conn).await?;
        conn.done().await?;
        Ok(types)
    }

    pub(crate) async fn check_owner(&self, conn: &mut DB::Connection) -> Result<(), Error> {
        let owner = scalar::<DB, String>(&self.statements.service_of);
        match owner.fetch_optional(conn).await? {
            Some(owner) if owner == self.service() => Ok(()),
            owner => Err(Error::new(
                ErrorKind::WrongService,
                format!(
                    "these tables belong to the service {:?} and this process is {:?}: \
                     use the same name, or another namespace",
                    owner.unwrap_or_default(),
                    self.service()
                ),
            )),
        }
    }

    /// What to publish with.
    pub fn outbox(&self) -> Outbox<DB> {
        Outbox::new(self.statements.clone())
    }

    /// The pool that the store was made with.
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// The name of the service that owns the store.
    pub fn service(&self) -> &str {
        &self.statements.service
    }

    /// Where a table is, without quotes. The empty name: how all begin.
    #[doc(hidden)]
    pub fn table(&self, name: &str) -> String {
        DB::table(&self.statements.namespace, name).replace('"', "")
    }

    pub(crate) fn statements(&self) -> &Arc<Statements> {
        &self.statements
    }

    /// Told after each commit of an [`OwnedTx`](crate::OwnedTx) or a handler.
    pub(crate) fn committed(&self) -> Arc<watch::Sender<()>> {
        self.committed.clone()
    }

    /// Read by every handler that runs on this store or a clone of it, and held by one that must run alone.
    #[doc(hidden)]
    pub fn alone(&self) -> &RwLock<()> {
        &self.alone
    }

    /// As many as connections that handlers may have, of all consumers on this store or a clone of it. The others are for
    /// leases, for what is put on record after an attempt, and for the application.
    #[doc(hidden)]
    pub fn handlers(&self) -> &Semaphore {
        &self.handlers
    }

    pub(crate) fn log_look(&self) -> &Look {
        &self.look
    }

    pub(crate) fn looked_for_pooler(&self) -> &AtomicBool {
        &self.looked_for_pooler
    }

    /// Waits for this process's turn to write, where there is only one at a time.
    pub(crate) async fn write_permit(&self) -> Result<Option<OwnedSemaphorePermit>, Error> {
        let Some(writer) = &self.writer else { return Ok(None) };
        let turn = tokio::time::timeout(WRITE_WAIT_MAX, writer.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| {
            Error::new(
                ErrorKind::Busy,
                "another transaction of this process has held the write permit for 10 s: \
                 inside a handler write with its own `tx`, and do not begin another transaction",
            )
        })?;
        Ok(turn.ok())
    }
}

/// Refuses what is no plain lower-case identifier.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), Error> {
    match is_identifier(namespace) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Configuration,
            format!("the namespace {namespace:?} must be a lower-case letter and up to 39 of a-z, 0-9 and _"),
        )),
    }
}

/// 40 bytes, so that the longest index name stays below Postgres's 63.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    name.len() <= 40
        && bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl<DB: Dialect> Clone for Store<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            statements: self.statements.clone(),
            committed: self.committed.clone(),
            writer: self.writer.clone(),
            looked_for_pooler: self.looked_for_pooler.clone(),
            alone: self.alone.clone(),
            handlers: self.handlers.clone(),
            look: self.look.clone(),
        }
    }
}

impl<DB: Dialect> fmt::Debug for Store<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("database", &DB::NAME)
            .field("namespace", &self.statements.namespace)
            .field("service", &self.statements.service)
            .finish_non_exhaustive()
    }
}
