//! What a store was opened with, and its statements.
use crate::{codecs::Codecs, statement::Statement, texts::Texts};

/// The name, the tables and the SQL statements of a store, which all its handles share.
#[derive(Debug)]
pub struct Catalog {
    /// The service that owns the store.
    pub service: String,
    /// The schema, or the prefix of tables.
    pub namespace: String,
    /// The codecs of payloads.
    pub codecs: Codecs,
    /// Whether the server keeps each statement under a name, once for each connection. Behind a pooler a name
    /// may mean another statement.
    pub is_named: bool,
    #[cfg(feature = "mysql")]
    pub(crate) durable_tick: crate::durable_tick::DurableTick,
    #[cfg(feature = "postgres")]
    pub(crate) lock_secret: tokio::sync::OnceCell<crate::lock_secret::LockSecret>,
    /// The SQL statements of the store.
    pub sql: Texts<Statement>,
}
