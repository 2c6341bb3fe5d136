//! Databases of MySQL. Accounts belong to the server: those of tests are made once, and stay on it.
use super::{ALL, APPLICATION, ROLES, TestDatabase, replace_login};
use sqlx::{AssertSqlSafe, MySql, mysql::MySqlPoolOptions};
use twinbox::ops::grants_sql_mysql;
use twinbox_testkit::database;

const PASSWORD: &str = "hush";
/// The tables of applications in tests, which are made later. MySQL grants a right on one that does not exist
/// only together with the right to create it.
const TABLES: [&str; 22] = [
    "accounts",
    "aggregates",
    "another",
    "balances",
    "ballast",
    "claims",
    "digits",
    "effects",
    "ledger",
    "made",
    "moves",
    "notes",
    "old_payments",
    "parcels",
    "parts",
    "pauses",
    "payments",
    "refunds",
    "runs",
    "seen",
    "shop",
    "states",
];

pub(crate) async fn mysql() -> TestDatabase<MySql> {
    let owner = database::mysql().await;
    let mut grants = String::new();
    let account = |name: &str| format!("{ALL}_{name}");
    for name in ROLES.map(|(name, _)| account(name)).iter().chain([&ALL.to_owned()]) {
        grants += &format!("CREATE USER IF NOT EXISTS '{name}' IDENTIFIED BY '{PASSWORD}';\n");
    }
    // Not roles of the server: whoever logs in would have to switch them on.
    for (name, role) in ROLES {
        grants += &grants_sql_mysql("twinbox", &[(account(name), role), (ALL.to_owned(), role)]).unwrap();
    }
    let own = APPLICATION.map(|name| format!("'{}'", account(name))).join(", ");
    for table in TABLES {
        grants += &format!("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON {table} TO '{ALL}', {own};\n");
    }
    sqlx::raw_sql(AssertSqlSafe(grants)).execute(owner.pool()).await.unwrap();
    let url = replace_login(owner.url(), &format!("{ALL}:{PASSWORD}"));
    let pool = MySqlPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    TestDatabase::of_roles(owner, pool, url)
}
