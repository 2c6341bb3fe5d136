//! The command `check`: it finds what `run` refuses, and creates nothing.
use super::{routes::publish_types, *};
use crate::support::{
    broker_users::{inbox_of, nats_url_for},
    database::TestDatabase,
    helper,
};
use sqlx::AssertSqlSafe;
use tempfile::TempDir;
use tokio::process::Command;
use twinbox::nats::StreamOptions;

/// A configuration file, the store that it names, and the stream.
struct Rig {
    store: TestDatabase<Postgres>,
    target: Target,
    file: String,
    folder: TempDir,
}

/// What the program has said, and its exit code.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    lines: String,
}

impl Rig {
    /// A destination that may create its stream, for a log with messages.
    async fn new() -> Self {
        let (store, target) = (database::postgres().await, Target::shared());
        publish_types(&store, &["orders.placed", "stray.cat"]).await;
        let (name, prefix, nats) = (&target.name, target.prefix(), nats_url_for("relay", &target.url));
        let file = format!(
            "[database]\nurl = '{}'\nservice = '{}'\n[destinations.orders]\nkind = 'nats'\nurl = '{}'\n\
             inbox_prefix = '{}'\nstream = '{name}'\nprefix = '{prefix}'\ncreate_stream = true\n\
             start = 'beginning'\n",
            store.url(),
            database::SERVICE,
            nats,
            inbox_of(&nats),
        );
        Self { store, target, file, folder: tempfile::tempdir().unwrap() }
    }

    /// With more lines for the destination.
    fn with(mut self, lines: &str) -> Self {
        self.file += lines;
        self
    }

    fn command(&self, command: &str, env: &[(&str, &str)]) -> Command {
        let path = self.folder.path().join("relay.toml");
        std::fs::write(&path, &self.file).unwrap();
        let mut program = Command::new(helper::program("twinbox-relay"));
        program.args([command, "--config"]).arg(&path).kill_on_drop(true);
        program.envs(env.iter().copied());
        program
    }

    async fn ends(&self, command: &str, env: &[(&str, &str)]) -> Ended {
        let ended = timeout(PATIENCE, self.command(command, env).output()).await.expect("it ends").unwrap();
        let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        Ended { code: ended.status.code(), lines: text }
    }

    async fn checked(&self) -> Ended {
        self.ends("check", &[]).await
    }

    /// `check` finds it, and `run` ends with it.
    async fn both_refuse(&self, env: &[(&str, &str)], line: &str, said_by_run: &str) {
        let checked = self.ends("check", env).await;
        assert!(checked.code == Some(1) && checked.has(&format!("FAIL  {line}")), "{line}: {checked:?}");
        let run = self.ends("run", env).await;
        assert!(run.code == Some(1) && run.lines.contains(said_by_run), "{said_by_run}: {run:?}");
    }

    async fn count(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM twinbox.{table}");
        sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(self.store.pool()).await.unwrap()
    }
}

impl Ended {
    fn has(&self, begin: &str) -> bool {
        self.lines.lines().any(|line| line.starts_with(begin))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_looks_at_the_file_and_at_the_world() {
    let mut rig = Rig::new().await.with("types = ['orders.*']\n");
    rig.file = rig.file.replace("create_stream = true\n", "");
    let missing = rig.checked().await;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    for line in [
        "ok    database: service \"test\", namespace \"twinbox\"",
        "FAIL  destination orders: ",
        "ok    type orders.placed: goes to orders",
        "FAIL  type stray.cat: goes nowhere: add it to `types` of a destination",
    ] {
        assert!(missing.has(line), "{line}\nin\n{}", missing.lines);
    }
    rig.file = rig.file.replace("types =", "typed =");
    let broken = rig.checked().await;
    assert!(
        broken.lines.contains("line 11:") && broken.lines.contains("did you mean `types`?"),
        "{broken:?}"
    );
    rig.file = rig.file.replace("typed =", "types =").replace("service = 'test'", "service = 'shop'");
    let other = rig.checked().await;
    assert!(other.has("FAIL  database: these tables belong to the service \"test\""), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_creates_nothing_and_says_what_run_creates() {
    let rig = Rig::new().await;
    let name = &rig.target.name;
    let checked = rig.checked().await;
    let line = format!("ok    destination orders: the stream `{name}` is not there yet: `run` creates it");
    assert!(checked.code == Some(0) && checked.has(&line), "{checked:?}");
    rig.target.jetstream().await.get_stream(name).await.unwrap_err();
    assert_eq!(rig.count("cursors").await, 0);

    let mut program = rig.command("run", &[]).spawn().unwrap();
    rig.target.holds(2, async_nats::ConnectOptions::new()).await;
    program.kill().await.unwrap();
    let checked = rig.checked().await;
    let line = "ok    destination orders: is there and takes messages";
    assert!(checked.code == Some(0) && checked.has(line), "{checked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_a_stream_as_run_does() {
    let rig = Rig::new().await.with("max_age = '1h'\n");
    let nats = Nats::with_options(rig.target.existing()).unwrap();
    nats.provision(&StreamOptions::default().max_age(Duration::from_secs(7200))).await.unwrap();
    let line = "destination orders: the destination is not configured as its options require \
        (nats.mismatch): the stream";
    rig.both_refuse(&[], line, "nats.mismatch").await;
    let checked = rig.checked().await;
    let asked = "has max_age = 7200000000000 on the server and 3600000000000 was asked for";
    assert!(checked.lines.contains(asked), "{checked:?}");

    // Another stream has the subjects.
    let mut taken = Rig::new().await;
    taken.file = taken.file.replace(&taken.target.prefix(), &rig.target.prefix());
    taken.both_refuse(&[], "destination orders: ", "twinbox-relay: the destination").await;
    let checked = taken.checked().await;
    let other = format!("the stream `{}` already has some of them", rig.target.name);
    assert!(checked.lines.contains(&other), "{checked:?}");

    let copies = Rig::new().await.with("replicas = 3\n");
    copies.both_refuse(&[], "destination orders: ", "twinbox-relay: the destination").await;
    let checked = copies.checked().await;
    assert!(checked.lines.contains("cannot have 3 copies: the server is in no cluster"), "{checked:?}");
}

/// What a publisher can do with them, `it/neighbours/options.rs` shows.
#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_options_of_the_stream_on_which_run_goes_on() {
    let mut rig = Rig::new().await;
    rig.file = rig.file.replace("create_stream = true\n", "");
    let mut config = rig.target.config(&["orders.placed", "stray.cat"]);
    config.allow_rollup = true;
    rig.target.create(config).await;
    let checked = rig.checked().await;
    assert!(checked.code == Some(1) && checked.has("FAIL  destination orders: "), "{checked:?}");
    let edit = format!("`nats stream edit {} --no-allow-rollup`", rig.target.name);
    assert!(checked.lines.contains("it has `allow_rollup_hdrs`"), "{checked:?}");
    assert!(checked.lines.contains(&edit), "{checked:?}");
    let mut program = rig.command("run", &[]).spawn().unwrap();
    rig.target.holds(2, async_nats::ConnectOptions::new()).await;
    program.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_a_cursor_as_run_does() {
    let mut rig = Rig::new().await;
    let whole = rig.file.clone();
    rig.file = whole.replace("start = 'beginning'\n", "");
    let new = "destination \"orders\" is new, and the log has messages: set where it starts";
    rig.both_refuse(&[], &format!("cursor orders: {new}"), new).await;
    assert!(rig.checked().await.lines.contains("`start`"));
    assert_eq!(rig.count("cursors").await, 0);

    rig.file = whole.clone();
    let mut program = rig.command("run", &[]).spawn().unwrap();
    rig.target.holds(2, async_nats::ConnectOptions::new()).await;
    program.kill().await.unwrap();
    rig.file = whole.clone() + "partitions = 8\n";
    let other = "destination \"orders\" spreads its keys over 16 partitions and is asked for 8";
    rig.both_refuse(&[], &format!("cursor orders: {other}"), other).await;

    rig.file = whole;
    let detached = "UPDATE twinbox.cursors SET lease_until = '9999-12-31 23:59:59.999999+00', owner = NULL";
    sqlx::raw_sql(detached).execute(rig.store.pool()).await.unwrap();
    let detached = "destination \"orders\" was detached";
    rig.both_refuse(&[], &format!("cursor orders: {detached}"), detached).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_refuses_settings_as_run_does() {
    let rig = Rig::new().await.with("lease = '2s'\n");
    let short = "a lease of 2s is too short for a destination with a publish time-out of 2s";
    rig.both_refuse(&[], &format!("destination orders: {short}"), short).await;

    let rig = Rig::new().await;
    let collector =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let grpc = "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\"";
    rig.both_refuse(&collector, &format!("collector: {grpc}"), grpc).await;

    // `run` goes on without a keeper, and nothing would ever be deleted.
    let keeper = Rig::new().await.with("[keeper]\ndatabase_url = 'postgres://127.0.0.1:1/nowhere'\n");
    let checked = keeper.checked().await;
    assert!(checked.code == Some(1) && checked.has("FAIL  keeper of database: "), "{checked:?}");
}
