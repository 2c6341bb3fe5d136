//! Relay and consumer as processes.
use super::{
    broker_users::{inbox_of, nats_url_for, prefix_of},
    database::{self, TestDatabase, url_for},
    helper,
    relay::batches,
};
use sqlx::Postgres;
use tokio::process::{Child, Command};

#[derive(Clone, Copy)]
pub(crate) enum Program {
    Relay,
    Consumer,
}

#[derive(Clone)]
pub(crate) struct Programs {
    pub(crate) database_url: String,
    pub(crate) nats_url: String,
    pub(crate) stream: String,
    /// Whether the relay creates the stream.
    pub(crate) create_stream: bool,
}

impl Programs {
    pub(crate) fn new(database: &TestDatabase<Postgres>, role: &str) -> Self {
        let (_, server) = database.url().split_once('@').expect("a URL with a user");
        Self::at(format!("postgres://{role}@{server}"))
    }

    pub(crate) fn at(database_url: String) -> Self {
        let nats_url = std::env::var("TWINBOX_NATS_URL").expect("TWINBOX_NATS_URL: run `cargo xtask test`");
        let stream = format!("KILL_{}", uuid::Uuid::now_v7().simple());
        Self { database_url, nats_url, stream, create_stream: true }
    }

    pub(crate) fn start(&self, program: Program, dies_at: Option<&str>) -> Child {
        let mut command = self.command(program);
        if let Some(dies_at) = dies_at {
            command.env("TWINBOX_CRASH_AT", dies_at);
        }
        command.spawn().expect("a program just built starts")
    }

    pub(crate) fn command(&self, program: Program) -> Command {
        let mut command = match program {
            Program::Relay => {
                let mut command = Command::new(helper::program("twinbox-relay"));
                let destination = "TWINBOX_RELAY__DESTINATIONS__KILL__";
                let nats = nats_url_for("relay", &self.nats_url);
                command
                    .arg("run")
                    .env("TWINBOX_RELAY__DATABASE__URL", url_for("runtime", &self.database_url))
                    .env("TWINBOX_RELAY__DATABASE__SERVICE", database::SERVICE)
                    .env(format!("{destination}KIND"), "nats")
                    .env(format!("{destination}START"), "beginning")
                    .env(format!("{destination}URL"), &nats)
                    .env(format!("{destination}INBOX_PREFIX"), inbox_of(&nats))
                    .env(format!("{destination}STREAM"), &self.stream)
                    .env(format!("{destination}PREFIX"), prefix_of(&self.stream))
                    .env(format!("{destination}CREATE_STREAM"), self.create_stream.to_string())
                    .env(format!("{destination}BATCHES"), batches().to_string());
                command
            }
            Program::Consumer => {
                let mut command = Command::new(helper::program("consumer"));
                let nats = nats_url_for("search", &self.nats_url);
                command
                    .env("DATABASE_URL", url_for("runtime", &self.database_url))
                    .env("NATS_URL", &nats)
                    .env("NATS_INBOX_PREFIX", inbox_of(&nats))
                    .env("PREFIX", prefix_of(&self.stream))
                    .env("STREAM", &self.stream);
                command
            }
        };
        command.env("RUST_LOG", "error").kill_on_drop(true);
        command
    }
}
