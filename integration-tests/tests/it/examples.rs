//! The README of each example, followed as it stands.
//!
//! Each block of `sh` runs in a shell of its own. A block whose last program serves goes on beside the later
//! ones, until the end of the page; each other one ends well. The block of `text` behind a block is what it
//! prints: these lines come in this order, among others. A word with a digit stands for any other such word,
//! because ids and times differ. The ports of the page are free ones of this machine.
use crate::support::{database, helper};
use crate::workspace::{packages, root};
use futures::future::join_all;
use std::{
    collections::BTreeSet,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use twinbox_testkit::{servers::NatsServer, skipped};

const PATIENCE: Duration = Duration::from_secs(300);
/// The last commands of blocks that serve until somebody stops them.
const SERVING: [&str; 3] =
    ["cargo run -p payments", "cargo run -p shop", "cargo run -p orders --bin billing"];
/// The ports that the pages name.
const PORTS: [&str; 2] = ["8080", "5555"];
/// A package and its program, which is built. cargo would build each package anew with its features.
const PROGRAMS: [(&str, &str); 8] = [
    ("fulfilment", "fulfilment"),
    ("orders", "billing"),
    ("orders", "place"),
    ("payments", "payments"),
    ("quickstart", "quickstart"),
    ("shop", "shop"),
    ("signup", "signup"),
    ("twinbox-relay", "twinbox-relay"),
];
/// Stands for cargo, with programs that are built and servers that run.
const CARGO: &str = r#"#!/bin/sh
set -eu
here=$(dirname "$0")
if [ "$*" = "xtask services up" ]; then exec cat "$here/exports"; fi
if [ "$1 $2" != "run -p" ]; then echo "cargo $* is not known here" >&2; exit 64; fi
package=$3 program=$3
shift 3
if [ "${1-}" = --bin ]; then program=$2; shift 2; fi
if [ "${1-}" = -- ]; then shift; fi
exec "$here/programs/$package/$program" "$@"
"#;

/// The blocks of `sh` of a page, each with the lines of the `text` behind it.
fn steps(page: &str) -> Vec<(&str, Vec<String>)> {
    let mut steps = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        match block.split_once('\n').unwrap() {
            ("sh", commands) => steps.push((commands, Vec::new())),
            ("text", printed) => {
                let lines = printed.lines().map(alike).filter(|line| !line.is_empty());
                steps.last_mut().expect("it is printed by a block").1.extend(lines);
            }
            (language, _) => panic!("a block of {language:?}"),
        }
    }
    steps
}

/// Returns the words of a line, with one word for all that have a digit.
fn alike(line: &str) -> String {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let words = line.split_whitespace().map(|word| if has_digit(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The folder in which a reader follows a page.
struct Desk {
    home: tempfile::TempDir,
    ports: [u16; PORTS.len()],
}

impl Desk {
    fn new(exports: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        symlink(root().join("examples"), at("examples")).unwrap();
        for (package, program) in PROGRAMS {
            std::fs::create_dir_all(at("bin/programs").join(package)).unwrap();
            symlink(helper::program(program), at("bin/programs").join(package).join(program)).unwrap();
        }
        std::fs::write(at("bin/exports"), exports).unwrap();
        std::fs::write(at("bin/cargo"), CARGO).unwrap();
        std::fs::set_permissions(at("bin/cargo"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { ports: PORTS.map(|_| free()), home }
    }

    fn starts(&self, commands: &str) -> Shell {
        let commands = PORTS
            .iter()
            .zip(self.ports)
            .fold(commands.to_owned(), |commands, (port, free)| commands.replace(port, &free.to_string()));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", &format!("exec 2>&1\n{commands}")]).current_dir(self.home.path());
        let programs = std::env::var("TWINBOX_PG_BIN").unwrap_or_default();
        let path = std::env::var("PATH").unwrap();
        shell.env("PATH", format!("{}:{programs}:{path}", self.home.path().join("bin").display()));
        shell.env("LISTEN", format!("127.0.0.1:{}", self.ports[0]));
        for variable in ["TWINBOX_POSTGRES_URL", "TWINBOX_NATS_URL", "DATABASE_URL", "NATS_URL"] {
            shell.env_remove(variable);
        }
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = Command::from(shell).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let group = format!("-{}", child.id().unwrap());
        Shell { child, group, lines, commands, printed: String::new() }
    }
}

/// A shell and what it has started. Dropped, they end, as by Ctrl-C.
struct Shell {
    child: Child,
    group: String,
    lines: Lines<BufReader<ChildStdout>>,
    commands: String,
    printed: String,
}

impl Shell {
    async fn line(&mut self) -> Option<String> {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        let line =
            line.unwrap_or_else(|_| panic!("{}\nprints no more than\n{}", self.commands, self.printed));
        let line = line.unwrap()?;
        self.printed += &format!("{line}\n");
        Some(line)
    }

    async fn prints(&mut self, expected: &str) {
        loop {
            match self.line().await {
                Some(line) if alike(&line) == expected => return,
                Some(_) => {}
                None => panic!("{}\nprinted no {expected:?}, but\n{}", self.commands, self.printed),
            }
        }
    }

    /// Waits for the end of the shell, which may leave programs behind.
    async fn ends_well(&mut self) {
        let Self { child, lines, printed, .. } = self;
        let reads = async {
            while let Ok(Some(line)) = lines.next_line().await {
                *printed += &(line + "\n");
            }
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = timeout(PATIENCE, child.wait()) => ended.expect("it ends").unwrap(),
            () = reads => unreachable!("it waits for the end"),
        };
        assert!(ended.success(), "{}\nends with {ended}:\n{}", self.commands, self.printed);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill")
            .args(["-TERM", "--", &self.group])
            .stderr(Stdio::null())
            .status();
    }
}

/// Follows a page from its first block to its last one.
async fn follow(name: &str, exports: &str) {
    let page = std::fs::read_to_string(root().join("examples").join(name).join("README.md"));
    let page = page.unwrap_or_else(|error| panic!("the README of {name}: {error}"));
    let (desk, steps, mut serving) = (Desk::new(exports), steps(&page), Vec::new());
    assert!(!steps.is_empty(), "{name} says how it runs");
    for (commands, printed) in steps {
        let mut shell = desk.starts(commands);
        for line in &printed {
            shell.prints(line).await;
        }
        let last = commands.trim_end().lines().last().unwrap_or_default();
        if !SERVING.iter().any(|program| last.ends_with(program)) {
            shell.ends_well().await;
        }
        serving.push(shell);
    }
}

/// A program of the test is one that cargo would run without further options.
#[test]
fn cargo_would_run_the_programs_of_the_pages() {
    let packages = packages();
    for (package, program) in PROGRAMS {
        let package = &packages[package];
        let targets = package["targets"].as_array().unwrap().iter();
        let mut programs = targets.filter(|target| target["kind"][0] == "bin");
        let found = programs.find(|target| target["name"] == program).unwrap_or_else(|| panic!("{program}"));
        let needed = found["required-features"].as_array().into_iter().flatten();
        let default = package["features"]["default"].as_array().cloned().unwrap_or_default();
        let missing = Vec::from_iter(needed.filter(|feature| !default.contains(feature)));
        assert!(missing.is_empty(), "{program} needs {missing:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_of_each_example_runs_as_it_stands() {
    for program in ["curl", "psql"] {
        if std::process::Command::new(program).arg("--version").output().is_err() {
            return skipped(&format!("READMEs of examples: they need {program}"));
        }
    }
    let folders = std::fs::read_dir(root().join("examples")).unwrap();
    let mut names: BTreeSet<_> = folders.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    let python = std::env::var("TWINBOX_PYTHON").unwrap_or_default();
    if !Path::new(&python).exists() {
        names.remove("fulfilment");
        skipped("README of fulfilment: the moto server is not there; TWINBOX_PYTHON names its Python");
    }
    let nats = NatsServer::start().unwrap();
    join_all(names.iter().map(async |name| {
        let database = database::empty_postgres().await;
        let exports = format!(
            "export TWINBOX_POSTGRES_URL='{}' TWINBOX_NATS_URL='{}' TWINBOX_PYTHON='{python}'\n",
            // psql does not know the options of sqlx.
            database.url().split('?').next().unwrap(),
            nats.url()
        );
        follow(name, &exports).await;
    }))
    .await;
}
