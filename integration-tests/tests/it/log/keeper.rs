//! The keeper: tables stay bounded without a timer outside.
use crate::support::{
    cases::cases,
    database::SERVICE,
    effects::{mail, plan},
    helper,
    jobs::execute,
    logged::Lines,
    long,
    operations::key,
    processes::{Program, Programs},
    relay::{Running, Target},
    roles::Roles,
    stores::{Placed, TestDb, World, effect},
    wait::{eventually, in_time, signal},
};
use sqlx::{Postgres, postgres::PgPoolOptions};
use std::time::Duration;
use twinbox::{
    CancellationToken, Consumer, Delivery, Draft, HandlerResult, Store, Timestamp, Tx,
    effects::{
        Applied, ClientKeys,
        jobs::{Jobs, RunState},
    },
    event_handler,
    log::{KEEPER, Keeper, Reader, ReaderOptions},
    operation::{OperationPolicy, OperationResponse},
    relay::Relay,
    webhook::{WebhookClaim, WebhookReceipt},
};
use uuid::Uuid;

const DAYS: i64 = 30;
/// Messages, effects, keys and receipts of a day.
const A_DAY: i64 = 2;
const DAY: Duration = Duration::from_secs(24 * 3600);

#[event_handler(consumer = "tests.kept")]
async fn handle<DB: twinbox::Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

/// What a service writes in a day: messages, keys, receipts, and effects and keys of a client that ended 25
/// days ago.
async fn live_a_day<DB: TestDb>(world: &World<DB>, day: i64) {
    let client_keys = ClientKeys::new(world);
    for n in day * A_DAY..(day + 1) * A_DAY {
        let mut tx = world.begin().await.unwrap();
        world.outbox().publish_draft(&mut tx, Draft::of(&Placed { n }).unwrap()).await.unwrap();
        tx.commit().await.unwrap();
        let policy = OperationPolicy { keep: 3 * DAY, ..OperationPolicy::default() };
        world.operation(&key(&n.to_string()), &n, &policy, async |_| Ok(n)).await.unwrap();
        let payload = n.to_string();
        let receipt = WebhookReceipt {
            provider: "stripe",
            endpoint: "",
            id: None,
            payload: payload.as_bytes(),
            secret_index: 0,
        };
        let WebhookClaim::Open(receipt) = world.receive_webhook(&receipt, 3 * DAY).await.unwrap() else {
            panic!("it is new")
        };
        receipt.commit(&OperationResponse::default()).await.unwrap();
        plan(world, mail("x")).await;
        let client_key = client_keys.begin("charge", &n.to_string()).await.unwrap();
        client_keys.finish(&client_key, &Applied::new()).await.unwrap();
    }
    let table = DB::table_of("side_effects");
    let confirm = format!(
        "UPDATE {table}
        SET state = 'confirmed', ended_at = {}, next_attempt_at = NULL
        WHERE state = 'pending'",
        earlier::<DB>("created_at", 25)
    );
    execute(world, confirm).await;
    let (table, ended) = (DB::table_of("client_keys"), earlier::<DB>("created_at", 25));
    execute(world, format!("UPDATE {table} SET ended_at = {ended} WHERE ended_at >= created_at")).await;
}

/// SQL of a time some days before the one in a column.
fn earlier<DB: TestDb>(column: &str, days: i64) -> String {
    DB::earlier(column, days * 86_400)
}

/// Lets a day pass.
async fn age_a_day<DB: TestDb>(world: &World<DB>) {
    let ages = if DB::ONE_WRITER { ("outbox", "time") } else { ("ticks", "taken_at") };
    let others = [
        ("idempotency_keys", "expires_at"),
        ("webhook_receipts", "expires_at"),
        ("side_effects", "ended_at"),
        ("client_keys", "ended_at"),
        ("job_runs", "finished_at"),
    ];
    for (table, column) in std::iter::once(ages).chain(others) {
        let (table, earlier) = (DB::table_of(table), earlier::<DB>(column, 1));
        execute(world, format!("UPDATE {table} SET {column} = {earlier}")).await;
    }
}

/// Waits for a run of the keeper that begins after now.
async fn keeps<DB: TestDb>(world: &World<DB>) {
    let now = world.now().await.unwrap();
    let jobs = Jobs::new(world);
    let is_later = |at: Option<Timestamp>| at.is_some_and(|at| at > now);
    eventually(async || {
        let runs = jobs.runs(KEEPER, 3).await.unwrap();
        runs.iter().any(|run| run.state == RunState::Done && is_later(run.started_at)).then_some(())
    })
    .await;
}

/// Lives a month, while something settles what is published, and a keeper runs.
///
/// A keeper that runs needs a second for each day. So the last days are its own, and enough of them to exceed
/// the bounds without it. On the days before, the test does its work. With `--long` all days are its own.
async fn live_a_month<DB: TestDb>(world: &World<DB>, settled: impl AsyncFn(i64)) {
    let own_days = long::or(DAYS, 4);
    let open = plan(world, mail("open")).await;
    let (table, old) = (DB::table_of("side_effects"), earlier::<DB>("created_at", 60));
    execute(world, format!("UPDATE {table} SET state = 'unknown', created_at = {old}")).await;
    let mut most = [0; 5];
    let tables = ["outbox", "idempotency_keys", "webhook_receipts", "side_effects", "client_keys"];
    for day in 0..DAYS {
        live_a_day(world, day).await;
        settled((day + 1) * A_DAY).await;
        age_a_day(world).await;
        if day >= DAYS - own_days {
            keeps(world).await;
        } else {
            // Rows that this purge misses beside the running keeper are deleted a day later.
            let report = Keeper::new(world).purge().await;
            assert!(report.forbidden.is_empty(), "{report:?}");
        }
        for (most, table) in most.iter_mut().zip(tables) {
            *most = world.rows(table).await.max(*most);
        }
    }
    // A week of messages, three days of keys and receipts, five days of effects and keys of a client; and a
    // day or two more.
    let bounds = [9 * A_DAY, 4 * A_DAY, 4 * A_DAY, 7 * A_DAY + 1, 7 * A_DAY];
    for ((most, bound), table) in most.iter().zip(bounds).zip(tables) {
        assert!((1..=bound).contains(most), "{table} has up to {most} rows, and not {bound}");
    }
    assert!(most[0] >= 6 * A_DAY, "messages are kept for a week: {most:?}");
    let open = twinbox::effects::Effects::new(world).find(open, "email.welcome").await.unwrap();
    assert!(open.is_some(), "what a person has to resolve stays");
}

/// R7, t21
async fn a_consumer_keeps_its_tables_bounded_for_a_month<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let stop = CancellationToken::new();
    let consumer = Consumer::new((*world).clone(), ()).handler::<handle>();
    let consumer = consumer.keeper(Keeper::new(&world).every(Duration::from_secs(1)));
    let running = tokio::spawn(consumer.run(stop.clone()));
    let settled = async |count: i64| {
        eventually(async || (world.rows("inbox").await == count).then_some(())).await;
    };
    live_a_month(&world, settled).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// R7, t21
async fn a_relay_keeps_its_tables_bounded_for_a_month<DB: TestDb>() {
    let (world, target) = (World::<DB>::new().await, Target::shared());
    let relay = target.quick(&world).keeper(Keeper::new(&world).every(Duration::from_secs(1)));
    let relay = Running::run(relay);
    live_a_month(&world, async |count: i64| relay.published(count.unsigned_abs()).await).await;
    relay.stop().await;
}

/// Waits until the keeper that runs by default has run.
async fn has_kept<DB: TestDb>(world: &World<DB>) {
    let [run] = &eventually(async || {
        let runs = Jobs::new(world).runs(KEEPER, 9).await.unwrap();
        runs.iter().any(|run| run.state == RunState::Done).then_some(runs)
    })
    .await[..] else {
        panic!("one run a day")
    };
    assert_eq!((run.attempts, run.failures, run.owner), (1, 0, None));
}

/// R7: each has one that waits, for up to a minute, and looks; and one of several processes does the run.
async fn relay_and_consumer_run_a_keeper_by_default<DB: TestDb>() {
    let (world, target) = (World::<DB>::new().await, Target::shared());
    let consumer = || Consumer::new((*world).clone(), ()).handler::<handle>();
    let relay = || Relay::new((*world).clone(), target.destination());
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer().run(stop.clone()));
    signal("keeper.waits").await;
    let relaying = Running::run(relay());
    signal("keeper.waits").await;
    if long::or(true, false) {
        has_kept(&world).await;
    }
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    relaying.stop().await;

    let at_once = || Keeper::new(&world).first_look(Duration::ZERO);
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer().keeper(at_once()).run(stop.clone()));
    let relaying = Running::run(relay().keeper(at_once()));
    has_kept(&world).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    relaying.stop().await;
}

/// R7: of several keepers one does each run.
async fn one_process_does_each_run_of_the_keeper<DB: TestDb>() {
    let (world, stop) = (World::<DB>::new().await, CancellationToken::new());
    let keepers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(Keeper::new(&world).every(Duration::from_secs(1)).run(stop.clone())))
        .collect();
    let is_done = async || {
        let runs = Jobs::new(&world).runs(KEEPER, 99).await.unwrap();
        (runs.iter().filter(|run| run.state == RunState::Done).count() >= 4).then_some(())
    };
    eventually(is_done).await;
    stop.cancel();
    for keeper in keepers {
        in_time(keeper).await.unwrap();
    }
    let runs = Jobs::new(&world).runs(KEEPER, 99).await.unwrap();
    assert!(runs.iter().all(|run| run.attempts == 1), "{runs:?}");
    let is_of_a_slot = |at: Timestamp| at.as_micros() % 1_000_000 == 0;
    assert!(runs.iter().all(|run| is_of_a_slot(run.scheduled_for)), "{runs:?}");
    assert!(runs.is_sorted_by(|later, run| later.scheduled_for > run.scheduled_for), "{runs:?}");
}

/// What a reader has not settled stays, however old it is.
async fn messages_of_a_reader_far_behind_stay<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let opened = Reader::open(&world, "behind", Uuid::now_v7(), ReaderOptions::new()).await.unwrap();
    let mut reader = opened.expect("nobody else reads");
    for day in 0..3 {
        live_a_day(&world, day).await;
    }
    in_time(reader.next(9)).await.unwrap();
    reader.close().await.unwrap();
    for _ in 0..DAYS {
        age_a_day(&world).await;
    }
    let report = Keeper::new(&world).purge().await;
    assert!(report.error.is_none() && report.forbidden.is_empty(), "{report:?}");
    assert_eq!((report.rows["outbox"], report.rows["side_effects"]), (0, 3 * A_DAY.unsigned_abs()));
    assert_eq!(world.rows("outbox").await, 3 * A_DAY);
}

/// A role that may not delete raises an alarm, and leaves the run to a keeper with another role.
async fn a_keeper_without_rights_says_so_and_leaves_the_run() {
    let (lines, _guard) = Lines::record();
    let world = World::<Postgres>::new().await;
    let roles = Roles::create(&world, "effects").await;
    let store_of = async |role: &str| {
        let options = (*world.pool().connect_options()).clone().username(role);
        Store::new(PgPoolOptions::new().connect_with(options).await.unwrap(), SERVICE).unwrap()
    };
    let (runtime, keeper) = (store_of(&roles.runtime).await, store_of(&roles.keeper).await);
    let stop = CancellationToken::new();
    let every = Duration::from_secs(3600 * 24 * 365);
    let poor = Keeper::new(&runtime).every(every).first_look(Duration::from_secs(1));
    let poor = tokio::spawn(poor.run(stop.clone()));
    let run = eventually(async || {
        let runs = Jobs::new(&world).runs(KEEPER, 9).await.unwrap();
        runs.into_iter().find(|run| run.state == RunState::Pending)
    })
    .await;
    let error = "the role may not delete rows of outbox, webhook_receipts, side_effects, client_keys";
    assert_eq!((run.attempts, run.last_error.as_deref()), (1, Some(error)));
    assert_eq!(lines.saying("may not delete old rows").len(), 1);
    let rich =
        tokio::spawn(Keeper::new(&keeper).every(every).first_look(Duration::from_secs(1)).run(stop.clone()));
    eventually(async || {
        let run = Jobs::new(&world).run(run.run_id).await.unwrap().unwrap();
        (run.state == RunState::Done && run.attempts == 2).then_some(())
    })
    .await;
    stop.cancel();
    for keeper in [poor, rich] {
        in_time(keeper).await.unwrap();
    }
    assert_eq!(lines.saying("may not delete old rows").len(), 1);
    runtime.pool().close().await;
    keeper.pool().close().await;
    roles.drop(&world).await;
}

/// R7: the program purges with the role of `[keeper]`, where that of `[database]` may not.
async fn the_program_keeps_with_a_role_of_its_own() {
    let world = World::<Postgres>::new().await;
    let roles = Roles::create(&world, "effects").await;
    let (_, server) = world.url().split_once('@').unwrap();
    let url = |role: &str| format!("postgres://{role}@{server}");
    let mut relay = Programs::at(url(&roles.runtime)).command(Program::Relay);
    relay.env("TWINBOX_RELAY__KEEPER__DATABASE_URL", url(&roles.keeper));
    relay.env("TWINBOX_RELAY__KEEPER__FIRST_LOOK", "1s");
    let mut relay = relay.spawn().unwrap();
    has_kept(&world).await;
    relay.kill().await.unwrap();
    eventually(async || {
        let sessions = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE usename IN ('{}', '{}')",
            roles.runtime, roles.keeper
        );
        (world.number(sessions).await == 0).then_some(())
    })
    .await;
    roles.drop(&world).await;
}

/// `purge` works with the role of `[keeper]`, and says what a role lacks that has none.
async fn purge_uses_the_role_of_the_keeper_and_says_what_a_role_lacks() {
    let world = World::<Postgres>::new().await;
    let roles = Roles::create(&world, "effects").await;
    let receipt =
        WebhookReceipt { provider: "stripe", endpoint: "", id: None, payload: b"", secret_index: 0 };
    let received = world.receive_webhook(&receipt, Duration::ZERO).await.unwrap();
    let WebhookClaim::Open(received) = received else { panic!("it is new") };
    received.commit(&OperationResponse::default()).await.unwrap();
    let (_, server) = world.url().split_once('@').unwrap();
    let url = |role: &str| format!("postgres://{role}@{server}");
    let purge = async |keeper: Option<String>| {
        let mut purge = tokio::process::Command::new(helper::program("twinbox-relay"));
        purge
            .args(["purge", "--keep", "0s"])
            .env("TWINBOX_RELAY__DATABASE__URL", url(&roles.runtime))
            .env("TWINBOX_RELAY__DATABASE__SERVICE", SERVICE)
            .env("TWINBOX_RELAY__DESTINATIONS__D__KIND", "nats")
            .env("TWINBOX_RELAY__DESTINATIONS__D__URL", "nats://127.0.0.1:1")
            .envs(keeper.map(|url| ("TWINBOX_RELAY__KEEPER__DATABASE_URL", url)));
        let ended = in_time(purge.output()).await.unwrap();
        let said = [ended.stdout, ended.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (ended.status.success(), said)
    };
    let (is_done, said) = purge(None).await;
    assert!(!is_done && world.rows("webhook_receipts").await == 1, "{said}");
    for says in [
        format!("the role \"{}\" may not delete rows of outbox, webhook_receipts", roles.runtime),
        "DELETE ON twinbox.webhook_receipts".to_owned(),
        format!("`twinbox grants print --namespace twinbox --role {}=keeper`", roles.runtime),
        "`[keeper]`".to_owned(),
    ] {
        assert!(said.contains(&says), "{says}\nin\n{said}");
    }
    let (is_done, said) = purge(Some(url(&roles.keeper))).await;
    assert!(is_done && said.contains("1 expired receipts of webhooks deleted\n"), "{said}");
    assert_eq!(world.rows("webhook_receipts").await, 0);
    roles.drop(&world).await;
}

cases! {
    all: [
        a_consumer_keeps_its_tables_bounded_for_a_month,
        a_relay_keeps_its_tables_bounded_for_a_month,
        messages_of_a_reader_far_behind_stay,
        one_process_does_each_run_of_the_keeper,
        relay_and_consumer_run_a_keeper_by_default,
    ]
    postgres: [
        a_keeper_without_rights_says_so_and_leaves_the_run,
        the_program_keeps_with_a_role_of_its_own,
        purge_uses_the_role_of_the_keeper_and_says_what_a_role_lacks,
    ]
}
