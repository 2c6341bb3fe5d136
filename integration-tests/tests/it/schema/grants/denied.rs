//! What the page of rights does not name is refused, whatever a role tries.
use super::granted::Granted;
use crate::support::stores::World;
use sqlx::{AssertSqlSafe, Connection as _, Pool};
use std::collections::BTreeMap;
use twinbox::{
    Error,
    operation::{OperationKey, OperationOutcome, OperationPolicy},
    ops::{AuditIntent, Ops, Role, documented_rights},
};

/// The columns of each table of the store, by the database's own list.
async fn tables<DB: Granted>(world: &World<DB>) -> BTreeMap<String, Vec<String>> {
    let rows = sqlx::query_as::<DB, (String, String)>(DB::COLUMNS).fetch_all(world.pool()).await.unwrap();
    rows.into_iter().fold(BTreeMap::<_, Vec<_>>::new(), |mut all, (table, column)| {
        all.entry(table).or_default().push(column);
        all
    })
}

/// Whether a role may do it. Nothing is done.
async fn is_allowed<DB: Granted>(conn: &mut DB::Connection, statement: String) -> bool {
    match sqlx::raw_sql(AssertSqlSafe(statement)).execute(conn).await {
        Ok(_) => true,
        Err(error) => !Error::from(error).is_forbidden(),
    }
}

/// Tries each verb on each table and each column as one role, and returns where the page says otherwise.
async fn differences<DB: Granted>(
    pool: &Pool<DB>,
    role: Role,
    tables: &BTreeMap<String, Vec<String>>,
) -> Vec<String> {
    let documented = documented_rights(role, DB::NAME == "MySQL");
    let is_documented = |verb: &str, table: &str, column: Option<&str>| {
        documented.iter().any(|(privilege, of_table, of_column)| {
            *privilege == verb && *of_table == Some(table) && (of_column.is_none() || *of_column == column)
        })
    };
    let mut conn = pool.acquire().await.unwrap();
    let mut wrong = Vec::new();
    for (table, columns) in tables {
        let (place, quote) = (DB::table_of(table), DB::QUOTE);
        let mut tried = vec![
            ("DELETE", None, format!("EXPLAIN DELETE FROM {place}")),
            ("TRUNCATE", None, format!("TRUNCATE TABLE {place}")),
        ];
        for column in columns {
            let (name, column) = (format!("{quote}{column}{quote}"), Some(column.as_str()));
            tried.extend([
                ("SELECT", column, format!("EXPLAIN SELECT {name} FROM {place}")),
                ("INSERT", column, format!("EXPLAIN INSERT INTO {place} ({name}) VALUES (DEFAULT)")),
                ("UPDATE", column, format!("EXPLAIN UPDATE {place} SET {name} = DEFAULT")),
            ]);
        }
        for (verb, column, statement) in tried {
            let is_allowed = is_allowed::<DB>(&mut conn, statement).await;
            if is_allowed != is_documented(verb, table, column) {
                let what = if is_allowed { "may" } else { "may not" };
                wrong.push(format!("{} {what} {verb} {table}.{}", role.as_str(), column.unwrap_or("*")));
            }
        }
    }
    wrong
}

pub(super) async fn what_the_page_does_not_grant_is_refused<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let tables = tables(&world).await;
    assert!(tables.len() > 30 && tables["outbox"].contains(&"payload".to_owned()), "{tables:?}");
    let tried = roles.all().map(async |(role, name)| {
        let store = DB::store_of(&world, name).await;
        let wrong = differences::<DB>(store.pool(), role, &tables).await;
        store.pool().close().await;
        wrong
    });
    let wrong = futures::future::join_all(tried).await.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    DB::drop(roles, &world).await;
}

/// A message in each table that the redactor may blank.
pub(super) async fn who_blanks_messages_cannot_forge_one<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    for sql in DB::STORED_MESSAGES {
        world.execute(sql).await;
    }
    let redactor = DB::store_of(&world, &roles.redactor).await;
    let mut conn = redactor.pool().acquire().await.unwrap();
    for table in ["outbox", "delayed_messages", "parked_deliveries", "dead_letters"] {
        for forged in ["payload = 'forged'", "payload = '', headers = NULL", DB::FORGED_HEADERS] {
            let forged = format!("UPDATE {} SET {forged}", DB::table_of(table));
            let mut tx = conn.begin().await.unwrap();
            let refused = sqlx::raw_sql(AssertSqlSafe(forged.clone())).execute(&mut *tx).await;
            let refused = refused.map(drop).expect_err(&forged).to_string();
            assert!(refused.contains("is only blanked"), "{forged}: {refused}");
            tx.rollback().await.unwrap();
        }
    }
    drop(conn);
    let redacted = Ops::new(&redactor).redact("7").await.unwrap();
    assert_eq!(
        (redacted.outbox, redacted.delayed, redacted.parked_deliveries, redacted.dead_letters),
        (1, 1, 1, 1)
    );
    redactor.pool().close().await;
    DB::drop(roles, &world).await;
}

/// A retry would get it.
pub(super) async fn who_blanks_responses_cannot_forge_one<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let key = OperationKey { key: "a".into(), principal: "ada".into(), ..OperationKey::default() };
    let policy = OperationPolicy::default();
    let pay = async || world.operation(&key, &1, &policy, async |_| Ok(2)).await.unwrap();
    assert_eq!(pay().await, OperationOutcome::Committed(2));
    let redactor = DB::store_of(&world, &roles.redactor).await;
    let mut conn = redactor.pool().acquire().await.unwrap();
    for forged in ["response_body = '3'", "response_headers = 'x'", "result_ref = 'y'"] {
        let forged = format!("UPDATE {} SET {forged}", DB::table_of("idempotency_keys"));
        let mut tx = conn.begin().await.unwrap();
        let refused = sqlx::raw_sql(AssertSqlSafe(forged.clone())).execute(&mut *tx).await;
        let refused = refused.map(drop).expect_err(&forged).to_string();
        assert!(refused.contains("is only blanked"), "{forged}: {refused}");
        tx.rollback().await.unwrap();
    }
    drop(conn);
    assert_eq!(pay().await, OperationOutcome::Duplicate(2));
    assert_eq!(redactor.idempotency_keys().erase("", Some("ada")).await.unwrap(), 1);
    redactor.pool().close().await;
    DB::drop(roles, &world).await;
}

pub(super) async fn no_session_turns_the_rules_of_columns_off<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let producer = DB::store_of(&world, &roles.producer).await;
    for sql in DB::UNREADABLE {
        let mut conn = producer.pool().acquire().await.unwrap();
        sqlx::raw_sql(*sql).execute(&mut *conn).await.map(drop).expect_err(sql);
        conn.close().await.unwrap();
    }
    assert_eq!((world.rows("outbox").await, world.rows("delayed_messages").await), (0, 0));
    producer.pool().close().await;
    DB::drop(roles, &world).await;
}

pub(super) async fn the_audit_knows_which_role_acted<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let operator = DB::store_of(&world, &roles.operator).await;
    let intent = AuditIntent { operator: "somebody.else", command: "x", target: "y", reason: None };
    Ops::new(&operator).begin_audit(&intent).await.unwrap();
    let [entry] = &Ops::new(&world).audit(10).await.unwrap()[..] else { panic!("one entry") };
    assert_eq!((&*entry.operator, &*entry.command), ("somebody.else", "x"));
    assert_eq!(entry.database_user.split('@').next(), Some(&*roles.operator));
    let mut conn = operator.pool().acquire().await.unwrap();
    sqlx::raw_sql(DB::BACKDATED).execute(&mut *conn).await.unwrap();
    conn.close().await.unwrap();
    let (now, newest) = (world.now().await.unwrap(), &Ops::new(&world).audit(1).await.unwrap()[0]);
    let age = now.as_micros() - newest.at.as_micros();
    assert!(newest.command == "backdated" && (-60_000_000..3_600_000_000).contains(&age), "{newest:?}");
    operator.pool().close().await;
    DB::drop(roles, &world).await;
}
