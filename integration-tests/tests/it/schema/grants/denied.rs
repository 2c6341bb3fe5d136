//! What the page of rights does not name is refused, whatever a role tries.
use super::granted::Granted;
use crate::support::{
    stores::World,
    times::{BrokenTimes, run_unchecked},
};
use sqlx::{AssertSqlSafe, Connection as _, Pool};
use std::{collections::BTreeMap, time::Duration};
use twinbox::{
    Error,
    operation::{
        OperationKey, OperationOutcome, OperationPolicy, OperationResponse, OperationStart, RequestDigest,
    },
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
    // One that runs, and has saved how far it has come.
    let running = OperationKey { key: "b".into(), principal: "bob".into(), ..OperationKey::default() };
    let request = RequestDigest::default();
    let lease = Duration::from_secs(300);
    let begun = world.idempotency_keys().lease(&running, &request, &policy, lease).await.unwrap();
    let OperationStart::Open(mut lease) = begun else { panic!("the key is free") };
    lease.save("here").await.unwrap();
    let redactor = DB::store_of(&world, &roles.redactor).await;
    let mut conn = redactor.pool().acquire().await.unwrap();
    let table = DB::table_of("idempotency_keys");
    let forgeries = [
        "response_body = '3'",
        "response_headers = 'x'",
        "result_ref = 'y'",
        "recovery_point = 'there'",
        "principal = 'eve'",
    ];
    let is_postgres = DB::MODULE == "postgres";
    // What still runs is not even blanked there.
    let running = is_postgres.then_some(("principal = '', key = ''", "bob"));
    let each = forgeries.into_iter().flat_map(|forged| [(forged, "ada"), (forged, "bob")]);
    for (forged, principal) in each.chain(running) {
        let has_right = !is_postgres || forged.starts_with("principal");
        let words = if has_right { "is only blanked" } else { "permission denied" };
        let forged = format!("UPDATE {table} SET {forged} WHERE principal = '{principal}'");
        let mut tx = conn.begin().await.unwrap();
        let refused = sqlx::raw_sql(AssertSqlSafe(forged.clone())).execute(&mut *tx).await;
        let refused = refused.map(drop).expect_err(&forged).to_string();
        assert!(refused.contains(words), "{forged}: {refused}");
        tx.rollback().await.unwrap();
    }
    drop(conn);
    assert_eq!(pay().await, OperationOutcome::Duplicate(2));
    lease.begin().await.unwrap().commit(&OperationResponse::default()).await.unwrap();
    assert_eq!(redactor.idempotency_keys().erase("", Some("ada")).await.unwrap(), 1);
    let blanked = format!(
        "SELECT count(*) FROM {table} WHERE principal = '' AND body_kind = 'omitted' \
         AND COALESCE(response_headers, response_body) IS NULL \
         AND COALESCE(result_ref, codec_headers, recovery_point) IS NULL"
    );
    let blanked = sqlx::query_scalar::<DB, i64>(AssertSqlSafe(blanked)).fetch_one(world.pool());
    assert_eq!(blanked.await.unwrap(), 1);
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

/// With such a time in a row a role would stop whoever computes with it.
pub(super) async fn no_role_writes_a_time_that_no_program_reads<DB: Granted + BrokenTimes>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let (vendors, runs) = (DB::table_of("vendors"), DB::table_of("job_runs"));
    run_unchecked(&world, &format!("INSERT INTO {vendors} (vendor) VALUES ('mail')")).await;
    let operator = DB::store_of(&world, &roles.operator).await;
    for time in DB::BROKEN {
        for act in [
            format!("UPDATE {vendors} SET closed_until = {time}"),
            format!(
                "INSERT INTO {runs} (run_id, job_id, scheduled_for)
                VALUES ('0123456789abcdef0123456789abcdef', 'a', {time})"
            ),
        ] {
            let mut conn = operator.pool().acquire().await.unwrap();
            let act = AssertSqlSafe(format!("{}; {act}", DB::SESSION));
            let refused = sqlx::raw_sql(act).execute(&mut *conn).await.map(drop).expect_err(time);
            assert!(!Error::from(refused).is_forbidden(), "{time}: the role may write the column");
            conn.close().await.unwrap();
        }
    }
    assert_eq!((world.rows("job_runs").await, Ops::new(&operator).vendors().await.unwrap().len()), (0, 1));
    operator.pool().close().await;
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

/// Two roles that write the audit. Neither ends an act of the other, and none hides behind another's entry.
pub(super) async fn an_entry_of_the_audit_is_ended_once_and_by_its_own_role<DB: Granted>() {
    let world = World::<DB>::new().await;
    let roles = DB::create(&world, "effects").await;
    let keeper = DB::store_of(&world, &roles.keeper).await;
    let operator = DB::store_of(&world, &roles.operator).await;
    let intent = AuditIntent { operator: "ada", command: "x", target: "y", reason: None };
    let anothers = Ops::new(&keeper).begin_audit(&intent).await.unwrap();
    let own = Ops::new(&operator).begin_audit(&intent).await.unwrap();
    let (audit, actions) = (DB::table_of("audit"), DB::table_of("bulk_actions"));
    let end = |entry: i64, count: u32| format!("UPDATE {audit} SET count = {count} WHERE id = {entry}");
    let make = |entry: i64, made_by: &str| {
        format!(
            "INSERT INTO {actions} (action, filter, spacing, planned, audit_id, made_by)
            VALUES ('discard', '{{}}', 0, 1, {entry}, '{made_by}')"
        )
    };
    let set = |state: &str| format!("UPDATE {actions} SET state = '{state}'");
    let mut conn = operator.pool().acquire().await.unwrap();
    let (counted, made) = ("count of an audit entry is written once", "has a new audit entry of its maker");
    for (sql, why) in [
        (end(anothers, 7), Some(counted)),
        (make(anothers, "ada"), Some(made)),
        (make(own, "eve"), Some(made)),
        (make(own + 100, "ada"), Some(made)),
        (make(own, "ada"), None),
        // An action has an entry alone.
        (make(own, "ada"), Some("")),
        (end(anothers, 0), Some(counted)),
        (end(own, 0), Some(counted)),
        (set("cancelled"), None),
        (set("running"), Some(made)),
        // It has changed nothing.
        (end(own, 1), Some(counted)),
        (end(own, 0), None),
        (end(own, 1), Some(counted)),
    ] {
        let ran = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *conn).await.map(drop);
        match (ran, why) {
            (Ok(()), None) => {}
            (Err(refused), Some(why)) => assert!(refused.to_string().contains(why), "{sql}: {refused}"),
            (ran, _) => panic!("{sql}: {ran:?}"),
        }
    }
    drop(conn);
    // A program whose login has become that of another has done its act.
    Ops::new(&operator).end_audit(anothers, 9).await.unwrap();
    Ops::new(&keeper).end_audit(anothers, 3).await.unwrap();
    let entries = Ops::new(&world).audit(10).await.unwrap();
    let counts = Vec::from_iter(entries.iter().map(|entry| (entry.id, entry.count)));
    assert_eq!(counts, [(own, Some(0)), (anothers, Some(3))]);
    keeper.pool().close().await;
    operator.pool().close().await;
    DB::drop(roles, &world).await;
}
