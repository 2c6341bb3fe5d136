//! Servers that share a database, and die.
use crate::support::{
    cases::cases,
    helper,
    operations::runs_out,
    refunds::{Got, asked},
    stores::{TestDb, World},
    wait::in_time,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use integration_tests::refunds::{Does, HOOK_SECRET, TABLES};
use std::{
    io,
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    process::Stdio,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    task::JoinSet,
};
use twinbox::http::webhook::{Scheme, Secret};

/// Where webhooks come in.
const HOOKS: &str = "/hooks";

/// A web server in a process of its own; killed when it is dropped.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    async fn start(url: &str, dies_at: Option<&str>) -> Self {
        let mut command = Command::new(helper::program("http"));
        command.env("DATABASE_URL", url).env("RUST_LOG", "error").stdout(Stdio::piped()).kill_on_drop(true);
        if let Some(dies_at) = dies_at {
            command.env("TWINBOX_CRASH_AT", dies_at).stderr(Stdio::null());
        }
        let mut process = command.spawn().expect("a program just built starts");
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).await.unwrap();
        Self { process, address: address.trim().parse().unwrap() }
    }

    /// An error: the process died before it had answered.
    async fn refund(&self, path: &str, key: &str, does: Does) -> io::Result<Got> {
        refund(self.address, path, key, does).await
    }
}

async fn refund(address: SocketAddr, path: &str, key: &str, does: Does) -> io::Result<Got> {
    let body = asked(1000, does);
    let mut headers = vec![("idempotency-key", key.to_owned()), ("x-request-timeout", "600s".to_owned())];
    if path == HOOKS {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let id = key.replace('.', "-");
        headers = Secret::from_bytes(HOOK_SECRET).unwrap().sign(Scheme::Standard, &id, at, body.as_bytes());
    }
    let headers = String::from_iter(headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")));
    let mut connection = TcpStream::connect(address).await?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{headers}content-type: \
         application/json\r\n\
        content-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let headers = lines.map(|line| line.split_once(": ").unwrap());
    Ok(Got {
        status: StatusCode::from_bytes(status.as_bytes()).unwrap(),
        headers: HeaderMap::from_iter(
            headers.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())),
        ),
        body: body.into(),
        has_trailers: false,
    })
}

async fn world<DB: TestDb>() -> World<DB> {
    let world = World::<DB>::new().await;
    world.execute(TABLES).await;
    world
}

async fn made<DB: TestDb>(world: &World<DB>) -> [i64; 3] {
    let refunds = world.number("SELECT count(*) FROM refunds").await;
    [refunds, world.number("SELECT count(*) FROM ledger").await, world.rows("outbox").await]
}

/// t09: R54
async fn t09_of_64_at_once_on_three_processes_one_refunds<DB: TestDb>() {
    let world = world::<DB>().await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(world.url(), None).await);
    }
    for path in ["/refunds", "/leased/refunds"] {
        let mut asking = JoinSet::new();
        for n in 0..64 {
            let address = servers[n % 3].address;
            asking.spawn(async move { refund(address, path, path, Does::Works).await.unwrap() });
        }
        let all = in_time(asking.join_all()).await;
        let stored = Vec::from_iter(all.iter().filter(|got| got.says() == Some("stored")));
        let [stored] = stored[..] else { panic!("one is the first: {stored:?}") };
        for got in all.iter().filter(|got| got.says() != Some("stored")) {
            match got.status.as_u16() {
                409 => assert_eq!(got.header("retry-after"), Some("1"), "{got:?}"),
                _ => got.is_replayed(stored),
            }
        }
        assert!(all.iter().any(|got| got.says() == Some("replayed")), "{path}");
    }
    assert_eq!(made(&world).await, [2; 3]);
}

/// t10: R15, R38, R51. Killed there, and asked again: one refund.
async fn killed_at<DB: TestDb>(path: &str, points: &[(&str, &str)]) {
    let world = world::<DB>().await;
    let healthy = Server::start(world.url(), None).await;
    for (n, (point, says)) in (1..).zip(points) {
        let mut doomed = Server::start(world.url(), Some(point)).await;
        let lost = in_time(doomed.refund(path, point, Does::Answers)).await;
        assert!(lost.is_err(), "{point}: {lost:?}");
        assert_eq!(in_time(doomed.process.wait()).await.unwrap().signal(), Some(9), "{point}");
        runs_out(&world).await;
        let got = in_time(healthy.refund(path, point, Does::Answers)).await.unwrap();
        if path == HOOKS {
            assert_eq!(got.status.as_u16(), 200, "{point}");
        } else {
            assert_eq!((got.status.as_u16(), got.says()), (201, Some(*says)), "{point}");
        }
        assert_eq!(made(&world).await, [n; 3], "{point}");
    }
}

async fn t10_killed_at_each_step_of_a_transaction<DB: TestDb>() {
    killed_at::<DB>(
        "/refunds",
        &[
            ("request.before_claim", "stored"),
            ("operation.after_claim", "stored"),
            ("request.before_handler", "stored"),
            ("test.after_effect", "stored"),
            ("test.after_outbox", "stored"),
            ("request.after_handler", "stored"),
            ("request.before_commit", "stored"),
            ("request.after_commit", "replayed"),
            ("request.before_answer", "replayed"),
        ],
    )
    .await;
}

async fn t10_killed_at_each_step_of_a_lease<DB: TestDb>() {
    killed_at::<DB>(
        "/leased/refunds",
        &[
            ("request.before_claim", "stored"),
            ("operation.after_hold", "stored"),
            ("request.before_handler", "stored"),
            ("test.after_call", "stored"),
            ("operation.after_save", "stored"),
            ("test.after_effect", "stored"),
            ("test.after_outbox", "stored"),
            ("request.after_handler", "stored"),
            ("request.before_commit", "stored"),
            ("request.after_commit", "replayed"),
            ("request.before_answer", "replayed"),
        ],
    )
    .await;
}

async fn t10_killed_at_each_step_of_a_webhook<DB: TestDb>() {
    let points = [
        "webhook.after_receipt",
        "test.after_effect",
        "test.after_outbox",
        "webhook.after_handler",
        "webhook.after_commit",
    ];
    killed_at::<DB>(HOOKS, &points.map(|point| (point, ""))).await;
}

cases! {
    all: [
        t09_of_64_at_once_on_three_processes_one_refunds,
        t10_killed_at_each_step_of_a_transaction,
        t10_killed_at_each_step_of_a_lease,
        t10_killed_at_each_step_of_a_webhook,
    ]
}
