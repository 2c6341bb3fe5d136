//! Servers as a careful administrator sets them up: TLS, and users that may do what the page of the broker
//! lists.

use std::hash::{BuildHasher as _, RandomState};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{env, fs, process};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use crate::error::Result;

const PAGE: &str = include_str!("../../crates/twinbox-cli/BROKER.md");
/// The user of code that runs in the process of a test.
const USER: &str = "tests";
const PASSWORD: &str = "hush";
/// The certificates of the system, where it has them in one file.
const SYSTEM: &str = "/etc/ssl/certs/ca-certificates.crt";
/// By which name programs find the certificates to trust.
pub(crate) const TRUSTED: &str = "SSL_CERT_FILE";
/// By which name programs find a folder of others.
pub(crate) const MORE_TRUSTED: &str = "SSL_CERT_DIR";
/// By which name cargo finds them.
pub(crate) const TRUSTED_BY_CARGO: &str = "CARGO_HTTP_CAINFO";

/// Deletes the folder `$0` when its standard input closes. It closes when xtask ends, even by SIGKILL.
const GUARD: &str = "trap '' HUP INT TERM; read -r _; rm -rf -- \"$0\"";

/// An authority and a certificate for servers on this machine, in a folder that ends with this value.
pub(crate) struct Certificates {
    folder: PathBuf,
    guard: Child,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Certificates {
    pub(crate) fn create() -> Result<Self> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Without names of their own both would seem to have signed themselves.
        authority.distinguished_name.push(DnType::CommonName, "authority of tests");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        server.distinguished_name.push(DnType::CommonName, "server of tests");
        let certificate = server.signed_by(&key, &authority)?.pem();
        let name = format!("twinbox-certificates-{:016x}", RandomState::new().hash_one(process::id()));
        let folder = env::temp_dir().join(name);
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD]).arg(&folder).process_group(0).stdin(Stdio::piped());
        let guard = guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let all = Self { folder, guard, certificate, key: key.serialize_pem() };
        let system = env::var_os(TRUSTED).map_or_else(|| PathBuf::from(SYSTEM), PathBuf::from);
        let system = fs::read_to_string(system).unwrap_or_default();
        let files = [
            ("ca.pem", authority.pem()),
            ("trusted.pem", format!("{system}\n{}", authority.pem())),
            ("server.pem", all.certificate.clone()),
            ("server.key", all.key.clone()),
        ];
        for (name, text) in files {
            fs::write(all.file(name), text)?;
        }
        fs::create_dir(all.file("none"))?;
        Ok(all)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Lines for the configuration of a NATS server: TLS, and the users of the page for every stream whose prefix
/// begins with `t.`. The union of them is the user `tests`. Clients of the tests themselves, which show no
/// login, may do everything.
pub(crate) fn nats_lines(certificates: &Certificates) -> Result<String> {
    let block = PAGE.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let block = block.ok_or("the page of the broker has no block of users")?;
    let (mut users, mut list, mut published) = (String::new(), "", Vec::new());
    for line in block.lines() {
        let word = line.trim();
        let line = match word.split_once("password: $") {
            Some((user, _)) => format!("{user}password: {PASSWORD}"),
            None if word.starts_with('"') => for_tests(line),
            None => line.to_owned(),
        };
        list = ["publish", "subscribe"].into_iter().find(|list| word.starts_with(list)).unwrap_or(list);
        if word.starts_with('"') && list == "publish" {
            published.push(line.trim().to_owned());
        }
        users += &format!("{line}\n");
        // With `create_stream` a relay may create the stream, and `check` asks which ones there are.
        if word == "publish: [" && !users.contains("user: billing") {
            users += "\"$JS.API.STREAM.CREATE.*\"\n\"$JS.API.STREAM.NAMES\"\n";
        }
    }
    published
        .extend(["$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.NAMES"].map(|subject| format!("{subject:?}")));
    let others = format!(
        "users: [
            {{ user: admin, password: {PASSWORD} }}
            {{ user: {USER}, password: {PASSWORD}, permissions: {{
                publish: [{}], subscribe: [\"_INBOX_{USER}.>\"] }} }}",
        published.join("\n")
    );
    let users = users.replacen("users: [", &others, 1);
    let file = |name| certificates.file(name).display().to_string();
    Ok(format!(
        "tls {{ cert_file: {:?}, key_file: {:?} }}\nno_auth_user: admin\n{users}",
        file("server.pem"),
        file("server.key")
    ))
}

/// Returns the subject for every stream and durable of tests.
fn for_tests(line: &str) -> String {
    let line = line.replace("\"events.>\"", "\"t.>\"");
    ["EVENTS", "billing_invoice"].iter().fold(line, |line, name| line.replace(name, "*"))
}

/// Returns the URL of a NATS server with the login of the tests.
pub(crate) fn nats_url(url: &str) -> String {
    url.replacen("://", &format!("://{USER}:{PASSWORD}@"), 1)
}

/// Returns the parameters of a URL that make clients of a database check the certificate.
pub(crate) fn postgres_parameters(authority: &Path) -> String {
    format!("?sslmode=verify-full&sslrootcert={}", in_url(authority))
}

pub(crate) fn mysql_parameters(authority: &Path) -> String {
    format!("?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", in_url(authority))
}

fn in_url(path: &Path) -> String {
    path.display().to_string().replace('/', "%2F")
}
