//! Attacks of other roles of the same database: one that may create functions, and one without any right on
//! the tables.
use super::{STREAM, billing, eventually, holds, place, search, start};
use crate::support::{
    consumer::run_until,
    program::{Program, destination},
    relay::Target,
    roles::Roles,
    shared_broker::SharedBroker,
    stores::World,
    tool::Tool,
};
use sqlx::{AssertSqlSafe, PgPool, Postgres, postgres::PgPoolOptions};
use twinbox::{Draft, Timestamp};
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
    let target = Target { url: broker.url("relay"), name: STREAM.to_owned() };
    let text = destination("main", &target, "inbox_prefix = \"_INBOX_relay\"");
    Program::run(&url(world, role), &[], &text).await
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
