//! No application compiles a package with an open advisory, by a snapshot of RustSec's database.
use super::dependencies::{APPLICATION, needed_versions};
use semver::{Version, VersionReq};
use serde::Deserialize;
use std::{fs, path::Path};
use twinbox_testkit::skipped;

/// The block at the head of a file of the database.
#[derive(Deserialize)]
struct Entry {
    advisory: Advisory,
    #[serde(default)]
    versions: Versions,
}

#[derive(Deserialize)]
struct Advisory {
    id: String,
    package: String,
    /// The day on which it was taken back.
    withdrawn: Option<String>,
}

#[derive(Default, Deserialize)]
struct Versions {
    #[serde(default)]
    patched: Vec<VersionReq>,
    #[serde(default)]
    unaffected: Vec<VersionReq>,
}

impl Entry {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).unwrap();
        let head = text.split("```toml").nth(1).and_then(|rest| rest.split("```").next());
        toml::from_str(head.expect("a block of TOML")).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
    }

    fn concerns(&self, version: &Version) -> bool {
        let Versions { patched, unaffected } = &self.versions;
        self.advisory.withdrawn.is_none()
            && !patched.iter().chain(unaffected).any(|versions| versions.matches(version))
    }
}

/// The advisories about a package.
fn entries(database: &Path, package: &str) -> Vec<Entry> {
    let Ok(folder) = fs::read_dir(database.join("crates").join(package)) else { return Vec::new() };
    folder.map(|file| Entry::read(&file.unwrap().path())).collect()
}

#[test]
fn no_application_compiles_a_package_with_an_open_advisory() {
    let Some(database) = std::env::var_os("TWINBOX_ADVISORIES") else {
        return skipped("advisories: TWINBOX_ADVISORIES names no checkout of RustSec's advisory-db");
    };
    let database = Path::new(&database);
    // A package of the relay's program alone.
    let known = entries(database, "backoff");
    assert!(known.iter().any(|entry| entry.concerns(&Version::new(0, 4, 0))), "an empty database");
    let (mut read, mut open) = (0, Vec::new());
    for features in [APPLICATION, "consumer,sqlite", "postgres"] {
        for (package, version) in needed_versions(features) {
            let entries = entries(database, &package);
            read += entries.len();
            let version = version.parse().unwrap();
            for entry in entries.iter().filter(|entry| entry.concerns(&version)) {
                open.push(format!("{}: {package} {version}", entry.advisory.id));
                assert_eq!(entry.advisory.package, package);
            }
        }
    }
    println!("{read} advisories read");
    assert!(read > 10 && open.is_empty(), "{open:#?}");
}
