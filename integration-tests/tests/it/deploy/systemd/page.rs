//! The page about systemd: its commands, in their order, lead to a relay that runs.
//!
//! The test stands in for systemd: it runs the program as the unit says.
use super::{Manager, stop};
use crate::support::{helper, postgres::store_at, relay::Target, wait::in_time};
use std::path::Path;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    process::{Child, Command},
};
use twinbox::{Draft, Store};
use twinbox_testkit::servers::{NatsServer, PostgresServer, find};

const PAGE: &str = include_str!("../../../../../crates/twinbox-relay/systemd/README.md");
/// How each URL of a database says that the certificate of the server is verified.
const VERIFIED: &str = "?sslmode=verify-full&sslrootcert=/etc/twinbox/ca.pem";
const STARTS: &str = "systemctl enable --now twinbox-relay\n";
/// Commands that need systemd, or that would build the programs of a release.
const SKIPPED: [&str; 2] = ["systemctl ", "cargo install "];

/// All commands of the page.
fn commands() -> String {
    let blocks = PAGE.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split_once("```").expect("the block ends").0).collect()
}

/// A machine in a folder, whose servers and paths replace those of the page. Its servers have no TLS, which
/// `relay::secure` tries.
struct Machine {
    folder: TempDir,
    replaced: Vec<(String, String)>,
}

impl Machine {
    fn new(postgres: &PostgresServer, nats: &NatsServer, port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let bin = root.join("usr/local/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, root.join(name)).unwrap();
        link(&helper::program("twinbox-relay"), "usr/local/bin/twinbox-relay");
        link(&helper::program("twinbox"), "usr/local/bin/twinbox");
        link(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates"), "crates");
        std::fs::write(root.join("ca.pem"), "").unwrap();
        let user = |name| postgres.url().replace("postgres@", &format!("{name}@"));
        let below = |path: &str| root.join(path).display().to_string();
        let database = |user: &str| format!("postgres://{user}:secret@db.example.org/shop{VERIFIED}");
        let (owner, relay, operator) = (database("owner"), database("shop_relay"), database("shop_operator"));
        let replaced = [
            (owner.as_str(), postgres.url()),
            (relay.as_str(), user("shop_relay")),
            (operator.as_str(), user("shop_operator")),
            ("tls://nats.example.org:4222", nats.url()),
            ("ca_file = \"/etc/twinbox/ca.pem\"\n", String::new()),
            (" --nats-ca /etc/twinbox/ca.pem", String::new()),
            ("127.0.0.1:9464", format!("127.0.0.1:{port}")),
            (" /etc/", format!(" {}/", below("etc"))),
            ("=/etc/", format!("={}/", below("etc"))),
            (":/etc/", format!(":{}/", below("etc"))),
            ("/usr/local/bin/", format!("{}/", bin.display())),
            ("/run/credentials/%n/", format!("{}/", below("credentials"))),
        ];
        let replaced = replaced.map(|(from, to)| (from.to_owned(), to));
        Self { replaced: Vec::from(replaced), folder }
    }

    fn here(&self, text: &str) -> String {
        let here = self.replaced.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        assert!(!here.contains("example.org") && !here.contains(":secret@"), "{here}");
        here
    }

    /// Runs commands of the page as one script. Returns those that are skipped.
    async fn run(&self, commands: &str) -> Vec<String> {
        let is_skipped = |line: &&str| SKIPPED.iter().any(|command| line.starts_with(command));
        let (skipped, run): (Vec<_>, Vec<_>) = commands.lines().partition(is_skipped);
        let path = [self.folder.path().join("usr/local/bin"), find::postgres_bin().unwrap()];
        let before = std::env::var_os("PATH").unwrap();
        let path = std::env::join_paths(path.into_iter().chain(std::env::split_paths(&before))).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-eux", "-c", &self.here(&run.join("\n"))]).current_dir(self.folder.path());
        for variable in ["DATABASE_URL", "DATABASE_URL_FILE", "NATS_URL", "TWINBOX_AS"] {
            shell.env_remove(variable);
        }
        let ran = in_time(shell.env("PATH", path).env("USER", "root").output()).await.unwrap();
        let (out, said) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success(), "{out}\n{said}");
        skipped.into_iter().map(str::to_owned).collect()
    }

    /// Starts the program as the installed unit says.
    fn start(&self, manager: &Manager) -> Child {
        let file = self.folder.path().join("etc/systemd/system/twinbox-relay.service");
        let unit = self.here(&std::fs::read_to_string(file).unwrap());
        let setting =
            |name: &str| unit.lines().filter_map(move |line| line.strip_prefix(name)).next().unwrap();
        let (name, file) = setting("LoadCredential=").split_once(':').unwrap();
        let copies = self.folder.path().join("credentials");
        std::fs::create_dir(&copies).unwrap();
        std::fs::copy(file, copies.join(name)).unwrap();
        let mut words = setting("ExecStart=").split(' ');
        let (variable, value) = setting("Environment=").split_once('=').unwrap();
        let mut command = Command::new(words.next().unwrap());
        command.args(words).env(variable, value).env("NOTIFY_SOCKET", manager.address()).kill_on_drop(true);
        command.spawn().unwrap()
    }
}

async fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_lead_to_a_relay_that_runs() {
    let (postgres, nats) = (PostgresServer::start().unwrap(), NatsServer::start().unwrap());
    let (machine, manager) = (Machine::new(&postgres, &nats, free_port().await), Manager::new());
    let commands = commands();
    let (before, after) = commands.split_once(STARTS).expect("the page starts the relay");
    let mut skipped = machine.run(before).await;
    let relay = machine.start(&manager);
    manager.until(&["READY=1"]).await;

    let pool = store_at(&postgres.url()).await.pool().clone();
    let store = Store::new(pool, "orders").unwrap();
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut tx, Draft::raw("orders.placed", 1, "{}").key("a")).await.unwrap();
    tx.commit().await.unwrap();
    let target = Target { url: nats.url(), name: "EVENTS".to_owned() };
    target.holds(1, async_nats::ConnectOptions::new()).await;

    skipped.extend(machine.run(after).await);
    assert_eq!(stop(relay).await, Some(0));
    println!("run without systemd, skipped: {skipped:#?}");
    assert_eq!(skipped.len(), 5, "{skipped:?}");
}
