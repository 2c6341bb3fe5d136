use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::find::Version;
use super::*;

#[test]
fn postgres_survives_an_immediate_stop() {
    if lacks_psql() {
        return;
    }
    let mut server = PostgresServer::start().unwrap();
    let (url, data) = (server.url(), server.data_dir());
    psql(&url, "CREATE TABLE kept AS SELECT 42 AS answer");
    server.stop_immediate().unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_err());
    server.start_again().unwrap();
    assert_eq!(server.url(), url);
    assert_eq!(psql(&url, "SELECT answer FROM kept"), "42");
    server.stop_fast().unwrap();
    server.start_again().unwrap();
    assert_eq!(psql(&url, "SELECT answer FROM kept"), "42");
    drop(server);
    assert!(!data.exists());
}

#[test]
fn postgres_takes_settings_and_keeps_fsync_on() {
    if lacks_psql() {
        return;
    }
    let options = PostgresOptions::default().set("max_connections", "17");
    let server = PostgresServer::start_with(options).unwrap();
    assert_eq!(psql(&server.url(), "SHOW max_connections"), "17");
    assert_eq!(psql(&server.url(), "SHOW fsync"), "on");
}

#[test]
fn mariadb_keeps_its_data_when_it_is_killed() {
    let mut server = MySqlServer::start().unwrap();
    let (url, data) = (server.url(), server.data_dir());
    // At once: its account must survive too.
    server.kill().unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_err());
    server.restart().unwrap();
    assert_eq!(server.url(), url);
    let Some(_) = mariadb(&url, "CREATE TABLE kept AS SELECT 42 AS answer") else { return };
    server.kill().unwrap();
    server.restart().unwrap();
    assert_eq!(mariadb(&url, "SELECT answer FROM kept").unwrap(), "42");
    server.stop().unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_err());
    server.restart().unwrap();
    assert_eq!(mariadb(&url, "SELECT answer FROM kept").unwrap(), "42");
    drop(server);
    assert!(!data.exists());
}

#[test]
fn mariadb_takes_settings_and_syncs_each_commit() {
    let options = MySqlOptions::default().set("max_connections", "17");
    let server = MySqlServer::start_with(options).unwrap();
    let settings = "SELECT CONCAT_WS(' ', @@max_connections, @@innodb_flush_log_at_trx_commit, @@log_bin, \
        @@character_set_database, @@skip_name_resolve)";
    let Some(shown) = mariadb(&server.url(), settings) else { return };
    assert_eq!(shown, "17 1 OFF utf8mb4 ON");
}

#[test]
fn the_account_of_mariadb_makes_databases_and_accounts() {
    let mut server = MySqlServer::start().unwrap();
    let url = server.url();
    let made = "CREATE DATABASE other; CREATE USER reader@'%' IDENTIFIED BY 'word'; \
        GRANT SELECT ON other.* TO reader@'%'; CREATE TABLE other.t AS SELECT 7 AS n";
    let Some(_) = mariadb(&url, made) else { return };
    let reader = format!("mysql://reader:word@127.0.0.1:{}/other", server.port());
    assert_eq!(mariadb(&reader, "SELECT n FROM t").unwrap(), "7");
    // A restart needs no account.
    assert_eq!(mariadb(&url, "DELETE FROM mysql.global_priv WHERE User = 'root'").unwrap(), "");
    server.restart().unwrap();
    assert_eq!(mariadb(&url, "SELECT n FROM other.t").unwrap(), "7");
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let options = PostgresOptions::default().set("no_such_setting", "1");
    let error = PostgresServer::start_with(options).unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
    let options = MySqlOptions::default().set("no_such_setting", "1");
    let error = MySqlServer::start_with(options).unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
    let options = MySqlOptions::default().bin("/no/such/folder");
    let error = MySqlServer::start_with(options).unwrap_err().to_string();
    assert!(error.contains("/no/such/folder"), "{error}");
    let error = NatsServer::start_with(NatsOptions::default().line("banana: ripe")).unwrap_err().to_string();
    assert!(error.contains("banana"), "{error}");
    let options = NatsOptions::default().binary("/no/such/nats-server");
    let error = NatsServer::start_with(options).unwrap_err().to_string();
    assert!(error.contains("/no/such/nats-server"), "{error}");
}

#[test]
fn nats_comes_back_on_the_same_port() {
    let mut server = NatsServer::start().unwrap();
    assert!(server.version() >= Version(2, 10, 0));
    let url = server.url();
    let created = jetstream(server.port(), "STREAM.CREATE.kept", r#"{"name":"kept","subjects":["kept"]}"#);
    assert!(!created.contains("error"), "{created}");
    server.kill().unwrap();
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_err());
    server.restart().unwrap();
    assert_eq!(server.url(), url);
    assert!(jetstream(server.port(), "STREAM.NAMES", "").contains("kept"));
    server.wipe_store().unwrap();
    server.restart().unwrap();
    assert!(!jetstream(server.port(), "STREAM.NAMES", "").contains("kept"));
}

#[test]
fn nats_takes_configuration_and_a_chosen_binary() {
    let options = NatsOptions::default().binary(find::nats_server().unwrap());
    let options = options.line("max_payload: 12345").jetstream_line("sync_interval: always");
    let server = NatsServer::start_with(options).unwrap();
    assert!(greet(server.port()).unwrap().contains("\"max_payload\":12345"));
}

#[test]
fn a_paused_nats_is_silent_and_then_goes_on() {
    let server = NatsServer::start().unwrap();
    server.pause().unwrap();
    assert!(greet(server.port()).is_err());
    server.resume().unwrap();
    assert!(greet(server.port()).unwrap().starts_with("INFO"));
    server.pause().unwrap(); // dropping a paused server does not hang
}

#[test]
fn a_port_taken_for_a_moment_is_waited_for() {
    let mut nats = NatsServer::start().unwrap();
    nats.kill().unwrap();
    let held = hold_until_missed(nats.port(), nats.dir());
    nats.restart().unwrap();
    held.join().unwrap();
    let mut postgres = PostgresServer::start().unwrap();
    postgres.stop_fast().unwrap();
    let held = hold_until_missed(postgres.port(), postgres.dir());
    postgres.start_again().unwrap();
    held.join().unwrap();
    let mut mariadb = MySqlServer::start().unwrap();
    mariadb.stop().unwrap();
    let held = hold_until_missed(mariadb.port(), mariadb.dir());
    mariadb.restart().unwrap();
    held.join().unwrap();
}

#[test]
fn a_detached_server_lives_until_it_is_stopped() {
    for server in [
        NatsServer::start().unwrap().leave_running().unwrap(),
        PostgresServer::start().unwrap().leave_running().unwrap(),
        MySqlServer::start().unwrap().leave_running().unwrap(),
    ] {
        assert!(server.is_running() && server.dir.exists());
        server.stop().unwrap();
        assert!(!server.is_running() && !server.dir.exists());
        server.stop().unwrap();
    }
}

#[test]
fn a_stopped_server_cannot_be_left_running() {
    let mut server = NatsServer::start().unwrap();
    server.kill().unwrap();
    assert!(server.leave_running().is_err());
}

/// Runs this test binary again, with the test below, as the process that starts servers.
#[test]
fn a_killed_process_leaves_no_server_behind() {
    let exe = std::env::current_exe().unwrap();
    let found = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(exe)
        .args(["--exact", "servers::tests::starts_servers_and_waits_to_be_killed"])
        .env("TWINBOX_TEST_REPORT", found.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let dirs = eventually(|| {
        let report = std::fs::read_to_string(found.path()).unwrap();
        report.strip_suffix("done").map(|dirs| dirs.lines().map(PathBuf::from).collect::<Vec<_>>())
    });
    let servers: Vec<Detached> =
        dirs.iter().map(|dir| Detached { dir: dir.clone(), pid: pid(dir) }).collect();
    assert!(servers.len() == 3 && servers.iter().all(Detached::is_running));
    child.kill().unwrap();
    child.wait().unwrap();
    for server in servers {
        eventually(|| (!server.is_running() && !server.dir.exists()).then_some(()));
    }
}

#[test]
fn starts_servers_and_waits_to_be_killed() {
    let Some(report) = std::env::var_os("TWINBOX_TEST_REPORT") else { return };
    let postgres = PostgresServer::start().unwrap();
    let nats = NatsServer::start().unwrap();
    let mariadb = MySqlServer::start().unwrap();
    let dirs = [postgres.dir(), nats.dir(), mariadb.dir()].map(|dir| dir.display().to_string());
    std::fs::write(report, format!("{}\ndone", dirs.join("\n"))).unwrap();
    thread::sleep(Duration::from_secs(60));
}

#[test]
fn versions_are_read_and_compared() {
    assert_eq!(Version::parse("nats-server: v2.15.1"), Some(Version(2, 15, 1)));
    assert_eq!(Version::parse("2.9.10-RC.1"), Some(Version(2, 9, 10)));
    assert_eq!(Version::parse("no version 1.2 here"), None);
    assert!(Version(2, 9, 10) < Version(2, 10, 0));
}

/// Keeps the port until the server of this folder has logged that another program has it.
fn hold_until_missed(port: u16, server: &Path) -> thread::JoinHandle<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let log = server.join("log");
    thread::spawn(move || {
        eventually(|| {
            let log = std::fs::read_to_string(&log).ok()?.to_ascii_lowercase();
            log.contains("address already in use").then_some(())
        });
        drop(listener);
    })
}

fn pid(dir: &Path) -> u32 {
    let text = std::fs::read_to_string(dir.join("pid")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

fn eventually<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(answer) = check() {
            return answer;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("it did not happen within 30 s");
}

/// Some packages have the server alone.
fn lacks_psql() -> bool {
    let is_there = find::postgres_bin().unwrap().join("psql").exists();
    if !is_there {
        crate::skipped("psql is not beside this Postgres");
    }
    !is_there
}

fn psql(url: &str, sql: &str) -> String {
    let psql = find::postgres_bin().unwrap().join("psql");
    let output =
        Command::new(psql).args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql, url]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs statements with the client of MariaDB. None: this machine lacks it.
fn mariadb(url: &str, sql: &str) -> Option<String> {
    let (account, rest) = url.strip_prefix("mysql://").unwrap().split_once('@').unwrap();
    let (user, password) = account.split_once(':').unwrap();
    let (port, database) = rest.strip_prefix("127.0.0.1:").unwrap().split_once('/').unwrap();
    let bin = find::mysql_bin().unwrap().canonicalize().unwrap();
    let mut client = Command::new(bin.with_file_name("bin").join("mariadb"));
    client.env("LD_LIBRARY_PATH", &bin).args(["--no-defaults", "-N", "-B", "-h127.0.0.1", "-P", port]);
    client.args(["-u", user, &format!("-p{password}"), "-e", sql, database]);
    let output = match client.output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            crate::skipped("MariaDB: its client `mariadb` is not installed");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

fn greet(port: u16) -> io::Result<String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

/// Sends one request to the JetStream API over a bare connection. Returns the JSON of the response.
fn jetstream(port: u16, api: &str, body: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let length = body.len();
    let request = format!("CONNECT {{}}\r\nSUB answer 1\r\nPUB $JS.API.{api} answer {length}\r\n{body}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("MSG answer")).unwrap();
    lines.next().unwrap()
}
