//! The documented roles of Postgres.
use sqlx::{AssertSqlSafe, Postgres};
use twinbox::Store;
use uuid::Uuid;

const GRANTS: &str = include_str!("../../../../crates/twinbox-ops/GRANTS.md");

/// The documented roles, with other names in each test.
pub(crate) struct Roles {
    pub(crate) producer: String,
    pub(crate) runtime: String,
    pub(crate) keeper: String,
    pub(crate) redactor: String,
    pub(crate) operator: String,
}

impl Roles {
    /// Runs the statements of the page, and grants producer and runtime to write to `table`.
    pub(crate) async fn create(owner: &Store<Postgres>, table: &str) -> Self {
        let id = Uuid::now_v7().simple();
        let role = |name| format!("{name}_{id}");
        let (producer, runtime) = (role("producer"), role("runtime"));
        let [keeper, redactor, operator] = ["keeper", "redactor", "operator"].map(role);
        let roles = Self { producer, runtime, keeper, redactor, operator };
        let documented =
            GRANTS.split_once("```sql\n").and_then(|(_, rest)| rest.split_once("```")).unwrap().0;
        assert!(documented.contains("shop_producer") && documented.contains("shop_runtime"), "{documented}");
        let Self { producer, runtime, keeper, redactor, operator } = &roles;
        let grants = documented.replace("shop_producer", producer).replace("shop_runtime", runtime);
        let grants = grants.replace("shop_keeper", keeper).replace("shop_redactor", redactor);
        let grants = grants.replace("shop_operator", operator);
        let all = format!(
            "CREATE ROLE {producer} LOGIN; CREATE ROLE {runtime} LOGIN; CREATE ROLE {keeper} LOGIN;
            CREATE ROLE {redactor} LOGIN; CREATE ROLE {operator} LOGIN; {grants};
            GRANT SELECT, INSERT ON {table} TO {producer}, {runtime}"
        );
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner.pool()).await.unwrap();
        roles
    }

    /// Drops the roles, which are not dropped with the database.
    pub(crate) async fn drop(self, owner: &Store<Postgres>) {
        let Self { producer, runtime, keeper, redactor, operator } = self;
        let all = format!(
            "DROP OWNED BY {producer}, {runtime}, {keeper}, {redactor}, {operator};
            DROP ROLE {producer}; DROP ROLE {runtime}; DROP ROLE {keeper}; DROP ROLE {redactor};
            DROP ROLE {operator}"
        );
        sqlx::raw_sql(AssertSqlSafe(all)).execute(owner.pool()).await.unwrap();
    }
}
