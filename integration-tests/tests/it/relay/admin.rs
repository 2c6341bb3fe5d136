//! The program's admin listener, its logs, and a destination that is not set up as asked beside one that is.
use super::*;
use crate::support::{tool::Tool, wait::eventually};
use std::{
    path::Path,
    process::{Output, Stdio},
};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};
use twinbox::operation::{OperationKey, OperationStart};
use twinbox_testkit::database::TestDatabase;

pub(super) struct Program {
    child: Child,
    config: NamedTempFile,
    pub(super) log: Lines<BufReader<ChildStderr>>,
    address: String,
}

impl Program {
    async fn start(database: &TestDatabase<Postgres>, destinations: &str) -> Self {
        Self::run(database.url(), &[], destinations).await
    }

    /// With a URL, further arguments, and what else is in the file.
    pub(super) async fn run(url: &str, arguments: &[&str], text: &str) -> Self {
        Self::run_with(url, arguments, &[], text).await
    }

    /// With variables of the environment too.
    pub(super) async fn run_with(url: &str, arguments: &[&str], env: &[(&str, &str)], text: &str) -> Self {
        let config = NamedTempFile::new().unwrap();
        let text = format!(
            "[database]\nurl = {:?}\nservice = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [log]\nformat = \"json\"\n{text}",
            url,
            database::SERVICE,
        );
        std::fs::write(config.path(), text).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_it-relay"))
            .args(["run", "--config"])
            .arg(config.path())
            .args(arguments)
            .env_remove("RUST_LOG")
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let up = logged(&mut log, "the admin listener is up").await;
        Self { child, config, log, address: up["address"].as_str().unwrap().to_owned() }
    }

    /// Asks it to stop, and waits until it has.
    pub(super) async fn stop(mut self) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        let ended = timeout(PATIENCE, self.child.wait()).await.expect("it stops").unwrap();
        assert_eq!(ended.code(), Some(0));
    }

    /// Runs another command with the same configuration, which may fail.
    pub(super) async fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_it-relay"));
        command.args(arguments).arg("--config").arg(self.config.path()).output().await.unwrap()
    }

    pub(super) fn config(&self) -> &Path {
        self.config.path()
    }

    pub(super) async fn get(&self, path: &str) -> (u16, String) {
        let mut connection = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, connection.read_to_string(&mut answer)).await.expect("an answer").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Waits until the metrics have this line.
    pub(super) async fn shows(&self, line: &str) {
        let mut all = String::new();
        let shown = eventually(async || {
            all = self.get("/metrics").await.1;
            all.lines().any(|other| other == line).then_some(())
        });
        assert!(timeout(PATIENCE, shown).await.is_ok(), "no {line} in\n{all}");
    }
}

/// The next line that says so; every line is an object.
pub(super) async fn logged(log: &mut Lines<BufReader<ChildStderr>>, message: &str) -> serde_json::Value {
    let found = async {
        loop {
            let line = log.next_line().await.unwrap().expect("the program goes on");
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line["message"].as_str().is_some_and(|text| text.contains(message)) {
                return line;
            }
        }
    };
    timeout(PATIENCE, found).await.expect(message)
}

pub(super) fn destination(id: &str, target: &Target, more: &str) -> String {
    format!(
        "[destinations.{id}]\nkind = \"nats\"\nstart = \"beginning\"\nurl = {:?}\nstream = {:?}\nprefix = \
         {:?}\n{more}\n",
        target.url,
        target.name,
        target.name.to_lowercase(),
    )
}

/// A request that has charged somebody, and failed.
async fn unfinished(store: &Store<Postgres>) {
    let (key, policy) = (OperationKey { key: "a".into(), ..Default::default() }, Default::default());
    let begun =
        store.idempotency_keys().lease(&key, Default::default(), &policy, Duration::from_secs(60)).await;
    let OperationStart::Open(mut lease) = begun.unwrap() else { panic!("it is free") };
    lease.save("charged ch_1").await.unwrap();
    lease.release().await.unwrap();
}

/// R33. Counters and facts from the database can be scraped, an outage of the broker shows, and an operator
/// can pause.
#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics() {
    let mut server = NatsServer::start().unwrap();
    let target = Target::at(server.url());
    let store = database::postgres().await;
    publish(&store, 0..20).await;
    let mut program = Program::start(&store, &destination("events", &target, "create_stream = true")).await;
    let of = "{destination=\"events\"}";
    program.shows("twinbox_relay_publish_results_total{destination=\"events\",error_type=\"\"} 20").await;
    program.shows(&format!("twinbox_relay_lag_seconds_count{of} 20")).await;
    program.shows(&format!("twinbox_relay_backlog_messages{of} 0")).await;
    program.shows(&format!("twinbox_relay_leased{of} 1")).await;
    program.shows("twinbox_relay_circuit_breaker{destination=\"events\",state=\"closed\"} 1").await;
    program.shows("twinbox_relay_unfinished_idempotency_keys 0").await;
    unfinished(&store).await;
    program.shows("twinbox_relay_unfinished_idempotency_keys 1").await;
    assert_eq!(program.get("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(program.get("/readyz").await, (200, "ok\n".to_owned()));

    server.kill().unwrap();
    publish(&store, 20..25).await;
    program.shows("twinbox_relay_circuit_breaker{destination=\"events\",state=\"open\"} 1").await;
    program.shows(&format!("twinbox_relay_backlog_messages{of} 5")).await;
    assert_eq!(program.get("/readyz").await.0, 200, "no other relay would do better");

    let tool = Tool::at::<Postgres>(store.url());
    tool.ok(&["destinations", "pause", "events", "--yes", "--reason", "a bad deploy"]).await;
    program.shows(&format!("twinbox_relay_paused{of} 1")).await;
    server.restart().unwrap();
    let told = logged(&mut program.log, "an operator paused the destination").await;
    assert_eq!(told["reason"], "a bad deploy");
    assert_eq!(target.count().await, 20, "paused, although the broker is back");
    tool.ok(&["destinations", "resume", "events", "--yes"]).await;
    program.shows(&format!("twinbox_relay_backlog_messages{of} 0")).await;
    assert_eq!(target.count().await, 25);
}

/// One destination that is not set up as asked is reported, the other is served, and it comes back by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_not_set_up_stops_no_other() {
    let (good, bad) = (Target::shared(), Target::shared());
    let client = async_nats::connect(&bad.url).await.unwrap();
    let subjects = vec![format!("other.{}.>", bad.name)];
    let config = stream::Config { name: bad.name.clone(), subjects, ..Default::default() };
    jetstream::new(client).create_stream(config).await.unwrap();
    let store = database::postgres().await;
    publish(&store, 0..20).await;
    let both = destination("good", &good, "create_stream = true") + &destination("bad", &bad, "");
    let mut program = Program::start(&store, &both).await;
    let told = logged(&mut program.log, "other destinations continue").await;
    assert_eq!(told["destination"], "bad");
    program.shows("twinbox_relay_publish_results_total{destination=\"good\",error_type=\"\"} 20").await;
    let (status, text) = program.get("/readyz").await;
    assert!(status == 200 && text.contains("destination bad: "), "{status} {text}");

    let lease = destination("short", &good, "create_stream = true\nlease = \"1s\"");
    let mut short = Program::start(&store, &lease).await;
    let ended = timeout(PATIENCE, short.child.wait()).await.expect("it would never send").unwrap();
    assert_eq!(ended.code(), Some(1));

    let alone = Program::start(&store, &destination("bad", &bad, "")).await;
    let mut child = alone.child;
    let ended = timeout(PATIENCE, child.wait()).await.expect("there is nothing it could do").unwrap();
    assert_eq!(ended.code(), Some(1));
}
