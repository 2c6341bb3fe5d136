//! Where the server binaries are.
//!
//! The first place that has one wins:
//!
//! | Looked at | Postgres | NATS |
//! |---|---|---|
//! | environment | `TWINBOX_PG_BIN`, a folder | `TWINBOX_NATS_SERVER` and `TWINBOX_NATS_SERVER_OLD` |
//! | `PATH` | `initdb` and `postgres` side by side | `nats-server`, the newest; see below |
//! | the system | `/usr/lib/postgresql/*/bin`, the highest version | `/usr/sbin`, `/usr/local/sbin` |
//! | [`cache`] | | `nats-server-*/nats-server` |
//!
//! What the environment names is taken at its word. Otherwise all NATS servers found are asked for their
//! version, because a distribution's own is often too old: [`nats_server`] takes the newest and wants 2.10 at
//! least, [`nats_server_old`] wants one before 2.10, to test what such servers silently ignore.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fmt, fs};

use super::ServerError;

const OLDEST_NATS: Version = Version(2, 10, 0);
const PYTHON: &str = "python/bin/python";

/// A server's version, such as 2.15.1; later versions compare greater.
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
    /// Reads the first `1.2.3` in a text, or `None` when there is none.
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

/// The folder with `initdb` and `postgres`.
///
/// # Errors
///
/// When there is none, or `TWINBOX_PG_BIN` names a folder without them.
pub fn postgres_bin() -> Result<PathBuf, ServerError> {
    if let Some(dir) = env::var_os("TWINBOX_PG_BIN").map(PathBuf::from) {
        return match has_postgres(&dir) {
            true => Ok(dir),
            false => {
                Err(ServerError::new(format!("TWINBOX_PG_BIN: no initdb and postgres in {}", dir.display())))
            }
        };
    }
    // On PATH they are often links, and Postgres finds its own files relative to the real binary.
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

/// The newest NATS server, 2.10 or later unless `TWINBOX_NATS_SERVER` says otherwise.
///
/// # Errors
///
/// When there is none, or the file that `TWINBOX_NATS_SERVER` names does not exist.
pub fn nats_server() -> Result<PathBuf, ServerError> {
    nats("TWINBOX_NATS_SERVER", &format!("no nats-server {OLDEST_NATS} or later found"), |version| {
        version >= OLDEST_NATS
    })
}

/// The newest NATS server before 2.10, unless `TWINBOX_NATS_SERVER_OLD` says otherwise.
///
/// # Errors
///
/// When there is none, or the file that `TWINBOX_NATS_SERVER_OLD` names does not exist.
pub fn nats_server_old() -> Result<PathBuf, ServerError> {
    nats("TWINBOX_NATS_SERVER_OLD", &format!("no nats-server before {OLDEST_NATS} found"), |version| {
        version < OLDEST_NATS
    })
}

/// What `--version` of a NATS server says; `None` when it does not run or says nothing of the kind.
pub fn nats_version(binary: &Path) -> Option<Version> {
    let output = Command::new(binary).arg("--version").output().ok()?;
    Version::parse(&String::from_utf8_lossy(&output.stdout))
}

/// A Python with the packages moto, boto3, nats-py and cloudevents: `TWINBOX_PYTHON`, else the one in [`cache`].
///
/// # Errors
///
/// When there is none, or the file that `TWINBOX_PYTHON` names does not exist.
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

/// The folder with the package psycopg, for the `PYTHONPATH` of a Python on the `PATH`: in [`cache`].
///
/// # Errors
///
/// When there is none.
pub fn python_driver() -> Result<PathBuf, ServerError> {
    driver("python-driver", "psycopg")
}

/// The folder whose `node_modules` has the package pg, for a Node on the `PATH`: in [`cache`].
///
/// # Errors
///
/// When there is none.
pub fn node_driver() -> Result<PathBuf, ServerError> {
    driver("node-driver", "node_modules/pg")
}

fn driver(folder: &str, package: &str) -> Result<PathBuf, ServerError> {
    let folder = cache()?.join(folder);
    match folder.join(package).is_dir() {
        true => Ok(folder),
        false => Err(ServerError::new(format!("no {package} found; `cargo xtask services up` gets it"))),
    }
}

/// PgBouncer: `TWINBOX_PGBOUNCER`, else on the `PATH`, else where `cargo xtask services` unpacks it.
///
/// # Errors
///
/// When there is none, or the file that `TWINBOX_PGBOUNCER` names does not exist.
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

/// Where downloaded servers are kept: `TWINBOX_CACHE`, else `twinbox` below `XDG_CACHE_HOME` or `~/.cache`.
///
/// # Errors
///
/// When none of the three variables (the last is `HOME`) is set. The folder itself need not exist.
pub fn cache() -> Result<PathBuf, ServerError> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("TWINBOX_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("twinbox")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/twinbox")))
        .ok_or_else(|| ServerError::new("no folder for downloaded servers; set TWINBOX_CACHE"))
}

/// The file that a variable names, if it is set.
fn in_environment(variable: &str) -> Option<Result<PathBuf, ServerError>> {
    let path = env::var_os(variable).map(PathBuf::from)?;
    Some(match path.is_file() {
        true => Ok(path),
        false => Err(ServerError::new(format!("{variable}: no file {}", path.display()))),
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
    ServerError::new(format!("{problem}; run `cargo xtask services up`, or set {variable}"))
}
