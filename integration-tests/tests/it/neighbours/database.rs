//! Attacks of other roles of the same database: one that may create functions, and one without any right on
//! the tables.
use super::{billing, destination, eventually, holds, place, search, start};
use crate::support::{
    consumer::run_until,
    database::SERVICE,
    helper,
    program::Program,
    roles::Roles,
    shared_broker::SharedBroker,
    stores::{TestDb, World},
    tool::{Ran, Tool},
    wait::in_time,
};
use sqlx::{AssertSqlSafe, MySql, PgPool, Postgres, postgres::PgPoolOptions};
use std::time::Duration;
use twinbox::{
    Draft, Timestamp,
    operation::{OperationKey, OperationPolicy},
};
use uuid::Uuid;

/// Makes other tables beside those of the test.
const MIGRATE: [&str; 9] =
    ["schemas", "migrate", "--namespace", "twinbox_next", "--service", "test", "--yes", "--reason", "next"];

fn url(world: &World<Postgres>, role: &str) -> String {
    let (_, server) = world.url().split_once('@').unwrap();
    format!("postgres://{role}@{server}")
}

async fn pool_of(world: &World<Postgres>, role: &str) -> PgPool {
    PgPoolOptions::new().connect(&url(world, role)).await.unwrap()
}

async fn run(pool: &PgPool, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).await.unwrap();
}

/// The program, as a role of the page and as the user of the broker's page.
async fn relay_as(world: &World<Postgres>, role: &str, broker: &SharedBroker) -> Program {
    Program::run(&url(world, role), &[], &destination(broker)).await
}

/// Its functions come before those of Postgres in every session that does not say otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_create_functions_runs_none_as_our_programs() {
    let (world, broker) = start().await;
    let roles = Roles::create(&world, "effects").await;
    let owner = format!(
        "GRANT CREATE ON SCHEMA public TO {};
        DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog',
            current_database()); END $$",
        roles.producer
    );
    run(world.pool(), owner).await;
    let producer = pool_of(&world, &roles.producer).await;
    let mut trap = "CREATE TABLE public.loot (who text, what text);
        GRANT SELECT, INSERT ON public.loot TO PUBLIC;"
        .to_owned();
    for (function, returns) in [
        ("clock_timestamp()", "timestamptz"),
        ("now()", "timestamptz"),
        ("pg_current_xact_id()", "xid8"),
        ("pg_current_snapshot()", "pg_snapshot"),
        ("set_config(text, text, boolean)", "text"),
        ("current_setting(text)", "text"),
    ] {
        let (name, types) = function.trim_end_matches(')').split_once('(').unwrap();
        let arguments = (1..=types.split(',').filter(|one| !one.is_empty()).count()).map(|n| format!("${n}"));
        let arguments = Vec::from_iter(arguments).join(", ");
        trap += &format!(
            "CREATE FUNCTION public.{function} RETURNS {returns} LANGUAGE plpgsql AS $f$ BEGIN
                INSERT INTO public.loot VALUES (current_user, '{name}');
                RETURN pg_catalog.{name}({arguments});
            END $f$;"
        );
    }
    run(&producer, trap).await;

    place(&world, 0..20).await;
    let mut tx = world.begin().await.unwrap();
    let late = Draft::raw("orders.late", 1, "{}").not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, late).await.unwrap();
    tx.commit().await.unwrap();
    run(&producer, "DELETE FROM public.loot".to_owned()).await;
    let program = relay_as(&world, &roles.runtime, &broker).await;
    holds(&broker, "events.*.orders.placed", 20).await;
    holds(&broker, "events.*.orders.late", 1).await;
    program.stop().await;
    Tool::at::<Postgres>(&url(&world, &roles.operator)).run(&["status"]).await;
    Tool::of(&world).ok(&MIGRATE).await;
    let looted = "SELECT who || ' ran ' || what FROM public.loot";
    let looted: Vec<String> = sqlx::query_scalar(looted).fetch_all(&producer).await.unwrap();
    assert!(looted.is_empty(), "{looted:?}");

    // The trap is one: it catches a session without a path of its own.
    let caught = pool_of(&world, &roles.runtime).await;
    run(&caught, "SELECT clock_timestamp()".to_owned()).await;
    let looted = format!("SELECT count(*) FROM public.loot WHERE who = '{}'", roles.runtime);
    let looted: i64 = sqlx::query_scalar(AssertSqlSafe(looted)).fetch_one(&producer).await.unwrap();
    assert_eq!(looted, 1);
    caught.close().await;
    producer.close().await;
    roles.drop(&world).await;
}

/// It holds each lock whose number can be known from the source code, and may lock no row.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_rights_holds_no_lock_that_we_wait_for() {
    let (world, broker) = start().await;
    let other = format!("other_{}", Uuid::now_v7().simple());
    run(world.pool(), format!("CREATE ROLE {other} LOGIN")).await;
    let stranger = pool_of(&world, &other).await;
    let mut held = stranger.begin().await.unwrap();
    let names = [
        "move \"twinbox\".delayed_messages",
        "change \"twinbox\".outbox",
        "thin \"twinbox\".ticks",
        "purge \"twinbox\".inbox search.index",
        "twinbox migrations",
        "twinbox/twinbox/1",
    ];
    for name in names {
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0::bigint))";
        sqlx::query(lock).bind(name).execute(&mut *held).await.unwrap();
    }
    for partition in 0..16_i64 {
        let lock = "SELECT pg_advisory_xact_lock(
            hashtextextended('\"twinbox\".partition_leases search.index', $1))";
        sqlx::query(lock).bind(partition).execute(&mut *held).await.unwrap();
    }
    for table in ["locks", "partition_leases", "purge_marks", "lock_secret", "migrations"] {
        for lock in [
            format!("SELECT FROM twinbox.{table} FOR UPDATE"),
            // Two statements are a transaction, without which a table cannot be locked.
            format!("SELECT 1; LOCK TABLE twinbox.{table} IN ACCESS SHARE MODE"),
        ] {
            let refused = sqlx::raw_sql(AssertSqlSafe(lock.clone())).execute(&stranger).await;
            let refused = refused.map(drop).expect_err(&lock);
            assert_eq!(refused.as_database_error().unwrap().code().as_deref(), Some("42501"), "{lock}");
        }
    }

    let mut tx = world.begin().await.unwrap();
    let late = Draft::raw("orders.late", 1, "{}").not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, late).await.unwrap();
    world.outbox().publish_ordered(&mut tx, &crate::support::stores::Placed { n: 1 }).await.unwrap();
    tx.commit().await.unwrap();
    place(&world, 2..20).await;
    let program = super::relay(&world, &broker).await;
    holds(&broker, "events.*.orders.late", 1).await;
    run_until(search(&world, &broker), async || world.rows("inbox").await == 19).await;
    run_until(billing(&world, &broker), async || world.rows("inbox").await == 38).await;
    assert_eq!(world.inbox("search.index").purge(std::time::Duration::ZERO).await.unwrap(), 19);
    Tool::of(&world).ok(&MIGRATE).await;
    program.stop().await;
    held.rollback().await.unwrap();
    stranger.close().await;
    run(world.pool(), format!("DROP ROLE {other}")).await;
}

/// A lock of ours that is held for good shows in `status`: nothing is lost in silence.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_never_given_up_is_an_alarm() {
    let (world, broker) = start().await;
    let mut held = world.begin().await.unwrap();
    let lock = "SELECT FROM twinbox.locks WHERE name = 'move delayed messages' FOR UPDATE";
    sqlx::query(lock).execute(&mut *held).await.unwrap();
    let mut tx = world.begin().await.unwrap();
    let late = Draft::raw("orders.late", 1, "{}").not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, late).await.unwrap();
    tx.commit().await.unwrap();
    let program = super::relay(&world, &broker).await;
    let tool = Tool::of(&world);
    eventually(async || {
        let ran = tool.run(&["status", "--max-unowned", "1s"]).await;
        ran.out.contains("a delayed message has been due for").then_some(())
    })
    .await;
    held.rollback().await.unwrap();
    holds(&broker, "events.*.orders.late", 1).await;
    program.stop().await;
}

/// A reader of the log, a consumer, and a row to purge.
async fn fill<DB: TestDb>(world: &World<DB>) {
    let mut conn = world.pool().acquire().await.unwrap();
    for (table, columns, values) in
        [("cursors", "destination, p, w", "'nats', 0, 0"), ("consumers", "consumer", "'billing.invoice'")]
    {
        let row = format!("INSERT INTO {} ({columns}) VALUES ({values})", DB::table_of(table));
        sqlx::raw_sql(AssertSqlSafe(row)).execute(&mut *conn).await.unwrap();
    }
    let at_once = OperationPolicy { keep: Duration::ZERO, ..OperationPolicy::default() };
    let key = OperationKey { key: "a".into(), ..OperationKey::default() };
    world.operation(&key, "", &at_once, async |_| Ok(())).await.unwrap();
}

/// The exit code and the output of `twinbox-relay purge`.
async fn purge(url: &str) -> (Option<i32>, String) {
    let destination = "TWINBOX_RELAY__DESTINATIONS__D__";
    let mut command = tokio::process::Command::new(helper::program("twinbox-relay"));
    command
        .args(["purge", "--keep", "0s"])
        .env("TWINBOX_RELAY__DATABASE__URL", url)
        .env("TWINBOX_RELAY__DATABASE__SERVICE", SERVICE)
        .env(format!("{destination}KIND"), "nats")
        .env(format!("{destination}URL"), "nats://127.0.0.1:1")
        .env(format!("{destination}STREAM"), "S");
    let output = in_time(command.output()).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

/// While another session locks the outbox. Returns what the tool says.
async fn programs_end_and_name_what_is_locked<DB: TestDb>(url: &str) -> [Ran; 2] {
    let tool = Tool::at::<DB>(url);
    let (status, doctor, (code, purged)) =
        tokio::join!(tool.run(&["status"]), tool.run(&["doctor"]), purge(url));
    let locked = "a lock was not free in time";
    assert!(status.code == 7 && status.out.contains("billing.invoice"), "{status:?}");
    assert!(status.out.contains(&format!("destinations could not be read: {locked}")), "{status:?}");
    assert!(doctor.code == 1 && doctor.err.contains(locked), "{doctor:?}");
    assert!(code == Some(1) && purged.contains("1 expired idempotency keys deleted"), "{purged}");
    assert!(purged.contains(&format!("rows of outbox could not be deleted: {locked}")), "{purged}");
    [status, doctor]
}

/// A role may lock a table of which it may delete rows.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_locks_a_table_stops_no_program_for_good() {
    let world = World::<Postgres>::new().await;
    let roles = Roles::create(&world, "effects").await;
    fill(&world).await;
    let keeper = pool_of(&world, &roles.keeper).await;
    let mut held = keeper.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE twinbox.outbox").execute(&mut *held).await.unwrap();
    let more = if world.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{more}options[lock_timeout]=1s", world.url());
    let [status, doctor] = programs_end_and_name_what_is_locked::<Postgres>(&url).await;
    let holder = format!("of the role {} locks the table outbox (AccessExclusiveLock)", roles.keeper);
    assert!(status.out.contains(&holder) && doctor.err.contains(&holder), "{status:?} {doctor:?}");
    held.rollback().await.unwrap();
    keeper.close().await;
    roles.drop(&world).await;
}

/// As long as programs wait for locks by default: nothing in the URL can say otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_locks_a_table_of_mariadb_stops_no_program_for_good() {
    let world = World::<MySql>::new().await;
    fill(&world).await;
    let mut held = world.pool().acquire().await.unwrap();
    sqlx::raw_sql("LOCK TABLES twinbox_outbox WRITE").execute(&mut *held).await.unwrap();
    programs_end_and_name_what_is_locked::<MySql>(world.url()).await;
    sqlx::raw_sql("UNLOCK TABLES").execute(&mut *held).await.unwrap();
}
