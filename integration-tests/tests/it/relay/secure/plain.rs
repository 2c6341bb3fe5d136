//! Nothing leaves this machine without TLS that is verified, unless the file says `allow_plain`.
//!
//! The system reads [`AWAY`] as a loopback address. The programs take it for a name, as of another machine.
use super::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    join,
    net::TcpListener,
};

/// As whoever answers in the place of a server would write it: it asks for no TLS.
const GREETING: &[u8] = b"INFO {\"server_id\":\"x\",\"version\":\"2.15.1\",\"proto\":1,\
    \"max_payload\":1048576,\"headers\":true,\"auth_required\":true}\r\n";
/// The first byte of TLS: a record with a handshake.
const HANDSHAKE: u8 = 22;
/// A name that leads to this machine.
const AWAY: &str = "0x7f000001";

fn away(url: &str) -> String {
    let away = url.replace("127.0.0.1", AWAY);
    assert_ne!(away, url);
    away
}

/// Takes one connection as a server without TLS does. Returns what comes over it.
async fn greet(listener: &TcpListener) -> Vec<u8> {
    let mut connection = listener.accept().await.unwrap().0;
    connection.write_all(GREETING).await.unwrap();
    let mut came = vec![0; 64 * 1024];
    let length = connection.read(&mut came).await.unwrap();
    // The other side may have hung up.
    let _ = connection.write_all(b"-ERR 'Unknown Protocol Operation'\r\n").await;
    came.truncate(length);
    came
}

/// Asks the listener about a stream. Returns the code and the text of the error, and what it has sent.
async fn ask(options: NatsOptions, listener: &TcpListener) -> (String, String, Vec<u8>) {
    let nats = Nats::with_options(options).unwrap();
    let both = async { join!(nats.stream_status(), greet(listener)) };
    let (asked, came) = timeout(PATIENCE, both).await.expect("it ends");
    let error = asked.err().unwrap();
    (error.code().to_owned(), error.to_string(), came)
}

fn has_secret(came: &[u8]) -> bool {
    String::from_utf8_lossy(came).contains("very-secret")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nats_server_without_tls_gets_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new(folder.path(), "ours");
    let client = ours.issue(folder.path(), "client");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("nats://shop:very-secret@{}", listener.local_addr().unwrap());
    let with_ca = |url: &str| NatsOptions::new(url).ca_file(&ours.certificate);
    for options in [
        with_ca(&here),
        with_ca(&here).client_certificate(&client.certificate, &client.key),
        with_ca(&away(&here)),
    ] {
        let (code, text, came) = ask(options, &listener).await;
        assert!(came[0] == HANDSHAKE && !has_secret(&came), "{}", String::from_utf8_lossy(&came));
        assert!(code == "nats.tls" && text.contains("the server does not speak it"), "{code} {text}");
    }
    // The certificates of the system may be missing here: then nothing is sent at all.
    let (code, _, came) = ask(NatsOptions::new(away(&here)), &listener).await;
    assert!(code == "nats.tls" && !has_secret(&came), "{code}");
    for options in [with_ca(&here).allow_plain(true), NatsOptions::new(away(&here)).allow_plain(true)] {
        assert!(has_secret(&ask(options, &listener).await.2));
    }
}

/// Runs a command of the program with `allow_plain` in these tables. Returns its exit code and what it says.
async fn ends(mut program: Command, tables: &[&str]) -> (Option<i32>, String) {
    for table in tables {
        program.env(format!("TWINBOX_RELAY__{table}__ALLOW_PLAIN"), "true");
    }
    let ended = timeout(PATIENCE, program.output()).await.expect("it ends").unwrap();
    let text = [ended.stdout, ended.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (ended.status.code(), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_connects_without_tls_to_another_machine_only_where_the_file_allows_it() {
    let ((store, folder), server) = (rig().await, nats([]));
    let target = Target::at(server.url());
    let (database, name) = (away(store.url().split('?').next().unwrap()), &target.name);
    let rest = format!(
        "url = {:?}\nstream = {name:?}\nprefix = {:?}\n\
         [vendors.mail]\nprofile = \"resend\"\nurl = \"http://{AWAY}:8080/v1\"\n",
        away(&target.url),
        target.prefix(),
    );
    let refused = format!("no verified TLS protects the connection to the host `{AWAY}`");
    for command in ["check", "run"] {
        let (code, text) = ends(program(&folder, &database, &rest, command), &[]).await;
        let fix = "write `sslmode=verify-full` into its URL, or set `allow_plain = true` in `[database]`";
        assert!(code == Some(1) && text.contains(&format!("{refused}: {fix}")), "{command}: {text}");
    }
    let check = || {
        let mut check = program(&folder, &database, &rest, "check");
        check.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{AWAY}:4318"));
        check
    };
    let (code, text) = ends(check(), &["DATABASE"]).await;
    assert_eq!(code, Some(1), "{text}");
    for line in [
        format!("WARN  database: {refused}: `allow_plain` allows that"),
        format!("FAIL  collector: OTEL_EXPORTER_OTLP_ENDPOINT: {refused}: write `https://`, or set"),
        "FAIL  destination events: ".to_owned(),
        format!("FAIL  vendor mail: {refused}: write `https://`, or set `allow_plain = true` in `[vendors."),
    ] {
        assert!(text.lines().any(|other| other.starts_with(&line)), "{line}\nin\n{text}");
    }
    let all = ["COLLECTOR", "DATABASE", "DESTINATIONS__EVENTS", "VENDORS__MAIL"];
    let (code, text) = ends(check(), &all).await;
    assert_eq!(code, Some(0), "{text}");
    for subject in ["database", "collector", "destination events", "vendor mail"] {
        let line = format!("WARN  {subject}: {refused}: `allow_plain` allows that");
        assert!(text.lines().any(|other| other == line), "{line}\nin\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_refuses_a_mysql_server_whose_certificate_is_not_verified() {
    let folder = tempfile::tempdir().unwrap();
    let url = "mysql://me:very-secret@db.example.org/shop?ssl-mode=REQUIRED";
    let (code, text) = ends(program(&folder, url, "url = \"nats://localhost\"", "check"), &[]).await;
    assert!(code == Some(1) && text.contains("write `ssl-mode=VERIFY_IDENTITY`"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}
