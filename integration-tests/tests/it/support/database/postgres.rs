//! Databases of Postgres. Roles belong to the server: those of tests are made once, and stay on it.
use super::{SERVICE, TestDatabase};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, postgres::PgPoolOptions};
use std::{
    any::Any,
    collections::HashMap,
    sync::{LazyLock, Mutex},
};
use tokio::sync::OnceCell;
use twinbox::{
    Dialect, Store,
    ops::{Role, grants_sql},
};
use twinbox_testkit::database;
pub(crate) use twinbox_testkit::database::POSTGRES_URL;

/// The role of code in the process of a test, with the rights of all others.
const ALL: &str = "twinbox_tests";
/// For a program that changes tables.
pub(crate) const OWNER: &str = "owner";
const ROLES: [(&str, Role); 7] = [
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
static OWNERS: LazyLock<Mutex<HashMap<String, Store<Postgres>>>> = LazyLock::new(Mutex::default);

pub(crate) async fn postgres() -> TestDatabase<Postgres> {
    let owner = database::postgres().await;
    create_roles().await;
    sqlx::raw_sql(AssertSqlSafe(grants())).execute(owner.pool()).await.unwrap();
    let url = replace_login(owner.url(), &login_of(ALL));
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    let store = Store::new(pool, SERVICE).unwrap();
    OWNERS.lock().unwrap().insert(name_of(&owner), (*owner).clone());
    TestDatabase { store, url, owner }
}

pub(crate) async fn empty_postgres() -> TestDatabase<Postgres> {
    TestDatabase::owned(database::empty_postgres().await)
}

fn name_of(store: &Store<Postgres>) -> String {
    store.pool().connect_options().get_database().unwrap_or_default().to_owned()
}

/// Returns the store of the owner of the tables, for what a test itself does: the same, unless it has fewer
/// rights.
pub(crate) fn owner_of<DB: Dialect>(store: &Store<DB>) -> Store<DB> {
    let few = (store as &dyn Any).downcast_ref::<Store<Postgres>>();
    let owner = few.and_then(|few| OWNERS.lock().unwrap().get(&name_of(few)).cloned());
    let owner = owner.map(|owner| Box::new(owner) as Box<dyn Any>);
    owner.map_or_else(|| store.clone(), |owner| *owner.downcast().unwrap())
}

/// Returns the URL for a program that needs the rights of one role alone, or of the [`OWNER`]. Other URLs are
/// as they were.
pub(crate) fn url_for(role: &str, url: &str) -> String {
    let (user, _) = login(url);
    match role {
        _ if user != ALL => url.to_owned(),
        OWNER => replace_login(url, &server_login()),
        role => replace_login(url, &login_of(&format!("{ALL}_{role}"))),
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

fn server_url() -> String {
    std::env::var(POSTGRES_URL).unwrap_or_default()
}

fn server_login() -> String {
    let url = server_url();
    let (user, password) = login(&url);
    format!("{user}{password}")
}

/// All roles have the password of the owner.
fn login_of(role: &str) -> String {
    format!("{role}{}", login(&server_url()).1)
}

/// The statements of the page, and what the code of an application may do with its own tables.
pub(crate) fn grants() -> String {
    let roles = ROLES.map(|(name, role)| (format!("{ALL}_{name}"), role));
    let own = APPLICATION.map(|name| format!("{ALL}_{name}")).join(", ");
    format!(
        "{};
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO {own};
        ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON SEQUENCES TO {own}",
        grants_sql("twinbox", &roles).unwrap()
    )
}

/// Other processes may create them at this moment.
async fn create_roles() {
    static CREATED: OnceCell<()> = OnceCell::const_new();
    let create = async || {
        let url = server_url();
        let password = login(&url).1.trim_start_matches(':').replace('\'', "''");
        let mut all =
            "SELECT pg_advisory_xact_lock(hashtextextended('twinbox roles of tests', 0));".to_owned();
        for role in ROLES.map(|(name, _)| format!("{ALL}_{name}")).iter().chain([&ALL.to_owned()]) {
            all += &format!(
                "DO $$ BEGIN CREATE ROLE {role} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
            );
            if !password.is_empty() {
                all += &format!("ALTER ROLE {role} PASSWORD '{password}';");
            }
        }
        for (name, _) in ROLES {
            all += &format!("GRANT {ALL}_{name} TO {ALL};");
        }
        // A lock belongs to a database. All processes have this one in common.
        let mut server = PgConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(all)).execute(&mut server).await.unwrap();
    };
    CREATED.get_or_init(create).await;
}
