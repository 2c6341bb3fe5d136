//! A new, migrated database for each test.
//!
//! A failed setup panics, and the message names what to change.
use futures::future::BoxFuture;
use sqlx::Sqlite;
use std::{fmt, ops::Deref};
use tempfile::TempDir;
use twinbox_sql::{Dialect, Store};

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;

#[cfg(feature = "mysql")]
pub use mysql::{MYSQL_URL, empty_mysql, mysql};
#[cfg(feature = "postgres")]
pub use postgres::{POSTGRES_URL, empty_postgres, postgres};

/// The service name of the stores that tests use.
pub const SERVICE: &str = "test";

/// A store on its own database. It dereferences to the [`Store`]. Dropping it drops the database.
pub struct TestDatabase<DB: Dialect> {
    store: Store<DB>,
    url: String,
    _removal: Removal,
}

impl<DB: Dialect> TestDatabase<DB> {
    /// Returns the `postgres://` or `mysql://` URL of the database, or the path of its SQLite file.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl<DB: Dialect> Deref for TestDatabase<DB> {
    type Target = Store<DB>;

    fn deref(&self) -> &Store<DB> {
        &self.store
    }
}

impl<DB: Dialect> fmt::Debug for TestDatabase<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDatabase").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Creates a SQLite file with migrated tables.
pub async fn sqlite() -> TestDatabase<Sqlite> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("twinbox.db");
    let pool = twinbox_sql::sqlite::open(&path).await.expect("a SQLite file can be made");
    let store = Store::new(pool, SERVICE).expect("the service name is valid");
    store.migrate().await.expect("an empty database can be migrated");
    TestDatabase { store, url: path.display().to_string(), _removal: Removal::Folder { _folder: folder } }
}

/// Returns the URL of a server with the name of a database on it. sqlx writes a URL whose parameters for TLS
/// it cannot read.
#[cfg(any(feature = "mysql", feature = "postgres"))]
fn url_of(server: &str, database: &str) -> String {
    let (server, parameters) = server.split_at(server.find('?').unwrap_or(server.len()));
    let host = server.find("://").map_or(0, |at| at + 3);
    let end = server[host..].find('/').map_or(server.len(), |at| host + at);
    format!("{}/{database}{parameters}", &server[..end])
}

/// Removes a database when it is dropped.
enum Removal {
    Folder {
        _folder: TempDir,
    },
    #[cfg_attr(not(any(feature = "mysql", feature = "postgres")), allow(dead_code))]
    Server(Option<DropDatabase>),
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl Removal {
    fn on_server<F>(drop_database: impl FnOnce() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::Server(Some(Box::new(|| Box::pin(drop_database()))))
    }
}

type DropDatabase = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send + Sync>;

impl Drop for Removal {
    fn drop(&mut self) {
        let Self::Server(drop_database) = self else { return };
        let Some(drop_database) = drop_database.take() else { return };
        // In another thread, because the runtime of the test may be ending. Errors are ignored: a server that
        // is gone has taken the database with it.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(drop_database()))
        });
        let _ = dropping.join();
    }
}
