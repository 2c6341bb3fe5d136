//! Databases of MySQL. It keeps the rights on a table that is dropped, and many of them make its grants slow:
//! each database has accounts of its own, which end with it.
use super::{ALL, APPLICATION, ROLES, TestDatabase, name_of, replace_login};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, mysql::MySqlPoolOptions};
use twinbox::ops::grants_sql_mysql;
use twinbox_testkit::database::{self, MYSQL_URL};

const PASSWORD: &str = "hush";
/// The length of the longest name of an account.
const LONGEST: usize = 32;
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
    let database = name_of(&owner).unwrap();
    // Not roles of the server: whoever logs in would have to switch them on.
    let longest_role = ROLES.iter().map(|(name, _)| name.len() + 1).max().unwrap();
    let all = format!("{ALL}_{}", &database[database.len() + ALL.len() + 1 + longest_role - LONGEST..]);
    let of_roles = ROLES.map(|(name, role)| (format!("{all}_{name}"), role));
    let mut names = Vec::from_iter(of_roles.iter().map(|(name, _)| name.clone()));
    names.push(all.clone());
    let mut grants = String::new();
    for name in &names {
        grants += &format!("CREATE USER '{name}' IDENTIFIED BY '{PASSWORD}';\n");
    }
    for (name, role) in of_roles {
        grants += &grants_sql_mysql("twinbox", &[(name, role), (all.clone(), role)]).unwrap();
    }
    let own = APPLICATION.map(|name| format!("'{all}_{name}'")).join(", ");
    for table in TABLES {
        grants += &format!("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON {table} TO '{all}', {own};\n");
    }
    let accounts = Accounts(names);
    sqlx::raw_sql(AssertSqlSafe(grants)).execute(owner.pool()).await.unwrap();
    let url = replace_login(owner.url(), &format!("{all}:{PASSWORD}"));
    let pool = MySqlPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    TestDatabase::of_roles(owner, pool, url, accounts)
}

/// Drops the accounts when it is dropped.
struct Accounts(Vec<String>);

impl Drop for Accounts {
    fn drop(&mut self) {
        let names = self.0.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        // In another thread, because the runtime of the test may be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut server = MySqlConnection::connect(&std::env::var(MYSQL_URL).unwrap()).await?;
                sqlx::raw_sql(AssertSqlSafe(format!("DROP USER {names}"))).execute(&mut server).await
            })
        });
        // A server that is gone has taken them with it.
        let _ = dropping.join();
    }
}
