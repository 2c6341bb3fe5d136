//! The program and what lets it in: certificates, credentials, tokens; and what it says when they are wrong.
mod cluster;
mod consumers;
mod keys;
mod plain;
mod rotated;

use super::*;
use crate::support::{
    broker_users::{inbox_of, nats_url_for},
    database::TestDatabase,
    helper,
};
use async_nats::ConnectOptions;
use keys::{Authority, Operator};
use sqlx::PgPool;
use std::{
    fs::Permissions,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::Path,
    process::Output,
};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use twinbox::nats::{NatsOptions, StreamOptions};
use twinbox_testkit::{
    proxy::Proxy,
    servers::{NatsOptions as ServerOptions, PostgresServer},
};

const MESSAGES: u32 = 20;

fn program(folder: &TempDir, database_url: &str, nats: &str, command: &str) -> Command {
    let config = folder.path().join("relay.toml");
    let service = database::SERVICE;
    let toml = format!(
        "[database]\nurl = {database_url:?}\nservice = {service:?}\n\
         [destinations.events]\nkind = \"nats\"\nstart = \"beginning\"\ncreate_stream = true\n{nats}\n"
    );
    std::fs::write(&config, toml).unwrap();
    let mut program = Command::new(helper::program("twinbox-relay"));
    program.args([command, "--config"]).arg(config).env("RUST_LOG", "error").kill_on_drop(true);
    program
}

fn relay(folder: &TempDir, database_url: &str, nats: &str) -> Child {
    program(folder, database_url, nats, "run").spawn().unwrap()
}

/// `twinbox-relay check` finds what is wrong, ends, and gives no secret away.
async fn refuses(folder: &TempDir, database_url: &str, nats: &str, why: &str) -> String {
    let checked = timeout(PATIENCE, program(folder, database_url, nats, "check").output());
    let Output { status, stdout, stderr } = checked.await.expect("it ends").unwrap();
    let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains("FAIL") && text.contains(why), "{text}");
    assert!(!text.contains("secret"), "{text}");
    text
}

async fn arrive(url: &str, stream: &str, options: ConnectOptions) {
    let target = Target { url: url.to_owned(), name: stream.to_owned() };
    target.holds(u64::from(MESSAGES), options).await;
}

/// A store with messages, and a folder for secrets.
async fn rig() -> (TestDatabase<Postgres>, TempDir) {
    let store = database::postgres().await;
    publish(&store, 0..MESSAGES).await;
    (store, tempfile::tempdir().unwrap())
}

fn nats(lines: impl IntoIterator<Item = String>) -> NatsServer {
    let options = lines.into_iter().fold(ServerOptions::default(), ServerOptions::line);
    NatsServer::start_with(options).unwrap()
}

fn set(name: &str, path: &Path) -> String {
    format!("{name} = {path:?}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_is_reached_through_tls() {
    let (store, folder) = rig().await;
    let dir = folder.path();
    let (ours, other) = (Authority::new(dir, "ours"), Authority::new(dir, "other"));
    let pair = ours.issue(dir, "server");
    let server = nats([format!("tls {{ cert_file: {:?}, key_file: {:?} }}", pair.certificate, pair.key)]);
    let url = format!("tls://127.0.0.1:{}", server.port());
    let keys = format!("url = {url:?}\n{}", set("ca_file", &ours.certificate));
    let relay = relay(&folder, store.url(), &keys);
    arrive(&url, "EVENTS", ConnectOptions::new().add_root_certificates(ours.certificate)).await;
    drop(relay);
    let keys = format!("url = {url:?}\n{}", set("ca_file", &other.certificate));
    refuses(&folder, store.url(), &keys, "TLS with NATS failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_is_shown_a_client_certificate() {
    let (store, folder) = rig().await;
    let dir = folder.path();
    let (ours, other) = (Authority::new(dir, "ours"), Authority::new(dir, "other"));
    let pair = ours.issue(dir, "server");
    let server = nats([format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        pair.certificate, pair.key, ours.certificate
    )]);
    let url = format!("tls://127.0.0.1:{}", server.port());
    let keys = |client: &keys::Pair| {
        let certificate = set("client_certificate_file", &client.certificate);
        let key = set("client_key_file", &client.key);
        format!("url = {url:?}\n{}{certificate}{key}", set("ca_file", &ours.certificate))
    };
    let (client, stranger) = (ours.issue(dir, "client"), other.issue(dir, "client"));
    let relay = relay(&folder, store.url(), &keys(&client));
    let options = ConnectOptions::new().add_root_certificates(ours.certificate.clone());
    arrive(&url, "EVENTS", options.add_client_certificate(client.certificate.clone(), client.key.clone()))
        .await;
    drop(relay);
    refuses(&folder, store.url(), &keys(&stranger), "TLS with NATS failed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_is_told_a_token() {
    let (store, folder) = rig().await;
    let server = nats(["authorization { token: \"the secret\" }".to_owned()]);
    let keys = |token: &str| {
        let file = folder.path().join("token");
        std::fs::write(&file, format!("{token}\n")).unwrap();
        format!("url = {:?}\n{}", server.url(), set("token_file", &file))
    };
    let relay = relay(&folder, store.url(), &keys("the secret"));
    arrive(&server.url(), "EVENTS", ConnectOptions::new().token("the secret".into())).await;
    drop(relay);
    let why = "NATS does not accept the credentials";
    refuses(&folder, store.url(), &keys("another secret"), why).await;
}

/// A server that takes another token, and one whose URL holds another password, in place of the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_secret_of_nats_is_read_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let of_token = |token: &str| format!("authorization {{ token: {token:?} }}");
    let of_password = |password: &str| format!("authorization {{ user: me, password: {password:?} }}");
    let (token, url) = (dir.path().join("token"), dir.path().join("url"));
    for by_token in [true, false] {
        let lines =
            ["one", "two"].map(|secret| if by_token { of_token(secret) } else { of_password(secret) });
        let [first, second] = lines.map(|line| nats([line]));
        let address = |server: &NatsServer| format!("127.0.0.1:{}", server.port()).parse().unwrap();
        let proxy = Proxy::start(address(&first)).await.unwrap();
        let change = |secret: &str| {
            std::fs::write(&token, format!("{secret}\n")).unwrap();
            std::fs::write(&url, format!("nats://me:{secret}@{}\n", proxy.address())).unwrap();
        };
        change("one");
        let options = NatsOptions::new(format!("nats://{}", proxy.address()));
        let options = if by_token { options.token_file(&token) } else { options.url_file(&url) };
        let options = options.create_stream(StreamOptions::default());
        let store = database::postgres().await;
        publish(&store, 0..MESSAGES).await;
        let destination = Nats::with_options(options).unwrap();
        let running = Running::run(Relay::new(store.clone(), destination));
        running.published(u64::from(MESSAGES)).await;
        change("two");
        proxy.lead_to(address(&second));
        publish(&store, MESSAGES..2 * MESSAGES).await;
        running.published(u64::from(2 * MESSAGES)).await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nats_is_shown_credentials_that_an_account_signed() {
    let (store, folder) = rig().await;
    let operator = Operator::new();
    let server = nats(operator.lines.clone());
    let good = operator.credentials(folder.path(), false);
    let keys = |file: &Path| format!("url = {:?}\n{}", server.url(), set("credentials_file", file));
    let relay = relay(&folder, store.url(), &keys(&good));
    arrive(&server.url(), "EVENTS", ConnectOptions::with_credentials_file(&good).await.unwrap()).await;
    drop(relay);
    let wrong = operator.credentials(folder.path(), true);
    refuses(&folder, store.url(), &keys(&wrong), "NATS does not accept the credentials").await;
    let strange = Operator::new().credentials(folder.path(), false);
    refuses(&folder, store.url(), &keys(&strange), "NATS does not accept the credentials").await;
}

/// A server that lets nobody in without TLS and the password `secret`.
async fn postgres(folder: &Path, authority: &Authority) -> PostgresServer {
    let mut server = PostgresServer::start().unwrap();
    let open = PgPool::connect(&server.url()).await.unwrap();
    sqlx::raw_sql("ALTER USER postgres PASSWORD 'secret'").execute(&open).await.unwrap();
    open.close().await;
    let (pair, data) = (authority.issue(folder, "server"), server.data_dir());
    server.stop_fast().unwrap();
    let owner = std::fs::metadata(&data).unwrap();
    for (from, name) in [(&pair.certificate, "server.crt"), (&pair.key, "server.key")] {
        let to = data.join(name);
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
        chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let config = std::fs::read_to_string(data.join("postgresql.conf")).unwrap();
    std::fs::write(data.join("postgresql.conf"), config + "\nssl = on\n").unwrap();
    std::fs::write(data.join("pg_hba.conf"), "hostssl all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    server.start_again().unwrap();
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_reached_through_tls() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let (ours, other) = (Authority::new(dir, "ours"), Authority::new(dir, "other"));
    let server = postgres(dir, &ours).await;
    let url = |password: &str, authority: &Authority| {
        let (port, file) = (server.port(), authority.certificate.display());
        format!(
            "postgres://postgres:{password}@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={file}"
        )
    };
    let target = Target::shared();
    let (name, prefix, broker) = (&target.name, target.prefix(), nats_url_for("relay", &target.url));
    let inbox = inbox_of(&broker);
    let nats = format!("url = {broker:?}\ninbox_prefix = {inbox:?}\nstream = {name:?}\nprefix = {prefix:?}");
    let good = url("secret", &ours);
    let store = Store::new(PgPool::connect(&good).await.unwrap(), database::SERVICE).unwrap();
    store.migrate().await.unwrap();
    publish(&store, 0..MESSAGES).await;
    let relay = relay(&folder, &good, &nats);
    arrive(&target.url, name, ConnectOptions::new()).await;
    drop(relay);
    refuses(&folder, &url("secret", &other), &nats, "certificate").await;
    refuses(&folder, &url("another-secret", &ours), &nats, "password").await;
    let plain = good.replace("verify-full", "disable");
    refuses(&folder, &plain, &nats, "encryption").await;
}
