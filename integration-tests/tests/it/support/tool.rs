//! Runs the program `twinbox`.
use super::{
    broker_users::nats_url_for,
    database::{OWNER, url_for},
    helper,
    stores::{TestDb, World},
    wait::in_time,
};
use serde_json::Value;
use std::process::Stdio;
use tokio::process::Command;

pub(crate) struct Tool {
    url: String,
}

/// The exit code and the output of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Tool {
    pub(crate) fn of<DB: TestDb>(world: &World<DB>) -> Self {
        Self::at::<DB>(world.url())
    }

    pub(crate) fn at<DB: TestDb>(url: &str) -> Self {
        Self { url: if DB::MODULE == "sqlite" { format!("sqlite:{url}") } else { url.to_owned() } }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns a command that runs the program without a terminal.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(helper::program("twinbox"));
        let role = match arguments {
            ["schemas", "migrate", ..] | ["destinations", "rebase", ..] => OWNER,
            ["destinations", "retire", ..] => "keeper",
            ["keys", "redact", ..] => "redactor",
            _ => "operator",
        };
        command.env("DATABASE_URL", url_for(role, &self.url)).env("TWINBOX_AS", "ada");
        let operator = |argument: &&str| nats_url_for("operator", argument);
        command.args(arguments.iter().map(operator));
        let is_server = |argument: &&str| operator(argument) != **argument;
        if arguments.iter().any(is_server) {
            command.args(["--nats-inbox-prefix", "_INBOX_operator"]);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Ran {
        let ran = in_time(self.command(arguments).output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: ran.status.code().unwrap_or(-1), out: text(ran.stdout), err: text(ran.stderr) }
    }

    /// Runs the program, which must succeed. Returns its standard output.
    pub(crate) async fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> Value {
        let printed = self.ok(&[arguments, &["-o", "json"]].concat()).await;
        serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
    }

    /// Runs the program, which must end with `code`. Returns its standard error.
    pub(crate) async fn ends(&self, code: i32, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        ran.err
    }
}
