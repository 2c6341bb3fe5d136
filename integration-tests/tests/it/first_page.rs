//! The first page, followed by the letter: an empty folder, the packages of a release, and a compiler. Then
//! the same program on Postgres, and with NATS and the relay between.
use crate::support::{
    database,
    helper::{self, without_own_package},
    long,
    rustc::Rustc,
};
use std::{
    os::unix::{fs::symlink, process::CommandExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};
use twinbox_testkit::servers::NatsServer;

const README: &str = include_str!("../../../README.md");
const PAGE: &str = include_str!("../../../docs/src/start.md");
const PROMISED: &str = "order 7 has its invoice";
const INSTALL: &str = "cargo install --locked twinbox-relay\n";
/// A build beside other tests.
const BUILD_MAX: Duration = Duration::from_secs(1200);

/// The blocks of a page in this language.
fn blocks(page: &'static str, language: &str) -> Vec<&'static str> {
    let starts = page.split("```").skip(1).step_by(2);
    let of_language = starts.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    of_language.collect()
}

/// The folder in which a reader follows the page.
struct Desk {
    home: tempfile::TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Desk {
    /// Commands of the page.
    fn shell(&self, folder: &str, commands: &str) -> Command {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", commands]).current_dir(self.home.path().join(folder));
        let path = format!("{}:{}", self.home.path().display(), std::env::var("PATH").unwrap_or_default());
        shell.env("PATH", path).env_remove("CARGO_TARGET_DIR");
        without_own_package(&mut shell);
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell.process_group(0);
        Command::from(shell)
    }

    async fn succeeds(&self, folder: &str, commands: &str) {
        let ran = timeout(BUILD_MAX, self.shell(folder, commands).output()).await.unwrap().unwrap();
        assert!(ran.status.success(), "{commands}\n{}", String::from_utf8_lossy(&ran.stderr));
    }

    fn starts(&self, commands: &str) -> Running {
        let mut shell = self.shell("shop", commands);
        let mut program = shell.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        Running { program, lines }
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.home.path().join("shop").join(file), text).unwrap();
    }

    /// Makes the program `main` of the shop, with the packages that the tests have.
    fn compile(&self) {
        let shop = self.home.path().join("shop");
        let mut rustc = Rustc::with(["serde", "sqlx", "tokio", "twinbox"]).command(&shop);
        let made = rustc.current_dir(&shop).arg("src/main.rs").output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn manifest(&self) -> String {
        std::fs::read_to_string(self.home.path().join("shop/Cargo.toml")).unwrap()
    }
}

/// A shell and what it has started. Dropped, they end. SIGINT would not do: where the tests run in the
/// background of a shell, it is ignored.
struct Running {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    async fn prints(&mut self, promised: &str) {
        let line = timeout(BUILD_MAX, self.lines.next_line()).await.expect("it prints").unwrap();
        assert_eq!(line.as_deref(), Some(promised));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = format!("-{}", self.program.id().unwrap_or_default());
        let _ = std::process::Command::new("kill").args(["-TERM", "--", &group]).status();
    }
}

/// Makes the packages of a release, and lets cargo in the folder take them instead of published ones.
fn packages(root: &Path, home: &Path) {
    let made = helper::cargo().current_dir(root).args(["xtask", "release", "--dry-run"]).output().unwrap();
    let printed = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{printed}\n{}", String::from_utf8_lossy(&made.stderr));
    let config = printed.split("cargo --config ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    // Most packages are built for the tests already, with the profiles of the workspace.
    let target = PathBuf::from(config).ancestors().nth(2).unwrap().to_owned();
    let patches = std::fs::read_to_string(config).unwrap();
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let profiles = &workspace[workspace.find("[profile.dev]").unwrap()..];
    let settings = format!("{patches}[build]\ntarget-dir = {target:?}\n{profiles}");
    std::fs::create_dir(home.join(".cargo")).unwrap();
    std::fs::write(home.join(".cargo/config.toml"), settings).unwrap();
}

#[tokio::test]
async fn whoever_follows_the_first_page_gets_an_invoice() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut desk = Desk { home: tempfile::tempdir().unwrap(), variables: Vec::new() };
    packages(root, desk.home.path());
    let shell = Vec::from_iter(blocks(PAGE, "sh"));
    let [new, run, run_on_postgres, relay, run_with_nats] = shell[..] else { panic!("{shell:#?}") };
    let tables = blocks(PAGE, "toml");
    let [dependencies, on_postgres, destinations] = tables[..] else { panic!("{tables:#?}") };
    let programs = blocks(PAGE, "rust,no_run");
    let [on_sqlite, with_pool] = programs[..] else { panic!("{programs:#?}") };
    assert_eq!(on_sqlite, blocks(README, "rust,no_run")[0], "the page and the README show one program");

    desk.succeeds("", new).await;
    // Most packages are downloaded already, in these versions.
    std::fs::copy(root.join("Cargo.lock"), desk.home.path().join("shop/Cargo.lock")).unwrap();
    let head = desk.manifest().replace("[dependencies]\n", "");
    desk.write("Cargo.toml", &(head + dependencies));
    desk.write("src/main.rs", on_sqlite);
    assert!(relay.contains(INSTALL), "it comes from a registry, which the test has not");
    // Each program builds most packages anew, for its own features. In short, cargo finds those of the first,
    // and it runs with those of the tests. The others are built as tests of documents too.
    if !long::or(true, false) {
        desk.succeeds("shop", &run.replace("cargo run", "cargo tree --quiet")).await;
        desk.compile();
        return desk.starts("./main").prints(PROMISED).await;
    }
    desk.starts(run).prints(PROMISED).await;

    let database = database::empty_postgres().await;
    desk.variables.push(("DATABASE_URL", database.url().to_owned()));
    let manifest = desk.manifest();
    let line = manifest.lines().find(|line| line.starts_with("twinbox = ")).unwrap();
    desk.write("Cargo.toml", &manifest.replace(line, on_postgres.trim_end()));
    desk.write("src/main.rs", with_pool);
    desk.starts(run_on_postgres).prints(PROMISED).await;

    let nats = NatsServer::start().unwrap();
    desk.variables.push(("NATS_URL", nats.url()));
    desk.write("relay.toml", destinations);
    symlink(helper::program("twinbox-relay"), desk.home.path().join("twinbox-relay")).unwrap();
    let _relay = desk.starts(&relay.replacen(INSTALL, "", 1));
    desk.starts(run_with_nats).prints(PROMISED).await;
}
