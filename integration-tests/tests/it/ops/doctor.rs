//! What `doctor` finds at brokers, on real ones.
use crate::support::{
    databases::PROCESSES,
    relay::Target,
    roles::{MYSQL_PASSWORD, Roles},
    stores::{TestDb, World},
    tool::{Ran, Tool},
    wait::{eventually, in_time},
};
use async_nats::jetstream::{
    consumer::pull,
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, MySql, Postgres, Sqlite};
use std::{process::Command, time::Duration};
use twinbox_testkit::servers::{MotoServer, MySqlOptions, MySqlServer, NatsOptions, NatsServer, find};

/// The verdict on a thing, and what was found.
pub(super) fn findings(ran: &Ran, what: &str) -> Vec<(String, String)> {
    let all: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = all.as_array().unwrap().iter().filter(|one| one["what"] == what);
    all.map(|one| (text(&one["verdict"]), text(&one["found"]))).collect()
}

pub(super) fn those<'a>(findings: &'a [(String, String)], verdict: &str) -> Vec<&'a str> {
    findings.iter().filter(|(found, _)| found == verdict).map(|(_, text)| text.as_str()).collect()
}

pub(super) async fn of_stream(tool: &Tool, target: &Target) -> Vec<(String, String)> {
    let prefix = target.prefix();
    let ran = tool
        .run(&[
            "doctor",
            "-o",
            "json",
            "--nats-url",
            &target.url,
            "--nats-stream",
            &target.name,
            "--nats-prefix",
            &prefix,
        ])
        .await;
    findings(&ran, &format!("stream {}", target.name))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_would_lose_messages_is_found() {
    let world = World::<Sqlite>::new().await;
    let tool = Tool::of(&world);
    let unnamed = tool.run(&["doctor", "-o", "json", "--nats-url", &Target::shared().url]).await;
    let unnamed = findings(&unnamed, "streams of NATS");
    assert!(those(&unnamed, "warning")[0].contains("name it with --nats-stream"), "{unnamed:?}");
    let missing = of_stream(&tool, &Target::shared()).await;
    assert!(those(&missing, "wrong")[0].contains("does not exist"), "{missing:?}");

    let made = async |change: fn(Config) -> Config| {
        let target = Target::shared();
        let config = Config { max_age: Duration::from_secs(3600), ..target.config(&["orders.placed"]) };
        target.create(change(config)).await;
        let found = of_stream(&tool, &target).await;
        assert!(found[0].1.starts_with("0 messages, kept for 1h"), "{found:?}");
        found
    };
    let good = made(|config| Config { discard: DiscardPolicy::New, ..config }).await;
    assert_eq!(those(&good, "wrong"), [""; 0]);
    assert!(those(&good, "warning")[0].contains("one copy"), "{good:?}");
    for (takes_batches, warnings) in [(true, 0), (false, 1)] {
        let made = match takes_batches {
            true => made(|config| Config { allow_batch_publish: true, ..config }).await,
            false => made(|config| Config { allow_batch_publish: false, ..config }).await,
        };
        let found = those(&made, "warning").into_iter().filter(|found| found.contains("set `allow_batched`"));
        assert_eq!(found.count(), warnings, "{made:?}");
    }
    let in_memory = made(|config| Config { storage: StorageType::Memory, ..config }).await;
    assert!(those(&in_memory, "wrong")[0].contains("in memory"), "{in_memory:?}");
    let bounded = made(|config| Config { max_messages: 10, discard: DiscardPolicy::Old, ..config }).await;
    assert!(those(&bounded, "wrong")[0].contains("drops its oldest"), "{bounded:?}");
    let per_subject =
        made(|config| Config { max_messages_per_subject: 10, discard: DiscardPolicy::New, ..config });
    let per_subject = per_subject.await;
    let said = "it keeps 10 messages of each subject, a type in a partition, and drops the oldest";
    assert!(those(&per_subject, "wrong")[0].contains(said), "{per_subject:?}");
    let refusing = made(|config| Config {
        max_messages_per_subject: 10,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        ..config
    });
    let refusing = refusing.await;
    let said = "it takes 10 messages of each subject, a type in a partition, and refuses more";
    assert!(those(&refusing, "warning").iter().any(|found| found.contains(said)), "{refusing:?}");
    let queue = made(|config| Config { retention: RetentionPolicy::WorkQueue, ..config }).await;
    assert!(those(&queue, "wrong")[0].contains("deletes messages that are acknowledged"), "{queue:?}");
}

/// A stream that delivers what an inbox has forgotten already.
async fn retention_of_stream_and_inbox_are_held_against_each_other<DB: TestDb>() {
    let (world, target) = (World::<DB>::new().await, Target::shared());
    let tool = Tool::of(&world);
    let config = target.config(&["orders.placed"]);
    target.create(Config { max_age: Duration::from_secs(3600), ..config.clone() }).await;
    let mark = async |ago: i64| {
        let time = world.now().await.unwrap().as_micros() - ago * 1_000_000;
        let time = DB::time(twinbox::Timestamp::from_micros(time));
        let table = world.engine().table("purge_marks");
        let sql =
            format!("DELETE FROM {table}; INSERT INTO {table} (consumer, time) VALUES ('search', {time})");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(world.pool()).await.unwrap();
    };
    mark(7200).await;
    let found = of_stream(&tool, &target).await;
    assert_eq!(those(&found, "wrong"), [""; 0], "{found:?}");
    mark(1800).await;
    let found = of_stream(&tool, &target).await;
    let guess = those(&found, "warning").into_iter().find(|found| found.contains("if it reads this stream"));
    assert!(guess.is_some() && those(&found, "wrong").is_empty(), "{found:?}");
    // Now it does.
    let stream = target.jetstream().await.get_stream(&target.name).await.unwrap();
    let durable = pull::Config { durable_name: Some("search".to_owned()), ..Default::default() };
    stream.create_consumer(durable).await.unwrap();
    let found = of_stream(&tool, &target).await;
    assert!(those(&found, "wrong")[0].contains("for 1h, but the inbox of search is purged"), "{found:?}");
    mark(7200).await;
    target.update(Config { max_age: Duration::ZERO, ..config }).await;
    let found = of_stream(&tool, &target).await;
    assert!(those(&found, "wrong")[0].contains("for ever, but the inbox of search is purged"), "{found:?}");
    let why = "a redelivery becomes a dead letter with the reason `in_doubt`";
    assert!(those(&found, "wrong")[0].contains(why), "{found:?}");
}

/// Only the system account is told; and no password is printed.
#[tokio::test(flavor = "multi_thread")]
async fn the_sync_settings_of_a_server_are_told() {
    let world = World::<Sqlite>::new().await;
    let accounts = "accounts { APP: { jetstream: enabled, users: [{ user: app, password: hush }] }, \
        SYS: { users: [{ user: root, password: hush }] } }\nsystem_account: SYS";
    for (line, verdict, expected) in [
        ("sync_interval: always", "ok", "it syncs before it acknowledges"),
        ("sync_interval: 30s", "warning", "it syncs every 30s"),
        ("", "warning", "it syncs every 2m"),
    ] {
        let server =
            NatsServer::start_with(NatsOptions::default().line(accounts).jetstream_line(line)).unwrap();
        let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}:hush@"));
        let mut command = Tool::of(&world).command(&["doctor"]);
        command.env("NATS_URL", url("app")).env("NATS_SYSTEM_URL", url("root"));
        let told = in_time(command.output()).await.unwrap();
        let printed =
            format!("{}{}", String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
        let line =
            printed.lines().find(|line| line.contains("NATS sync of")).unwrap_or_else(|| panic!("{printed}"));
        assert!(line.starts_with(verdict) && line.contains(expected), "{line}");
        assert!(!printed.contains("hush"), "{printed}");
    }
    let server = NatsServer::start_with(NatsOptions::default().line(accounts)).unwrap();
    let url = server.url().replace("nats://", "nats://app:hush@");
    let ran = Tool::of(&world).run(&["doctor", "-o", "json", "--nats-system-url", &url]).await;
    let found = findings(&ran, "NATS sync");
    assert!(those(&found, "wrong")[0].contains("no user of the system account"), "{found:?}");
    drop(server);
    let named = ["doctor", "-o", "json", "--nats-stream", "EVENTS", "--nats-url", &url];
    let ran = Tool::of(&world).run(&named).await;
    assert!(those(&findings(&ran, "stream EVENTS"), "wrong")[0].contains("cannot be reached"), "{ran:?}");
    assert!(those(&findings(&ran, "NATS sync"), "warning")[0].contains("--nats-system-url"), "{ran:?}");
    assert!(!format!("{ran:?}").contains("hush"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_drops_everything_is_found() {
    let (world, moto) = (World::<Sqlite>::new().await, MotoServer::start().unwrap());
    let of_bus = async |bus: &str| {
        let mut command = Tool::of(&world).command(&["doctor", "-o", "json", "--event-bus", bus]);
        command.env("AWS_ENDPOINT_URL", moto.url()).env("AWS_REGION", "eu-west-1");
        command.env("AWS_ACCESS_KEY_ID", "any").env("AWS_SECRET_ACCESS_KEY", "hush");
        let told = in_time(command.output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ran = Ran { code: told.status.code().unwrap(), out: text(told.stdout), err: text(told.stderr) };
        assert!(!format!("{ran:?}").contains("hush"), "{ran:?}");
        findings(&ran, &format!("bus {bus}"))
    };
    let missing = of_bus("missing").await;
    assert!(those(&missing, "wrong")[0].contains("eventbridge."), "{missing:?}");
    let without_rules = of_bus("default").await;
    assert!(those(&without_rules, "wrong")[0].contains("accepts events and drops them"), "{without_rules:?}");
    let mut script = Command::new(find::python().unwrap());
    script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/events.py")).args([
        "bus",
        &moto.url(),
        "orders",
        "billing",
    ]);
    assert!(script.status().unwrap().success());
    let fed = of_bus("orders").await;
    assert_eq!(fed, [("ok".to_owned(), "it exists, with 1 rule".to_owned())]);
}

/// The settings that matter there, a transaction log that a power cut would shorten, and holes.
#[tokio::test(flavor = "multi_thread")]
async fn the_settings_of_mysql_are_judged() {
    let options = MySqlOptions::default().set("log_bin", "binlog").set("sync_binlog", "0");
    let mut options = options.set("wait_timeout", "30");
    let is_mariadb = find::mysql_bin().unwrap().join("mariadbd").exists();
    if is_mariadb {
        options = options.set("idle_write_transaction_timeout", "3600");
    }
    let server = MySqlServer::start_with(options).unwrap();
    let store = MySql::open(&server.url()).await;
    store.migrate().await.unwrap();
    // Another session runs what the server cannot write in its own character set.
    let asleep = store.pool().clone();
    let asleep =
        tokio::spawn(async move { sqlx::query("SELECT SLEEP(300), '\u{1f4a4}'").execute(&asleep).await });
    let sleepers = format!("SELECT count(*) FROM {PROCESSES} WHERE state = 'User sleep'");
    let sleepers = async || {
        let count = sqlx::query_scalar::<_, i64>(AssertSqlSafe(sleepers.clone()));
        (count.fetch_one(store.pool()).await.unwrap() == 1).then_some(())
    };
    eventually(sleepers).await;
    let tool = Tool::at::<MySql>(&server.url());
    let ran = tool.run(&["doctor", "-o", "json"]).await;
    assert!(!asleep.is_finished());
    let verdict = |ran: &Ran, name: &str| findings(ran, name)[0].0.clone();
    for (name, expected) in [
        ("innodb_flush_log_at_trx_commit", "ok"),
        ("innodb_doublewrite", "ok"),
        ("sync_binlog", "wrong"),
        ("binlog_format", "ok"),
        ("wait_timeout", "warning"),
        ("replicas", "ok"),
        ("open_holes", "ok"),
    ] {
        assert_eq!(verdict(&ran, name), expected, "{name}: {ran:?}");
    }
    if is_mariadb {
        assert_eq!(verdict(&ran, "idle_transaction_timeout"), "warning", "{ran:?}");
        assert_eq!(verdict(&ran, "wsrep_on"), "ok", "{ran:?}");
    }
    assert_eq!(ran.code, 7);
    let holes = format!(
        "INSERT INTO twinbox_holes (first, last, opened_by, probe_at)
        SELECT n * 2, n * 2, 1, UTC_TIMESTAMP(6) FROM {}",
        MySql::numbers(5000)
    );
    sqlx::raw_sql(AssertSqlSafe(holes)).execute(store.pool()).await.unwrap();
    let ran = tool.run(&["doctor", "-o", "json"]).await;
    assert!(findings(&ran, "open_holes")[0].1.contains("End the transactions that are open"), "{ran:?}");
}

/// The page is what rights are held against, and each that is missing is named.
#[tokio::test(flavor = "multi_thread")]
async fn rights_that_a_role_lacks_are_named() {
    let world = World::<Postgres>::new().await;
    let roles = Roles::create(&world, "effects").await;
    let (runtime, producer) = (format!("{}=runtime", roles.runtime), format!("{}=producer", roles.producer));
    let tool = Tool::of(&world);
    let asked = ["doctor", "-o", "json", "--role", &runtime, "--role", &producer];
    let of = |ran: &Ran, name: &str, purpose: &str| findings(ran, &format!("rights of {name} as {purpose}"));
    let ran = tool.run(&asked).await;
    let ok = [("ok".to_owned(), "complete as in GRANTS.md".to_owned())];
    assert_eq!(of(&ran, &roles.runtime, "runtime"), ok);
    assert_eq!(of(&ran, &roles.producer, "producer"), ok);
    assert_eq!(findings(&ran, "own rights as operator"), ok);
    let beyond = |ran: &Ran, name: &str| findings(ran, &format!("rights of {name} beyond its purposes"));
    let none = [("ok".to_owned(), "none".to_owned())];
    assert_eq!((beyond(&ran, &roles.runtime), beyond(&ran, &roles.producer)), (none.to_vec(), none.to_vec()));

    let too_much = format!(
        "GRANT ALL ON twinbox.ticks TO {0}; GRANT UPDATE (key, type) ON twinbox.outbox TO {0}; \
        GRANT CREATE ON SCHEMA public TO {0}",
        roles.producer
    );
    sqlx::raw_sql(AssertSqlSafe(too_much)).execute(world.pool()).await.unwrap();
    let ran = tool.run(&["grants", "check", "-o", "json", "--role", &producer]).await;
    let [(verdict, excess)] = &beyond(&ran, &roles.producer)[..] else { panic!("one finding: {ran:?}") };
    let first = format!(
        "CREATE ON SCHEMA public: REVOKE CREATE ON SCHEMA public FROM {0}; UPDATE (key, type) ON outbox: \
        REVOKE UPDATE (\"key\", \"type\") ON \"twinbox\".\"outbox\" FROM {0}; DELETE, INSERT, ",
        roles.producer
    );
    let last = format!("SELECT, TRIGGER, TRUNCATE, UPDATE ON \"twinbox\".\"ticks\" FROM {}", roles.producer);
    assert!(excess.starts_with(&first) && excess.ends_with(&last), "{excess}");
    assert_eq!((ran.code, verdict.as_str()), (7, "wrong"));
    let undo = format!(
        "REVOKE ALL ON twinbox.ticks FROM {0}; REVOKE UPDATE (key, type) ON twinbox.outbox FROM {0}; \
        REVOKE CREATE ON SCHEMA public FROM {0}",
        roles.producer
    );
    sqlx::raw_sql(AssertSqlSafe(undo)).execute(world.pool()).await.unwrap();

    let revoke = format!(
        "REVOKE DELETE ON twinbox.attempts FROM {0}; REVOKE UPDATE (seen_at) ON twinbox.consumers FROM {0}; \
        REVOKE USAGE ON SCHEMA twinbox FROM {0}",
        roles.runtime
    );
    sqlx::raw_sql(AssertSqlSafe(revoke)).execute(world.pool()).await.unwrap();
    let ran = tool.run(&asked).await;
    let missing =
        "missing: USAGE ON SCHEMA twinbox; UPDATE (seen_at) ON twinbox.consumers; DELETE ON twinbox.attempts";
    assert_eq!(of(&ran, &roles.runtime, "runtime"), [("wrong".to_owned(), missing.to_owned())]);
    assert_eq!(ran.code, 7);
    let ran = tool.run(&["doctor", "-o", "json", "--role", "nobody=keeper"]).await;
    let unknown = [("wrong".to_owned(), "there is no database role \"nobody\"".to_owned())];
    assert_eq!((ran.code, of(&ran, "nobody", "keeper")), (7, unknown.to_vec()));
    tool.ends(2, &["doctor", "--role", "x=king"]).await;
    let ran = tool.run(&["grants", "check", "-o", "json", "--role", &runtime, "--role", &producer]).await;
    assert_eq!(of(&ran, &roles.runtime, "runtime"), [("wrong".to_owned(), missing.to_owned())]);
    assert_eq!((ran.code, of(&ran, &roles.producer, "producer")), (7, ok.to_vec()));
    tool.ok(&["grants", "check", "--role", &producer]).await;
    roles.drop(&world).await;
}

/// Each kind has a finding of its own. What may be meant so is a warning.
#[tokio::test(flavor = "multi_thread")]
async fn other_ways_to_rights_and_changed_tables_are_named() {
    let world = World::<Postgres>::new().await;
    let roles = Roles::create(&world, "effects").await;
    let (name, producer) = (&roles.producer, format!("{}=producer", roles.producer));
    let tool = Tool::of(&world);
    let triggers = [("ok".to_owned(), "present and enabled".to_owned())];
    assert_eq!(findings(&tool.run(&["doctor", "-o", "json"]).await, "triggers"), triggers);
    world.execute("CREATE VIEW public.peeked AS SELECT payload FROM twinbox.outbox").await;
    let meant = format!("GRANT SELECT ON public.peeked TO {name}");
    sqlx::raw_sql(AssertSqlSafe(meant)).execute(world.pool()).await.unwrap();
    let asked = ["grants", "check", "-o", "json", "--role", &producer];
    let beyond = |ran: &Ran, kind: &str| findings(ran, &format!("{kind} of {name} beyond its purposes"));
    let ran = tool.run(&asked).await;
    let outside = beyond(&ran, "functions and views outside of the schema");
    assert!(those(&outside, "warning")[0].contains("VIEW public.peeked has the rights of"), "{ran:?}");
    assert_eq!((ran.code, beyond(&ran, "rights")), (0, vec![("ok".to_owned(), "none".to_owned())]));

    let more = format!("ALTER ROLE {name} CREATEROLE; GRANT pg_signal_backend TO {name}");
    sqlx::raw_sql(AssertSqlSafe(more)).execute(world.pool()).await.unwrap();
    world.execute("ALTER TABLE twinbox.outbox DISABLE TRIGGER refuse_position").await;
    for command in [&asked[..], &["doctor", "-o", "json", "--role", &producer]] {
        let ran = tool.run(command).await;
        let attribute = format!("CREATEROLE: ALTER ROLE {name} NOCREATEROLE");
        assert_eq!(beyond(&ran, "attributes"), [("wrong".to_owned(), attribute)]);
        let member = format!("is a member of pg_signal_backend: REVOKE pg_signal_backend FROM {name}");
        assert_eq!(beyond(&ran, "memberships"), [("wrong".to_owned(), member)]);
        assert!(those(&findings(&ran, "triggers"), "wrong")[0].contains("ENABLE TRIGGER"), "{ran:?}");
        assert_eq!(ran.code, 7);
    }
    roles.drop(&world).await;
}

/// A part that could not be read may hold anything.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_account_of_mysql_may_not_read_is_not_called_right() {
    let world = World::<MySql>::new().await;
    let roles = Roles::create_on_mysql(&world, "effects").await;
    let (name, (_, place)) = (&roles.producer, world.url().rsplit_once('@').unwrap());
    let tool = Tool::at::<MySql>(&format!("mysql://{name}:{MYSQL_PASSWORD}@{place}"));
    let ran = tool.run(&["grants", "check", "-o", "json", "--role", &format!("{name}=producer")]).await;
    let unread = findings(&ran, &format!("roles and procedures of {name}"));
    assert!(those(&unread, "warning")[0].contains("connect as an account that may read"), "{ran:?}");
    assert!(findings(&ran, &format!("rights of {name} beyond its purposes")).is_empty(), "{ran:?}");
    let triggers = findings(&ran, "triggers");
    assert!(those(&triggers, "warning")[0].contains("cannot all be read"), "{ran:?}");
    assert_eq!((triggers.len(), ran.code), (1, 0));
    roles.drop_on_mysql(&world).await;
}

crate::support::cases::cases! {
    all: [retention_of_stream_and_inbox_are_held_against_each_other]
}
