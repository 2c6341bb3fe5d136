//! Databases of tests, in which Twinbox works with the rights that the page of roles grants.
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;

use sqlx::{Pool, Sqlite};
use std::{
    any::Any,
    collections::HashMap,
    ops::Deref,
    sync::{LazyLock, Mutex},
};
use twinbox::{Dialect, Store, ops::Role};
use twinbox_testkit::database;
pub(crate) use twinbox_testkit::database::SERVICE;

#[cfg(feature = "mysql")]
pub(crate) use mysql::mysql;
#[cfg(feature = "postgres")]
pub(crate) use postgres::{POSTGRES_URL, empty_postgres, grants, postgres};

/// The role of code in the process of a test, with the rights of all others.
const ALL: &str = "twinbox_tests";
/// For a program that changes tables.
pub(crate) const OWNER: &str = "owner";
pub(crate) const ROLES: [(&str, Role); 7] = [
    ("producer", Role::Producer),
    ("web", Role::Web),
    ("runtime", Role::Runtime),
    ("keeper", Role::Keeper),
    ("redactor", Role::Redactor),
    ("operator", Role::Operator),
    ("viewer", Role::Viewer),
];
/// Those that run code of an application.
const APPLICATION: [&str; 3] = ["producer", "web", "runtime"];

/// The stores of owners, by the names of their databases. A test has few, and its process ends.
static OWNERS: LazyLock<Mutex<HashMap<String, Box<dyn Any + Send>>>> = LazyLock::new(Mutex::default);

/// A database of one test. It dereferences to a store that is not the owner of the tables.
pub(crate) struct TestDatabase<DB: Dialect> {
    store: Store<DB>,
    url: String,
    /// The accounts of the database, which end before it.
    _accounts: Box<dyn Any + Send + Sync>,
    owner: database::TestDatabase<DB>,
}

impl<DB: Dialect> TestDatabase<DB> {
    /// One whose store has the rights of the page.
    fn of_roles(
        owner: database::TestDatabase<DB>,
        pool: Pool<DB>,
        url: String,
        accounts: impl Send + Sync + 'static,
    ) -> Self {
        let name = name_of(&owner).expect("a server has several databases");
        OWNERS.lock().unwrap().insert(name, Box::new((*owner).clone()));
        Self { store: Store::new(pool, SERVICE).unwrap(), url, _accounts: Box::new(accounts), owner }
    }

    /// One whose store is the owner of the tables.
    fn owned(owner: database::TestDatabase<DB>) -> Self {
        Self { store: owner.clone(), url: owner.url().to_owned(), _accounts: Box::new(()), owner }
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

/// The name of the database of a store on a server.
fn name_of<DB: Dialect>(store: &Store<DB>) -> Option<String> {
    let store: &dyn Any = store;
    #[cfg(feature = "postgres")]
    if let Some(store) = store.downcast_ref::<Store<sqlx::Postgres>>() {
        return store.pool().connect_options().get_database().map(str::to_owned);
    }
    #[cfg(feature = "mysql")]
    if let Some(store) = store.downcast_ref::<Store<sqlx::MySql>>() {
        return store.pool().connect_options().get_database().map(str::to_owned);
    }
    let _ = store;
    None
}

/// Returns the store of the owner of the tables, for what a test itself does: the same, unless it has fewer
/// rights.
pub(crate) fn owner_of<DB: Dialect>(store: &Store<DB>) -> Store<DB> {
    let owners = OWNERS.lock().unwrap();
    let owner = name_of(store).and_then(|name| owners.get(&name)?.downcast_ref::<Store<DB>>());
    owner.unwrap_or(store).clone()
}

/// Returns the URL for a program that needs the rights of one role alone, or of the [`OWNER`]. Other URLs are
/// as they were. All roles of a database have one password.
pub(crate) fn url_for(role: &str, url: &str) -> String {
    let (user, password) = login(url);
    let of_one = ROLES.iter().any(|(name, _)| user.ends_with(name));
    match role {
        _ if of_one || !user.starts_with(ALL) => url.to_owned(),
        OWNER => {
            let variable =
                if url.starts_with("mysql") { "TWINBOX_MYSQL_URL" } else { "TWINBOX_POSTGRES_URL" };
            let server = std::env::var(variable).unwrap_or_default();
            let (owner, password) = login(&server);
            replace_login(url, &format!("{owner}{password}"))
        }
        role => replace_login(url, &format!("{user}_{role}{password}")),
    }
}

/// Returns the user of a URL, and its password behind a colon.
fn login(url: &str) -> (&str, &str) {
    let login = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    let login = login.map_or("", |(login, _)| login);
    login.split_at(login.find(':').unwrap_or(login.len()))
}

fn replace_login(url: &str, new: &str) -> String {
    let (user, password) = login(url);
    url.replacen(&format!("://{user}{password}@"), &format!("://{new}@"), 1)
}

pub(crate) async fn sqlite() -> TestDatabase<Sqlite> {
    TestDatabase::owned(database::sqlite().await)
}
