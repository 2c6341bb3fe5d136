//! The program `twinbox-relay` as a process, and what its admin listener and its log say.
use super::{
    broker_users::{inbox_of, nats_url_for},
    database::{self, TestDatabase, url_for},
    helper,
    relay::{PATIENCE, Target},
    wait::eventually,
};
use sqlx::Postgres;
use std::{
    path::Path,
    process::{Output, Stdio},
};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    time::timeout,
};

/// The program with its admin listener, on a port of its own.
pub(crate) struct Program {
    pub(crate) child: Child,
    config: NamedTempFile,
    pub(crate) log: Lines<BufReader<ChildStderr>>,
    pub(crate) address: String,
}

impl Program {
    pub(crate) async fn start(database: &TestDatabase<Postgres>, destinations: &str) -> Self {
        Self::run(database.url(), &[], destinations).await
    }

    /// With a URL, further arguments, and what else is in the file.
    pub(crate) async fn run(url: &str, arguments: &[&str], text: &str) -> Self {
        Self::run_with(url, arguments, &[], text).await
    }

    /// With variables of the environment too.
    pub(crate) async fn run_with(url: &str, arguments: &[&str], env: &[(&str, &str)], text: &str) -> Self {
        let config = NamedTempFile::new().unwrap();
        let text = format!(
            "[database]\nurl = {:?}\nservice = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [log]\nformat = \"json\"\n{text}",
            url_for("runtime", url),
            database::SERVICE,
        );
        std::fs::write(config.path(), text).unwrap();
        let mut child = Command::new(helper::program("twinbox-relay"))
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
    pub(crate) async fn stop(mut self) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        let ended = timeout(PATIENCE, self.child.wait()).await.expect("it stops").unwrap();
        assert_eq!(ended.code(), Some(0));
    }

    /// Runs another command with the same configuration, which may fail.
    pub(crate) async fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(helper::program("twinbox-relay"));
        command.args(arguments).arg("--config").arg(self.config.path()).output().await.unwrap()
    }

    pub(crate) fn config(&self) -> &Path {
        self.config.path()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let mut connection = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address);
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, connection.read_to_string(&mut answer)).await.expect("an answer").unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Waits until the metrics have this line.
    pub(crate) async fn shows(&self, line: &str) {
        let mut all = String::new();
        let shown = eventually(async || {
            all = self.get("/metrics").await.1;
            all.lines().any(|other| other == line).then_some(())
        });
        assert!(timeout(PATIENCE, shown).await.is_ok(), "no {line} in\n{all}");
    }
}

/// The next line that says so; every line is an object.
pub(crate) async fn logged(log: &mut Lines<BufReader<ChildStderr>>, message: &str) -> serde_json::Value {
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

pub(crate) fn destination(id: &str, target: &Target, more: &str) -> String {
    let url = nats_url_for("relay", &target.url);
    format!(
        "[destinations.{id}]\nkind = \"nats\"\nstart = \"beginning\"\nurl = {url:?}\ninbox_prefix = {:?}\n\
         stream = {:?}\nprefix = {:?}\n{more}\n",
        inbox_of(&url),
        target.name,
        target.prefix(),
    )
}
