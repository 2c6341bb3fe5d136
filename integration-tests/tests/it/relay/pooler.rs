//! Through PgBouncer in transaction mode, of a version that knows no prepared statements.
use super::*;
use crate::support::{
    consumer::run_until,
    database::SERVICE,
    relay::{PATIENCE, publish, publish_as},
    rig::Rig,
    stores::{Placed, World, placed},
    wait::in_time,
};
use futures::future::join_all;
use sqlx::{
    AssertSqlSafe, PgPool, Row as _,
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};
use twinbox::{
    Consumer, Delivery, ErrorKind, HandlerResult, StoreOptions, Tx, event_handler,
    inbox::InboxClaim,
    log::{Log, Retention},
    ops::Ops,
};
use twinbox_testkit::servers::PgBouncer;

/// Fewer than there are clients.
const CONNECTIONS: u32 = 3;
const TASKS: i64 = 8;
const STATEMENTS: i64 = 500;

struct Pooled {
    bouncer: PgBouncer,
    direct: PgConnectOptions,
}

impl Pooled {
    fn new(store: &Store<Postgres>) -> Self {
        let direct = (*store.pool().connect_options()).clone();
        let upstream =
            format!("host={} port={} user={}", direct.get_host(), direct.get_port(), direct.get_username());
        Self { bouncer: PgBouncer::start(&upstream, CONNECTIONS).unwrap(), direct }
    }

    async fn pool(&self) -> PgPool {
        let options = self.direct.clone().port(self.bouncer.port()).ssl_mode(PgSslMode::Disable);
        PgPoolOptions::new().max_connections(10).connect_with(options).await.unwrap()
    }

    async fn store(&self, pooler: bool) -> Store<Postgres> {
        Store::with_options(self.pool().await, SERVICE, StoreOptions::new().pooler(pooler)).unwrap()
    }

    /// Statements that have a name on the servers.
    async fn names(&self) -> i64 {
        let pool = self.pool().await;
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            open.push(twinbox::begin(&pool).await.unwrap());
        }
        let mut names = 0;
        for tx in &mut open {
            let count = sqlx::raw_sql("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''");
            names += count.fetch_one(&mut **tx).await.unwrap().get::<i64, _>(0);
        }
        names
    }
}

/// Each statement has its own text, its own argument and its own answer.
fn distinct(task: i64, n: i64) -> (AssertSqlSafe<String>, i64) {
    (AssertSqlSafe(format!("SELECT $1::bigint + {n} /* {task} */")), task * STATEMENTS)
}

async fn right_answers(store: &Store<Postgres>, task: i64) -> i64 {
    let mut right = 0;
    for n in 0..STATEMENTS {
        let (sql, argument) = distinct(task, n);
        let mut tx = store.begin().await.unwrap();
        let answer: i64 =
            sqlx::query_scalar(sql).persistent(false).bind(argument).fetch_one(&mut *tx).await.unwrap();
        right += i64::from(answer == argument + n);
        let draft = Draft::raw("orders.placed", 1, n_payload(n as u32)).id(format!("{task}-{n}"));
        store.outbox().publish_draft(&mut tx, draft).await.unwrap();
        tx.commit().await.unwrap();
    }
    right
}

async fn wrong_answers(pool: &PgPool, task: i64) -> i64 {
    let mut wrong = 0;
    for n in 0..STATEMENTS {
        let (sql, argument) = distinct(task, n);
        let answer = sqlx::query_scalar::<_, i64>(sql).bind(argument).fetch_one(pool).await;
        wrong += i64::from(answer.ok() != Some(argument + n));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_gets_its_own_answer() {
    let world = World::<Postgres>::new().await;
    let pooled = Pooled::new(&world);
    let store = pooled.store(true).await;
    store.check().await.unwrap();
    let right = join_all((0..TASKS).map(|task| right_answers(&store, task))).await;
    assert_eq!(right, [STATEMENTS; TASKS as usize]);
    assert_eq!(world.rows("outbox").await, TASKS * STATEMENTS);
    assert_eq!(pooled.names().await, 0);

    let careless = pooled.pool().await;
    let wrong: i64 = join_all((0..TASKS).map(|task| wrong_answers(&careless, task))).await.iter().sum();
    assert!(wrong > 0, "this is no pooler to be afraid of");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_nobody_spoke_of_is_refused() {
    let world = World::<Postgres>::new().await;
    let pooled = Pooled::new(&world);
    for error in [
        pooled.store(false).await.check().await.unwrap_err(),
        pooled.store(false).await.migrate().await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("`pooler = true`"), "{error}");
    }
    pooled.store(true).await.migrate().await.unwrap();
    let alone = PgPoolOptions::new().max_connections(1).connect_with(pooled.direct.clone()).await.unwrap();
    Store::new(alone, SERVICE).unwrap().check().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_names_a_statement_is_rolled_back() {
    let world = World::<Postgres>::new().await;
    let pooled = Pooled::new(&world);
    let store = pooled.store(true).await;
    for named in [true, false, true] {
        let InboxClaim::Open(mut attempt) =
            store.inbox("tests.named").claim(&placed(1), false).await.unwrap()
        else {
            panic!("nobody has handled it")
        };
        let insert = sqlx::query("INSERT INTO effects VALUES ($1)").persistent(named).bind(1_i64);
        insert.execute(&mut *attempt.tx()).await.unwrap();
        if !named {
            attempt.rollback().await;
            continue;
        }
        let error = attempt.commit().await.unwrap_err();
        assert!(error.to_string().contains("`.persistent(false)`"), "{error}");
    }
    assert_eq!((world.effects().await.len(), world.rows("inbox").await), (0, 0));
}

#[event_handler(consumer = "tests.pooled", max_attempts = 2)]
async fn handle(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    if order.n == 7 {
        return Err("never".into());
    }
    sqlx::query("INSERT INTO effects VALUES ($1)").persistent(false).bind(order.n).execute(&mut **tx).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_consumer_works_through_it() {
    let world = World::<Postgres>::new().await;
    let pooled = Pooled::new(&world);
    let store = pooled.store(true).await;
    let mut tx = store.begin().await.unwrap();
    let drafts = (0..200).map(|n| Draft::of(&Placed { n }).unwrap()).collect();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let consumer = Consumer::new(store.clone(), ()).handler::<handle>();
    run_until(consumer, async || world.rows("inbox").await == 200).await;
    assert_eq!(world.effects().await, (0..200).filter(|n| *n != 7).collect::<Vec<_>>());
    assert_eq!(store.inbox("tests.pooled").dead_letters(10).await.unwrap().len(), 1);
    let handled = &store.published("orders.placed", 1).await.unwrap()[0];
    let InboxClaim::Duplicate(seen) =
        in_time(store.inbox("tests.pooled").claim(handled, true)).await.unwrap()
    else {
        panic!("it was handled")
    };
    assert_eq!(seen.state, "processed");
    assert_eq!(pooled.names().await, 0);
}

/// The program, killed once, with a type that has no stream at first, and everything an operator does.
#[tokio::test(flavor = "multi_thread")]
async fn the_relay_works_through_it() {
    let rig = Rig::new(&["orders.placed"]).await;
    let pooled = Pooled::new(&rig.database);
    let store = pooled.store(true).await;
    let command = || {
        let mut command = rig.command();
        let url = format!(
            "postgres://{}@127.0.0.1:{}/{}",
            pooled.direct.get_username(),
            pooled.bouncer.port(),
            pooled.direct.get_database().unwrap()
        );
        command.env("TWINBOX_RELAY__DATABASE__URL", url).env("TWINBOX_RELAY__DATABASE__POOLER", "true");
        command
    };
    let kind = |n| if n % 7 == 3 { "orders.paid" } else { "orders.placed" };
    publish_as(&store, 0..300, kind).await;
    let killed = command().env("TWINBOX_CRASH_AT", "log.after_park").status();
    assert!(!timeout(PATIENCE, killed).await.expect("it dies").unwrap().success());
    free_leases(&rig.database).await;
    let mut relay = command().spawn().unwrap();
    publish(&store, 300..400).await;
    let mut tx = store.begin().await.unwrap();
    let later = Draft::raw("orders.placed", 1, n_payload(400))
        .id("o-400")
        .not_before(twinbox::Timestamp::from_micros(0));
    store.outbox().publish_draft(&mut tx, later).await.unwrap();
    tx.commit().await.unwrap();
    rig.target.update(rig.target.forgetful(&["orders.placed", "orders.paid"])).await;
    rig.target.whole(401).await;
    let one = Ops::new(&store).readers().await.unwrap();
    assert_eq!(one.len(), 1);
    Ops::new(&store).pause_destination(&one[0].name, "to see it").await.unwrap();
    assert!(Ops::new(&store).readers().await.unwrap()[0].pause_reason.is_some());
    Ops::new(&store).resume_destination(&one[0].name).await.unwrap();
    relay.kill().await.unwrap();
    Log::new(&store).purge(Retention::new(Duration::ZERO)).await.unwrap();
    assert_eq!(pooled.names().await, 0);
}
