//! The database of one service.
use crate::{
    Dialect, Error, ErrorKind, IdempotencyKeys, Inbox, Outbox, OwnedTx, PartitionLeases,
    catalog::Catalog,
    codecs::{self, Codecs},
    engine::Engine,
    micros::Micros,
    row::log_message,
    schema,
    statement::{query, scalar},
    text_column::Text,
};
use sqlx::{Pool, Row as _};
use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Once},
    time::Duration,
};
use twinbox_core::{DecodeError, Draft, Message, PayloadCodec, Timestamp, limits};

/// How long the database may take to answer a ping.
const PING_MAX: Duration = Duration::from_secs(5);
/// The log has one warning of a connection without TLS: stores are checked again and again.
static WARNED: Once = Once::new();

/// The place of Twinbox's tables, and how payloads are stored.
#[derive(Debug, Clone)]
#[must_use]
pub struct StoreOptions {
    namespace: String,
    pooler: bool,
    codecs: Codecs,
}

impl StoreOptions {
    /// Returns the default options: tables in the schema `twinbox` (Postgres) or with the prefix `twinbox_`
    /// (MySQL, SQLite).
    pub fn new() -> Self {
        Self { namespace: "twinbox".to_owned(), pooler: false, codecs: Codecs::default() }
    }

    /// Uses another schema, or another prefix (without its underscore). Several services share a database by
    /// using one each.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// Makes the store work behind a pooler in transaction mode, such as PgBouncer: every statement of
    /// Twinbox runs without a name and inside a transaction, which costs two more round trips where none was
    /// needed. [`Store::check`] refuses such a pooler without this: a named statement fails there or returns
    /// the rows of another one, and an unnamed one outside a transaction can do so too.
    ///
    /// The same goes for your own statements: inside `tx` say `.persistent(false)` to sqlx. A handler that
    /// did not is rolled back with an error that says so, as long as the pool caches statements, which it
    /// does by default. Outside a transaction use only [`sqlx::raw_sql`].
    ///
    /// PgBouncer refuses sqlx's start-up parameter `extra_float_digits`: put it into
    /// `ignore_startup_parameters`, or say `.extra_float_digits(None)` in the pool's options.
    pub fn pooler(self, pooler: bool) -> Self {
        Self { pooler, ..self }
    }

    /// Encodes every payload that is published with this store, and decodes payloads for its consumers.
    /// Relays need no codec: they carry the encoded bytes.
    ///
    /// Deploy consumers first: a consumer without the codec dead-letters the messages that it encoded.
    pub fn codec(mut self, codec: impl PayloadCodec) -> Self {
        self.codecs.encoder = Some(Arc::new(codec));
        self
    }

    /// Adds a codec that only decodes: an earlier one, or that of another service. May be called several
    /// times. Of one name, [`codec`](Self::codec) comes first.
    pub fn decoder(mut self, codec: impl PayloadCodec) -> Self {
        self.codecs.decoders.push(Arc::new(codec));
        self
    }

    /// Refuses what is not encoded. Without this option a plain payload is taken as it is, whoever wrote it:
    /// an encryption hides payloads, and does not tell who wrote them.
    ///
    /// - A plain message becomes a dead letter, `undecodable`, and its handler does not run. A redacted one
    ///   is acknowledged as ever.
    /// - A side effect with a plain request is not sent. It fails with `VALIDATION.rejected`, or is unknown
    ///   if it may have been sent before.
    /// - A plain body of a stored response is the error [`ErrorKind::Codec`], and the operation does not run.
    ///
    /// For a change-over give [`codec`](Self::codec) to all processes first. Add this option when no plain
    /// row is left: `twinbox schemas check` with the manifest of the new build names the messages that wait.
    /// Dead letters of before can be redriven by a build without this option.
    ///
    /// It refuses all who cannot encode: SQL (`twinbox.publish`, `twinbox.plan_effect`, an `INSERT`), other
    /// systems on the transport, and the events of a relay without the codec (`dead_letter_events`).
    ///
    /// It is as strong as the weakest codec of the store. One that only compresses, be it a
    /// [`decoder`](Self::decoder), lets everybody write.
    pub fn require_codec(mut self) -> Self {
        self.codecs.is_required = true;
        self
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A handle to the tables of one service: outbox, log and inbox.
///
/// Cheap to clone. On SQLite all stores of one file in a process share the permit by which writers take
/// turns.
pub struct Store<DB: Dialect> {
    engine: Engine<DB>,
}

impl<DB: Dialect> Store<DB> {
    /// Creates the store of `service`, which is the CloudEvents `source` of its messages. Connects to
    /// nothing.
    ///
    /// # Errors
    /// The name is empty, too long, or holds a control character.
    pub fn new(pool: Pool<DB>, service: &str) -> Result<Self, Error> {
        Self::with_options(pool, service, StoreOptions::new())
    }

    /// Creates the store of `service` with other tables, codecs, or a pooler.
    ///
    /// # Errors
    /// As [`new`](Self::new), or the namespace is not a plain lower-case identifier, or the name of a codec
    /// is not fit for a header, or a codec is required and none encodes, or another database than Postgres is
    /// given a pooler.
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
        if pooler && !DB::TAKES_POOLER {
            let what = format!("no pooler may stand before {}: leave `pooler` away", DB::NAME);
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        schema::check_namespace(&namespace)?;
        codecs.check()?;
        let catalog = Catalog::new::<DB>(&namespace, service, codecs, !pooler);
        Ok(Self { engine: Engine::new(pool, catalog) })
    }

    /// Opens the store of whichever service owns the tables, for tools.
    ///
    /// # Errors
    /// As [`with_options`](Self::with_options), or there are no tables.
    pub async fn open_existing(pool: Pool<DB>, options: StoreOptions) -> Result<Self, Error> {
        let unknown = Self::with_options(pool.clone(), "unknown", options.clone())?;
        unknown.engine.check_pooler().await?;
        let mut conn = unknown.engine.connection().await?;
        schema::version_found::<DB>(&mut conn, unknown.engine.catalog()).await?;
        let service = scalar::<DB, Text>(&unknown.engine.sql().setup.service);
        let service = service.fetch_optional(&mut *conn).await?.map(|service| service.0);
        conn.done().await?;
        Self::with_options(pool, &service.unwrap_or_default(), options)
    }

    /// Refuses a setup that would lose messages or break their order: missing or foreign tables, a restored
    /// database, a standby, a cached sequence, a journal mode, a pooler. Readers check before they start.
    ///
    /// A connection to another machine that does not verify the certificate of the server is a warning in the
    /// log, once in a process.
    ///
    /// # Errors
    /// Names the problem and what to do about it.
    pub async fn check(&self) -> Result<(), Error> {
        if let Err(unprotected) = DB::protection(&self.pool().connect_options(), false) {
            WARNED.call_once(|| tracing::warn!("{unprotected}"));
        }
        let catalog = self.engine.catalog();
        self.engine.check_pooler().await?;
        let mut conn = self.engine.connection().await?;
        DB::check_server(&mut conn).await?;
        schema::check_tables::<DB>(&mut conn, catalog).await?;
        DB::check(&mut conn, &catalog.namespace).await?;
        conn.done().await
    }

    /// Returns whether the database answers within 5 s.
    pub async fn is_reachable(&self) -> bool {
        tokio::time::timeout(PING_MAX, self.now()).await.is_ok_and(|now| now.is_ok())
    }

    /// Reads the time of the database.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn now(&self) -> Result<Timestamp, Error> {
        let mut conn = self.engine.connection().await?;
        let now = scalar::<DB, Micros>(&self.engine.sql().setup.now).fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(now.0)
    }

    /// Begins a transaction. On SQLite it holds the one write permit of the file until it ends, so that
    /// writers take turns instead of finding the database busy.
    ///
    /// Cancel safe: dropped at any point, it leaves no transaction behind.
    ///
    /// # Errors
    /// No connection within the pool's time-out, or the database refused.
    ///
    /// # Examples
    /// ```
    /// # use twinbox_sql::{Store, sqlite};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let store = Store::new(sqlite::open(dir.path().join("shop.db")).await?, "shop")?;
    /// # sqlx::query("CREATE TABLE orders (id INTEGER)").execute(store.pool()).await?;
    /// let mut tx = store.begin().await?;
    /// sqlx::query("INSERT INTO orders VALUES (7)").execute(&mut *tx).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin(&self) -> Result<OwnedTx<DB>, Error> {
        self.engine.begin_for_caller().await
    }

    /// Returns a handle to the outbox, which publishes events.
    pub fn outbox(&self) -> Outbox<DB> {
        Outbox::new(self.engine.catalog().clone())
    }

    /// Returns a handle to the inbox of a consumer: its claims, attempts and dead letters.
    pub fn inbox(&self, consumer: impl Into<String>) -> Inbox<DB> {
        Inbox::new(self.engine.clone(), consumer.into())
    }

    /// Returns a handle to the leases on the partitions of a consumer.
    pub fn partition_leases(&self, consumer: impl Into<String>) -> PartitionLeases<DB> {
        PartitionLeases::new(self.engine.clone(), consumer.into())
    }

    /// Returns a handle to the idempotency keys of operations.
    pub fn idempotency_keys(&self) -> IdempotencyKeys<DB> {
        IdempotencyKeys::new(self.engine.clone())
    }

    /// Returns the connection pool that the store was created with.
    pub fn pool(&self) -> &Pool<DB> {
        self.engine.pool()
    }

    /// Returns the name of the service that owns the store.
    pub fn service(&self) -> &str {
        self.engine.service()
    }

    /// Returns the names of the codecs that decode.
    pub fn codecs(&self) -> impl Iterator<Item = &str> {
        self.engine.catalog().codecs.all().map(|codec| codec.name())
    }

    /// Returns the message with its payload decoded. A payload that was not encoded stays as it is, unless
    /// the store [requires](StoreOptions::require_codec) a codec.
    ///
    /// The consumer runtime decodes before it runs a handler. Messages that the store returns, dead letters
    /// among them, are as they are stored.
    ///
    /// # Errors
    /// This store has no codec of that name, or the codec cannot decode the payload; or the payload is not
    /// encoded, and the store requires that. Trying again does not help.
    pub fn decode<'m>(&self, message: &'m Message) -> Result<Cow<'m, Message>, DecodeError> {
        self.engine.catalog().codecs.decode(message)
    }

    /// Returns the draft of a message from `source` with its payload encoded, if the store has a codec. The
    /// draft has an id.
    ///
    /// # Errors
    /// [`ErrorKind::Codec`]: the codec refused. The encoded draft is invalid.
    #[doc(hidden)]
    pub fn encode(&self, source: &str, draft: Draft) -> Result<Draft, Error> {
        match &self.engine.catalog().codecs.encoder {
            Some(codec) => Ok(Draft { fields: codecs::encode(&**codec, source, draft.fields)? }),
            None => Ok(draft),
        }
    }

    /// Returns the messages of a type in the outbox, oldest first. For tests and tools.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn published(&self, event_type: &str, limit: u32) -> Result<Vec<Message>, Error> {
        let mut conn = self.engine.connection().await?;
        let rows = query::<DB>(&self.engine.sql().outbox.published)
            .bind(event_type.to_owned())
            .bind(i64::from(limit))
            .fetch_all(&mut *conn)
            .await?;
        conn.done().await?;
        let read = |row: &DB::Row| log_message::<DB>(row, self.service(), row.try_get("position")?);
        rows.iter().map(read).collect()
    }

    /// The newest version of the schema that this program knows.
    pub const NEWEST_SCHEMA: i64 = DB::MIGRATIONS.len() as i64;

    /// Brings the tables up to this program's version, in one transaction. Run twice, or by five processes at
    /// once, it does the work once; killed half-way, it has done nothing. On tables that are up to date it
    /// only reads, and waits for no writer.
    ///
    /// It waits ten minutes for another process that migrates, and 30 s for any other lock, whatever bounds
    /// the sessions of the pool have.
    ///
    /// Needs the right to create tables. A service without that right prints
    /// [`migrations_sql`](Self::migrations_sql) for the owner of the database. The rights that it needs to
    /// run are in `GRANTS.md`, beside this crate's manifest.
    ///
    /// # Errors
    /// The tables are newer than this program can work with, or belong to another service.
    pub async fn migrate(&self) -> Result<(), Error> {
        self.engine.check_pooler().await?;
        schema::migrate(&self.engine).await?;
        self.check().await
    }

    /// Returns the SQL that [`migrate`](Self::migrate) runs on an empty database, for review or for other
    /// tools.
    pub fn migrations_sql(&self) -> String {
        schema::migrations_sql::<DB>(self.engine.catalog())
    }

    /// Reads the version of the tables.
    ///
    /// # Errors
    /// There are none; or the database refused or is away.
    pub async fn schema_version(&self) -> Result<i64, Error> {
        let mut conn = self.engine.connection().await?;
        let found = schema::version_found::<DB>(&mut conn, self.engine.catalog()).await?;
        conn.done().await?;
        Ok(found.version)
    }

    /// What the other crates of Twinbox share of the store. No part of the API.
    #[doc(hidden)]
    pub fn engine(&self) -> &Engine<DB> {
        &self.engine
    }
}

impl<DB: Dialect> Clone for Store<DB> {
    fn clone(&self) -> Self {
        Self { engine: self.engine.clone() }
    }
}

impl<DB: Dialect> fmt::Debug for Store<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let catalog = self.engine.catalog();
        f.debug_struct("Store")
            .field("database", &DB::NAME)
            .field("namespace", &catalog.namespace)
            .field("service", &catalog.service)
            .finish_non_exhaustive()
    }
}
