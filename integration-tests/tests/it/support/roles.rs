//! The documented roles of Postgres and MySQL.
use super::databases::{MySql, Postgres};
use sqlx::AssertSqlSafe;
use twinbox::{
    Store,
    ops::{Role, grants_sql_mysql},
};
use uuid::Uuid;

const GRANTS: &str = include_str!("../../../../crates/twinbox-ops/GRANTS.md");

/// The password of the roles of MySQL.
pub(crate) const MYSQL_PASSWORD: &str = "hush";

/// The documented roles, with other names in each test.
pub(crate) struct Roles {
    pub(crate) producer: String,
    pub(crate) runtime: String,
    pub(crate) keeper: String,
    pub(crate) redactor: String,
    pub(crate) operator: String,
    pub(crate) viewer: String,
}

impl Roles {
    /// Runs the statements of the page, and grants producer and runtime to write to `table`.
    pub(crate) async fn create(owner: &Store<Postgres>, table: &str) -> Self {
        let id = Uuid::now_v7().simple();
        let role = |name| format!("{name}_{id}");
        let (producer, runtime) = (role("producer"), role("runtime"));
        let [keeper, redactor, operator, viewer] = ["keeper", "redactor", "operator", "viewer"].map(role);
        let roles = Self { producer, runtime, keeper, redactor, operator, viewer };
        let documented =
            GRANTS.split_once("```sql\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
        assert!(documented.contains("shop_producer") && documented.contains("shop_runtime"), "{documented}");
        let Self { producer, runtime, keeper, redactor, operator, viewer } = &roles;
        let grants = documented.replace("shop_producer", producer).replace("shop_runtime", runtime);
        let grants = grants.replace("shop_keeper", keeper).replace("shop_redactor", redactor);
        let grants = grants.replace("shop_operator", operator).replace("shop_viewer", viewer);
        let all = format!(
            "CREATE ROLE {producer} LOGIN; CREATE ROLE {runtime} LOGIN; CREATE ROLE {keeper} LOGIN;
            CREATE ROLE {redactor} LOGIN; CREATE ROLE {operator} LOGIN; CREATE ROLE {viewer} LOGIN; {grants};
            GRANT SELECT, INSERT ON {table} TO {producer}, {runtime}"
        );
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner.pool()).await.unwrap();
        roles
    }

    /// The same on MySQL, by the statements that the tool prints.
    pub(crate) async fn create_on_mysql(owner: &Store<MySql>, table: &str) -> Self {
        let id = Uuid::now_v7().simple();
        let [producer, runtime, keeper, redactor, operator, viewer] =
            ["producer", "runtime", "keeper", "redactor", "operator", "viewer"]
                .map(|name| format!("{name}_{id}"));
        let mut all = String::new();
        for (name, role) in [
            (&producer, Role::Producer),
            (&runtime, Role::Runtime),
            (&keeper, Role::Keeper),
            (&redactor, Role::Redactor),
            (&operator, Role::Operator),
            (&viewer, Role::Viewer),
        ] {
            all += &format!("CREATE USER '{name}' IDENTIFIED BY '{MYSQL_PASSWORD}';\n");
            all += &grants_sql_mysql("twinbox", &[(name.clone(), role)]).unwrap();
        }
        for name in [&producer, &runtime] {
            all += &format!("GRANT SELECT, INSERT ON {table} TO '{name}';\n");
        }
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner.pool()).await.unwrap();
        Self { producer, runtime, keeper, redactor, operator, viewer }
    }

    /// The same on MySQL.
    pub(crate) async fn drop_on_mysql(self, owner: &Store<MySql>) {
        let Self { producer, runtime, keeper, redactor, operator, viewer } = self;
        let all = format!(
            "DROP USER '{producer}', '{runtime}', '{keeper}', '{redactor}', '{operator}', '{viewer}'"
        );
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner.pool()).await.unwrap();
    }

    /// Drops the roles, which are not dropped with the database.
    pub(crate) async fn drop(self, owner: &Store<Postgres>) {
        let Self { producer, runtime, keeper, redactor, operator, viewer } = self;
        let all = format!(
            "DROP OWNED BY {producer}, {runtime}, {keeper}, {redactor}, {operator}, {viewer};
            DROP ROLE {producer}; DROP ROLE {runtime}; DROP ROLE {keeper}; DROP ROLE {redactor};
            DROP ROLE {operator}; DROP ROLE {viewer}"
        );
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner.pool()).await.unwrap();
    }
}
