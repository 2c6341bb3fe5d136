//! Databases of tests, in which Twinbox works with the rights that the page of roles grants.
#[cfg(feature = "postgres")]
mod postgres;

use super::databases::MySql;
use sqlx::{Pool, Sqlite};
use std::ops::Deref;
use twinbox::{Dialect, Store};
use twinbox_testkit::database;
pub(crate) use twinbox_testkit::database::SERVICE;

#[cfg(feature = "postgres")]
pub(crate) use postgres::{OWNER, POSTGRES_URL, empty_postgres, grants, owner_of, postgres, url_for};

/// A database of one test. It dereferences to a store that is not the owner of the tables.
pub(crate) struct TestDatabase<DB: Dialect> {
    store: Store<DB>,
    url: String,
    owner: database::TestDatabase<DB>,
}

impl<DB: Dialect> TestDatabase<DB> {
    /// One whose store is the owner of the tables.
    fn owned(owner: database::TestDatabase<DB>) -> Self {
        Self { store: owner.clone(), url: owner.url().to_owned(), owner }
    }

    /// Returns the URL of the store, which has the rights of all roles.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the connections of the owner of the tables, for what the test itself does.
    pub(crate) fn pool(&self) -> &Pool<DB> {
        self.owner.pool()
    }

    /// Closes the connections of the store.
    pub(crate) async fn close(&self) {
        self.store.pool().close().await;
    }

    /// Returns the store of the owner of the tables.
    pub(crate) fn owner(&self) -> &Store<DB> {
        &self.owner
    }

    pub(crate) fn owner_url(&self) -> &str {
        self.owner.url()
    }
}

impl<DB: Dialect> Deref for TestDatabase<DB> {
    type Target = Store<DB>;

    fn deref(&self) -> &Store<DB> {
        &self.store
    }
}

/// Returns the store of the owner of the tables: the only one there is.
#[cfg(not(feature = "postgres"))]
pub(crate) fn owner_of<DB: Dialect>(store: &Store<DB>) -> Store<DB> {
    store.clone()
}

pub(crate) async fn sqlite() -> TestDatabase<Sqlite> {
    TestDatabase::owned(database::sqlite().await)
}

/// One whose store is the owner: MySQL keeps the rights on a table that is dropped, and thousands of them
/// make its grants slow.
#[cfg(feature = "mysql")]
pub(crate) async fn mysql() -> TestDatabase<MySql> {
    TestDatabase::owned(database::mysql().await)
}
