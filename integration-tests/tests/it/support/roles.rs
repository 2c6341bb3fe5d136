//! The documented roles of Postgres and MySQL.
use super::{
    database::owner_of,
    databases::{MySql, Postgres},
};
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
    pub(crate) web: String,
    pub(crate) runtime: String,
    pub(crate) keeper: String,
    pub(crate) redactor: String,
    pub(crate) operator: String,
    pub(crate) viewer: String,
}

impl Roles {
    /// Runs the statements of the page, and grants producer, web and runtime to write to `table`.
    pub(crate) async fn create(owner: &Store<Postgres>, table: &str) -> Self {
        let id = Uuid::now_v7().simple();
        let role = |name| format!("{name}_{id}");
        let [producer, web, runtime] = ["producer", "web", "runtime"].map(role);
        let [keeper, redactor, operator, viewer] = ["keeper", "redactor", "operator", "viewer"].map(role);
        let roles = Self { producer, web, runtime, keeper, redactor, operator, viewer };
        let documented =
            GRANTS.split_once("```sql\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
        assert!(documented.contains("shop_producer") && documented.contains("shop_runtime"), "{documented}");
        let Self { producer, web, runtime, keeper, redactor, operator, viewer } = &roles;
        let grants = documented.replace("shop_producer", producer).replace("shop_web", web);
        let grants = grants.replace("shop_runtime", runtime);
        let grants = grants.replace("shop_keeper", keeper).replace("shop_redactor", redactor);
        let grants = grants.replace("shop_operator", operator).replace("shop_viewer", viewer);
        // As servers before Postgres 15 need it.
        let all = format!(
            "REVOKE CREATE ON SCHEMA public FROM PUBLIC;
            CREATE ROLE {producer} LOGIN; CREATE ROLE {web} LOGIN; CREATE ROLE {runtime} LOGIN;
            CREATE ROLE {keeper} LOGIN; CREATE ROLE {redactor} LOGIN; CREATE ROLE {operator} LOGIN;
            CREATE ROLE {viewer} LOGIN; {grants};
            GRANT SELECT, INSERT ON {table} TO {producer}, {web}, {runtime}"
        );
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner_of(owner).pool()).await.unwrap();
        roles
    }

    /// The same on MySQL, by the statements that the tool prints.
    pub(crate) async fn create_on_mysql(owner: &Store<MySql>, table: &str) -> Self {
        // MySQL takes names of 32 bytes.
        let id = &Uuid::now_v7().simple().to_string()[12..];
        let [producer, web, runtime, keeper, redactor, operator, viewer] =
            ["producer", "web", "runtime", "keeper", "redactor", "operator", "viewer"]
                .map(|name| format!("{name}_{id}"));
        let mut all = String::new();
        for (name, role) in [
            (&producer, Role::Producer),
            (&web, Role::Web),
            (&runtime, Role::Runtime),
            (&keeper, Role::Keeper),
            (&redactor, Role::Redactor),
            (&operator, Role::Operator),
            (&viewer, Role::Viewer),
        ] {
            all += &format!("CREATE USER '{name}' IDENTIFIED BY '{MYSQL_PASSWORD}';\n");
            all += &grants_sql_mysql("twinbox", &[(name.clone(), role)]).unwrap();
        }
        for name in [&producer, &web, &runtime] {
            all += &format!("GRANT SELECT, INSERT ON {table} TO '{name}';\n");
        }
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner_of(owner).pool()).await.unwrap();
        Self { producer, web, runtime, keeper, redactor, operator, viewer }
    }

    /// Each role with its name.
    pub(crate) fn all(&self) -> [(Role, &str); 7] {
        [
            (Role::Producer, &self.producer),
            (Role::Web, &self.web),
            (Role::Runtime, &self.runtime),
            (Role::Keeper, &self.keeper),
            (Role::Redactor, &self.redactor),
            (Role::Operator, &self.operator),
            (Role::Viewer, &self.viewer),
        ]
    }

    /// The same on MySQL.
    pub(crate) async fn drop_on_mysql(self, owner: &Store<MySql>) {
        let names = self.all().map(|(_, name)| format!("'{name}'")).join(", ");
        sqlx::raw_sql(AssertSqlSafe(format!("DROP USER {names}")))
            .execute(owner_of(owner).pool())
            .await
            .unwrap();
    }

    /// Drops the roles, which are not dropped with the database.
    pub(crate) async fn drop(self, owner: &Store<Postgres>) {
        let names = self.all().map(|(_, name)| name).join(", ");
        let all = format!("DROP OWNED BY {names}; DROP ROLE {names}");
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner_of(owner).pool()).await.unwrap();
    }
}
