//! What a release needs before its packages are made: dependencies without open advisories, and base images
//! that nobody can exchange.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::cargo::{NO_DENY, has_deny};
use crate::error::Result;

/// How old the newest commit of the database of advisories may be.
const AGE_MAX_DAYS: u64 = 7;
const DAY_S: u64 = 24 * 3600;
/// The folder of RustSec's database below `db-path` of `deny.toml`, for cargo-deny 0.18 and later.
const DATABASE: &str = "advisory-db-3157b0e258782691";
const CLONE: &str = "git clone https://github.com/RustSec/advisory-db";
const CONTAINERFILE: &str = "crates/twinbox-relay/container/Containerfile";

/// The tree of a release, and what checks it.
pub(crate) struct Gate {
    pub(crate) root: PathBuf,
    /// Where cargo-deny finds the database.
    pub(crate) databases: PathBuf,
    /// A checkout of RustSec's advisory-db.
    pub(crate) advisories: Option<PathBuf>,
    /// Makes a command of cargo.
    pub(crate) cargo: Box<dyn Fn() -> Command>,
}

impl Gate {
    /// Returns a text for each thing that a release lacks. It says what to do.
    pub(crate) fn missing(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        if !has_deny((self.cargo)()) {
            missing.push(NO_DENY.to_owned());
        }
        missing.extend(self.fault_of_database()?);
        let containerfile = fs::read_to_string(self.root.join(CONTAINERFILE))?;
        let images = base_images(&containerfile).filter(|image| !is_pinned(image));
        missing.extend(images.map(|image| {
            format!("{CONTAINERFILE} names {image} without its digest (the file says how to find it)")
        }));
        Ok(missing)
    }

    fn fault_of_database(&self) -> Result<Option<String>> {
        let Some(database) = &self.advisories else {
            let fault = format!("TWINBOX_ADVISORIES names no checkout of RustSec's advisory-db ({CLONE})");
            return Ok(Some(fault));
        };
        let shown = database.display();
        // Git takes a folder without a repository for a part of one above it.
        if !database.join(".git").exists() || !database.join("crates").is_dir() {
            return Ok(Some(format!("{shown} is no checkout of RustSec's advisory-db ({CLONE})")));
        }
        let mut log = Command::new("git");
        let log = log.arg("-C").arg(database).args(["log", "-1", "--format=%ct"]).output()?;
        let Ok(committed_s) = String::from_utf8_lossy(&log.stdout).trim().parse::<u64>() else {
            let error = String::from_utf8_lossy(&log.stderr);
            return Ok(Some(format!("git finds no commit in {shown}: {}", error.trim())));
        };
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let is_old = now_s.saturating_sub(committed_s) > AGE_MAX_DAYS * DAY_S;
        let fault = || format!("{shown} is older than {AGE_MAX_DAYS} days (git -C {shown} pull)");
        Ok(is_old.then(fault))
    }

    /// Checks all dependencies with that database. Returns whether they pass.
    pub(crate) fn check_dependencies(&self) -> Result<bool> {
        let database = self.advisories.as_ref().ok_or("there is no database of advisories")?;
        let _ = fs::remove_dir_all(&self.databases);
        fs::create_dir_all(&self.databases)?;
        symlink(database.canonicalize()?, self.databases.join(DATABASE))?;
        // `--offline` keeps the database as it is. It also needs the packages of all platforms.
        let mut fetch = (self.cargo)();
        let mut deny = (self.cargo)();
        deny.args(["deny", "--offline", "check", "--hide-inclusion-graph"]);
        deny.args(["advisories", "bans", "licenses", "sources"]).env("TWINBOX_ADVISORY_DBS", &self.databases);
        Ok(fetch.args(["fetch", "--locked", "--quiet"]).status()?.success() && deny.status()?.success())
    }
}

/// The images that a Containerfile starts from, with the defaults of its arguments.
fn base_images(containerfile: &str) -> impl Iterator<Item = String> {
    let instructions =
        move |name: &'static str| containerfile.lines().filter_map(move |line| line.strip_prefix(name));
    let arguments = Vec::from_iter(instructions("ARG ").filter_map(|argument| argument.split_once('=')));
    instructions("FROM ").map(move |from| {
        let image = from.split(' ').next().unwrap_or_default();
        let name = image.strip_prefix("${").and_then(|name| name.strip_suffix('}'));
        let default = arguments.iter().find(|(argument, _)| Some(*argument) == name);
        default.map_or(image, |(_, image)| *image).to_owned()
    })
}

/// Whether an image is named by its content.
fn is_pinned(image: &str) -> bool {
    let digest = image.split_once("@sha256:").map_or("", |(_, digest)| digest);
    digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Answers as cargo with cargo-deny, and writes its calls down.
    const CARGO: &str = r#"
cd "$(dirname "$0")"
echo "$*" >> calls
case "$*" in
    "deny --version") test ! -e no-deny ;;
    "deny --offline "*) test ! -e open && test -d "$TWINBOX_ADVISORY_DBS"/advisory-db-*/crates ;;
esac
"#;

    /// A folder with a tree and a database. It is deleted in the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str, containerfile: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("twinbox-gate-{name}-{}", std::process::id()));
            let file = folder.join(CONTAINERFILE);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, containerfile).unwrap();
            fs::write(folder.join("cargo"), CARGO).unwrap();
            Self(folder)
        }

        fn gate(&self, advisories: Option<&str>) -> Gate {
            let cargo = self.0.join("cargo");
            let command = move || {
                let mut command = Command::new("sh");
                command.arg(&cargo);
                command
            };
            Gate {
                root: self.0.clone(),
                databases: self.0.join("databases"),
                advisories: advisories.map(|name| self.0.join(name)),
                cargo: Box::new(command),
            }
        }

        /// Makes a database whose newest commit has this age.
        fn database(&self, name: &str, days: u64) {
            let database = self.0.join(name);
            fs::create_dir_all(database.join("crates")).unwrap();
            let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let date = format!("@{} +0000", now_s - days * DAY_S - 60);
            let commit = "-c user.name=a -c user.email=a@b commit --quiet --allow-empty -m a";
            for args in ["init --quiet", commit] {
                let mut git = Command::new("git");
                git.args(args.split(' ')).current_dir(&database).env("GIT_CONFIG_GLOBAL", "/dev/null");
                git.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
                assert!(git.status().unwrap().success(), "{args}");
            }
        }

        fn calls(&self) -> String {
            fs::read_to_string(self.0.join("calls")).unwrap_or_default()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pinned() -> String {
        format!("ARG BASE=debian:trixie@sha256:{}\nFROM ${{BASE}}\n", "0a".repeat(32))
    }

    #[test]
    fn a_release_needs_a_database_of_advisories_from_this_week() {
        let folder = Folder::new("database", &pinned());
        fs::create_dir(folder.0.join("empty")).unwrap();
        folder.database("old", 7);
        folder.database("new", 6);
        for (database, expected) in [
            (None, "TWINBOX_ADVISORIES names no checkout"),
            (Some("missing"), "missing is no checkout"),
            (Some("empty"), "empty is no checkout"),
            (Some("old"), "old is older than 7 days (git -C "),
        ] {
            let missing = folder.gate(database).missing().unwrap();
            assert!(missing.len() == 1 && missing[0].contains(expected), "{missing:?}");
        }
        assert_eq!(folder.gate(Some("new")).missing().unwrap(), [""; 0]);
    }

    #[test]
    fn a_release_needs_cargo_deny_and_base_images_by_their_digests() {
        let folder = Folder::new("images", "ARG BASE=debian:trixie\nFROM rust:1 AS build\nFROM ${BASE}\n");
        fs::write(folder.0.join("no-deny"), "").unwrap();
        let missing = folder.gate(None).missing().unwrap();
        let [deny, _, build, base] = &missing[..] else { panic!("{missing:?}") };
        assert!(deny.contains("cargo install --locked cargo-deny"), "{deny}");
        assert!(build.contains("names rust:1 without") && base.contains("names debian:trixie without"));
    }

    #[test]
    fn an_image_is_pinned_by_a_whole_digest() {
        let digest = "0a".repeat(32);
        assert!(is_pinned(&format!("rust:1@sha256:{digest}")));
        for image in [
            "rust:1".to_owned(),
            format!("rust:{digest}"),
            format!("rust@sha256:{}", &digest[1..]),
            format!("rust@sha256:{digest}0"),
            format!("rust@sha256:{}", digest.to_uppercase()),
        ] {
            assert!(!is_pinned(&image), "{image}");
        }
    }

    #[test]
    fn an_advisory_that_is_open_refuses_the_release() {
        let folder = Folder::new("advisory", &pinned());
        folder.database("new", 0);
        let gate = folder.gate(Some("new"));
        assert!(gate.check_dependencies().unwrap());
        // The folder of an earlier run is still there.
        fs::write(folder.0.join("open"), "").unwrap();
        assert!(!gate.check_dependencies().unwrap());
        let checked = "deny --offline check --hide-inclusion-graph advisories bans licenses sources";
        assert_eq!(Vec::from_iter(folder.calls().lines()), ["fetch --locked --quiet", checked].repeat(2));
        assert!(!folder.calls().contains("package"));
    }

    /// Both images of the tree, whether they are pinned already or not.
    #[test]
    fn the_containerfile_has_an_argument_for_each_base_image() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(CONTAINERFILE);
        let images = Vec::from_iter(base_images(&fs::read_to_string(file).unwrap()));
        assert!(images.len() == 2 && images.iter().all(|image| !image.contains('$')), "{images:?}");
    }
}
