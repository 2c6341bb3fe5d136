//! Databases of Postgres. Roles belong to the server: those of tests are made once, and stay on it.
use super::{ALL, APPLICATION, ROLES, TestDatabase, login, replace_login};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Postgres, postgres::PgPoolOptions};
use tokio::sync::OnceCell;
use twinbox::ops::grants_sql;
use twinbox_testkit::database;
pub(crate) use twinbox_testkit::database::POSTGRES_URL;

pub(crate) async fn postgres() -> TestDatabase<Postgres> {
    let owner = database::postgres().await;
    create_roles().await;
    sqlx::raw_sql(AssertSqlSafe(grants())).execute(owner.pool()).await.unwrap();
    let url = replace_login(owner.url(), &login_of(ALL));
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await.unwrap();
    TestDatabase::of_roles(owner, pool, url, ())
}

pub(crate) async fn empty_postgres() -> TestDatabase<Postgres> {
    TestDatabase::owned(database::empty_postgres().await)
}

fn server_url() -> String {
    std::env::var(POSTGRES_URL).unwrap_or_default()
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
