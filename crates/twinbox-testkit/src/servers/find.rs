//! Finds the binaries of the servers.
//!
//! They are searched in this order:
//!
//! | place | Postgres | MariaDB | NATS |
//! |---|---|---|---|
//! | environment | `TWINBOX_PG_BIN` | `TWINBOX_MYSQL_BIN` | `TWINBOX_NATS_SERVER`; see below |
//! | `PATH` | `initdb` beside `postgres` | `mariadbd` | `nats-server`, the newest |
//! | the system | `/usr/lib/postgresql/*/bin` | `/usr/sbin`, `/usr/bin` | `/usr/sbin`, `/usr/local/sbin` |
//! | [`cache`] | | `mariadb/usr/sbin` | `nats-server-*/nats-server` |
//!
//! The variables of Postgres and MariaDB name a folder, those of NATS a program. Of several
//! versions of Postgres in the system, the highest is taken.
//!
//! A binary that the environment names is used in any version. Otherwise the version of every NATS server is
//! read, because that of a distribution is often too old. [`nats_server`] takes the newest one from 2.10 on.
//! [`nats_server_old`] takes one before 2.10, for tests of the settings that such servers ignore;
//! `TWINBOX_NATS_SERVER_OLD` names it.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs};

use super::error::ServerError;

const OLDEST_NATS: Version = Version(2, 10, 0);
const PYTHON: &str = "python/bin/python";

/// The version of a server, such as 2.15.1. A later version is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(
    /// Major.
    pub u32,
    /// Minor.
    pub u32,
    /// Patch.
    pub u32,
);

impl Version {
    /// Returns the first `1.2.3` in a text, or `None` if there is none.
    pub fn parse(text: &str) -> Option<Self> {
        text.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
            let mut parts = word.split('.').map(|part| part.parse().ok());
            Some(Self(parts.next()??, parts.next()??, parts.next()??))
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Returns the folder with `initdb` and `postgres`.
///
/// # Errors
///
/// There is none, or `TWINBOX_PG_BIN` names a folder without them.
pub fn postgres_bin() -> Result<PathBuf, ServerError> {
    if let Some(dir) = env::var_os("TWINBOX_PG_BIN").map(PathBuf::from) {
        return match has_postgres(&dir) {
            true => Ok(dir),
            false => {
                Err(ServerError::new(format!("TWINBOX_PG_BIN: {} has no initdb and postgres", dir.display())))
            }
        };
    }
    // On PATH they are often links, but Postgres looks for its files relative to the real binary.
    let on_path = path_dirs().into_iter().filter_map(|dir| dir.join("initdb").canonicalize().ok());
    let system = subfolders(Path::new("/usr/lib/postgresql"))
        .into_iter()
        .filter_map(|dir| Some((dir.file_name()?.to_str()?.parse::<u32>().ok()?, dir.join("bin"))))
        .filter(|(_, dir)| has_postgres(dir))
        .max();
    on_path
        .filter_map(|initdb| Some(initdb.parent()?.to_owned()))
        .find(|dir| has_postgres(dir))
        .or(system.map(|(_, dir)| dir))
        .ok_or_else(|| missing("no Postgres (initdb) found", "TWINBOX_PG_BIN"))
}

/// Returns the folder with `mariadbd` or `mysqld`: `TWINBOX_MYSQL_BIN`, or else one with MariaDB of the
/// `PATH`, `/usr/sbin`, `/usr/bin` or [`cache`].
///
/// `mariadb-install-db` stands in the same folder, or in `bin` or `scripts` beside it.
///
/// # Errors
///
/// There is none, or `TWINBOX_MYSQL_BIN` names a folder without these programs.
pub fn mysql_bin() -> Result<PathBuf, ServerError> {
    let has_mariadb = |dir: &Path| dir.join("mariadbd").is_file() && mariadb_install_db(dir).is_some();
    if let Some(dir) = env::var_os("TWINBOX_MYSQL_BIN").map(PathBuf::from) {
        return match has_mariadb(&dir) || dir.join("mysqld").is_file() {
            true => Ok(dir),
            false => Err(ServerError::new(format!(
                "TWINBOX_MYSQL_BIN: {} has no mysqld, and no mariadbd with mariadb-install-db",
                dir.display()
            ))),
        };
    }
    let mut dirs = path_dirs();
    dirs.extend(["/usr/sbin", "/usr/bin"].map(PathBuf::from));
    dirs.extend(cache().map(|cache| cache.join("mariadb/usr/sbin")));
    let found = dirs.into_iter().find(|dir| has_mariadb(dir));
    found.ok_or_else(|| missing("no MariaDB (mariadbd) found", "TWINBOX_MYSQL_BIN"))
}

/// Returns the program that creates the data of the MariaDB in this folder.
pub(super) fn mariadb_install_db(bin: &Path) -> Option<PathBuf> {
    // `/sbin` is often a link to `/usr/sbin`.
    let bin = bin.canonicalize().ok()?;
    let beside = ["bin", "scripts"].map(|dir| bin.parent().map(|base| base.join(dir)));
    let dirs = [Some(bin.clone())].into_iter().chain(beside).flatten();
    dirs.map(|dir| dir.join("mariadb-install-db")).find(|path| path.is_file())
}

/// Returns `TWINBOX_NATS_SERVER`, or else the newest NATS server from 2.10 on.
///
/// # Errors
///
/// There is none, or the file that `TWINBOX_NATS_SERVER` names does not exist.
pub fn nats_server() -> Result<PathBuf, ServerError> {
    nats("TWINBOX_NATS_SERVER", &format!("no nats-server {OLDEST_NATS} or later found"), |version| {
        version >= OLDEST_NATS
    })
}

/// Returns `TWINBOX_NATS_SERVER_OLD`, or else the newest NATS server before 2.10.
///
/// # Errors
///
/// There is none, or the file that `TWINBOX_NATS_SERVER_OLD` names does not exist.
pub fn nats_server_old() -> Result<PathBuf, ServerError> {
    nats("TWINBOX_NATS_SERVER_OLD", &format!("no nats-server before {OLDEST_NATS} found"), |version| {
        version < OLDEST_NATS
    })
}

/// Returns the version that `nats-server --version` prints, or `None` if it prints none or does not run.
pub fn nats_version(binary: &Path) -> Option<Version> {
    let output = Command::new(binary).arg("--version").output().ok()?;
    Version::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Returns `TWINBOX_PYTHON`, or else the Python in [`cache`].
///
/// It has the packages moto, boto3, nats-py and cloudevents.
///
/// # Errors
///
/// There is none, or the file that `TWINBOX_PYTHON` names does not exist.
pub fn python() -> Result<PathBuf, ServerError> {
    if let Some(named) = in_environment("TWINBOX_PYTHON") {
        return named;
    }
    let path = cache()?.join(PYTHON);
    match path.is_file() {
        true => Ok(path),
        false => Err(missing("no Python with moto found", "TWINBOX_PYTHON")),
    }
}

/// Returns the folder in [`cache`] with the packages psycopg and nats-py, for the `PYTHONPATH` of the Python
/// on the `PATH`.
///
/// # Errors
///
/// There is none.
pub fn python_packages() -> Result<PathBuf, ServerError> {
    driver("python-packages", "nats")
}

/// Returns the folder in [`cache`] whose `node_modules` has the packages pg and axe-core, for the Node on the
/// `PATH`.
///
/// # Errors
///
/// There is none.
pub fn node_packages() -> Result<PathBuf, ServerError> {
    driver("node-packages", "node_modules/axe-core")
}

/// Returns `TWINBOX_CHROMIUM`, or else the Chromium or Chrome on the `PATH`, or the Chromium in [`cache`].
///
/// # Errors
///
/// There is none, or the file that `TWINBOX_CHROMIUM` names does not exist.
pub fn chromium() -> Result<PathBuf, ServerError> {
    if let Some(named) = in_environment("TWINBOX_CHROMIUM") {
        return named;
    }
    let mut dirs = path_dirs();
    dirs.extend(cache().map(|cache| cache.join("chromium")));
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = dirs.iter().flat_map(|dir| names.map(|name| dir.join(name))).find(|path| path.is_file());
    found.ok_or_else(|| missing("no Chromium found", "TWINBOX_CHROMIUM"))
}

fn driver(folder: &str, package: &str) -> Result<PathBuf, ServerError> {
    let folder = cache()?.join(folder);
    match folder.join(package).is_dir() {
        true => Ok(folder),
        false => Err(ServerError::new(format!("cannot find {package}: run `cargo xtask services up`"))),
    }
}

/// Returns `TWINBOX_PGBOUNCER`, or else the PgBouncer on the `PATH`, in `/usr/sbin` or in [`cache`].
///
/// # Errors
///
/// There is none, or the file that `TWINBOX_PGBOUNCER` names does not exist.
pub fn pgbouncer() -> Result<PathBuf, ServerError> {
    if let Some(named) = in_environment("TWINBOX_PGBOUNCER") {
        return named;
    }
    let mut dirs = path_dirs();
    dirs.push(PathBuf::from("/usr/sbin"));
    dirs.extend(cache().map(|cache| cache.join("pgbouncer")));
    let found = dirs.into_iter().map(|dir| dir.join("pgbouncer")).find(|path| path.is_file());
    found.ok_or_else(|| missing("no PgBouncer found", "TWINBOX_PGBOUNCER"))
}

/// Returns the folder of downloaded servers: `TWINBOX_CACHE`, or else `twinbox` below `XDG_CACHE_HOME`, for
/// root `/var/cache`, because other accounts run its servers, or `~/.cache`.
///
/// The folder need not exist.
///
/// # Errors
///
/// None of `TWINBOX_CACHE`, `XDG_CACHE_HOME` and `HOME` is set.
pub fn cache() -> Result<PathBuf, ServerError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TWINBOX_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("twinbox")))
        .or_else(|| is_root().then(|| PathBuf::from("/var/cache/twinbox")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/twinbox")))
        .ok_or_else(|| ServerError::new("cannot find a folder for downloaded servers: set TWINBOX_CACHE"))
}

fn is_root() -> bool {
    // The owner of a process, where the system tells it.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Returns the file that a variable names, if the variable is set.
fn in_environment(variable: &str) -> Option<Result<PathBuf, ServerError>> {
    let path = env::var_os(variable).map(PathBuf::from)?;
    Some(match path.is_file() {
        true => Ok(path),
        false => Err(ServerError::new(format!("{variable}: there is no file {}", path.display()))),
    })
}

fn nats(variable: &str, problem: &str, wanted: impl Fn(Version) -> bool) -> Result<PathBuf, ServerError> {
    if let Some(named) = in_environment(variable) {
        return named;
    }
    let mut dirs = path_dirs();
    dirs.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    if let Ok(cache) = cache() {
        dirs.extend(subfolders(&cache).into_iter().filter(|dir| named(dir, "nats-server-")));
    }
    dirs.into_iter()
        .map(|dir| dir.join("nats-server"))
        .filter(|path| path.is_file())
        .filter_map(|path| Some((nats_version(&path)?, path)))
        .filter(|(version, _)| wanted(*version))
        .max()
        .map(|(_, path)| path)
        .ok_or_else(|| missing(problem, variable))
}

fn has_postgres(dir: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|name| dir.join(name).is_file())
}

fn path_dirs() -> Vec<PathBuf> {
    env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default()
}

fn subfolders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir()).collect()
}

fn named(dir: &Path, prefix: &str) -> bool {
    dir.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(prefix))
}

fn missing(problem: &str, variable: &str) -> ServerError {
    ServerError::new(format!("{problem}: run `cargo xtask services up`, or set {variable}"))
}
