//! The packages of a release, made without publishing anything.

mod gate;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::cargo;
use crate::error::Result;
use gate::Gate;

/// The steps before a release, after a dry run that has passed.
const TO_RELEASE: &str = "\
To release:
  1. .ci/run, and cargo xtask test --long
  2. date the section in crates/twinbox/CHANGELOG.md, set `version` in Cargo.toml, and commit
  3. cargo xtask release";

/// The steps by hand after a release that was not refused.
const TO_PUBLISH: &str = "\
To publish, as \"Release\" in CONTRIBUTING.md says:
  1. sign a tag whose message is target/packages/SHA256SUMS
  2. cargo publish --workspace --locked
  3. build the image from the tag, and sign its digest";

/// Refuses a release that lacks something. Otherwise makes the packages and their checksums, and prints the
/// steps to publish them. Returns whether every step passed.
pub(crate) fn run() -> Result<bool> {
    let root = root()?;
    let gate = gate(&root);
    let missing = gate.missing()?;
    if !missing.is_empty() {
        missing.iter().for_each(|what| println!("refused: {what}"));
        return Ok(false);
    }
    if !gate.check_dependencies()? {
        println!("refused: the dependencies do not pass cargo-deny");
        return Ok(false);
    }
    // Cargo refuses files that are not committed.
    if !make_packages(&root, &[])? {
        return Ok(false);
    }
    write_checksums(&root)?;
    println!("{TO_PUBLISH}");
    Ok(true)
}

/// Makes the packages, and tells what a release would lack. Returns whether every step passed.
pub(crate) fn dry_run() -> Result<bool> {
    let root = root()?;
    gate(&root).missing()?.iter().for_each(|what| println!("skipped: {what}; a release is refused"));
    let has_passed = make_packages(&root, &["--allow-dirty"])?;
    if has_passed {
        println!("{TO_RELEASE}");
    }
    Ok(has_passed)
}

fn gate(root: &Path) -> Gate {
    Gate {
        root: root.to_owned(),
        databases: target(root).join("advisories-of-release"),
        advisories: env::var_os("TWINBOX_ADVISORIES").map(PathBuf::from),
        cargo: Box::new(cargo),
    }
}

/// Makes all packages and a configuration with which an application builds them instead of published ones.
fn make_packages(root: &Path, arguments: &[&str]) -> Result<bool> {
    let crates = published(root)?;
    let mut package = cargo();
    // The application that tries them in the tests of whole length compiles each package.
    package.args(["package", "--no-verify", "--locked", "--quiet"]).args(arguments);
    crates.iter().for_each(|name| _ = package.args(["--package", name]));
    if !package.status()?.success() {
        return Ok(false);
    }
    let version = version(root)?;
    let folder = target(root).join("packages");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let mut patches = String::from("[patch.crates-io]\n");
    for name in &crates {
        let archive = target(root).join(format!("package/{name}-{version}.crate"));
        let mut unpack = Command::new("tar");
        unpack.arg("-xzf").arg(&archive).arg("-C").arg(&folder);
        if !unpack.status()?.success() {
            return Err(format!("{} cannot be unpacked", archive.display()).into());
        }
        let unpacked = folder.join(format!("{name}-{version}"));
        patches += &format!("{name} = {{ path = {:?} }}\n", unpacked.display().to_string());
    }
    let config = folder.join("config.toml");
    fs::write(&config, patches)?;
    if !semver_checks()? {
        return Ok(false);
    }
    println!("{} packages of version {version} are in {}", crates.len(), folder.display());
    println!("An application builds with them by: cargo --config {} build", config.display());
    Ok(true)
}

fn write_checksums(root: &Path) -> Result<()> {
    let (target, version) = (target(root), version(root)?);
    let mut sums = Command::new("sha256sum");
    sums.current_dir(target.join("package"));
    published(root)?.iter().for_each(|name| _ = sums.arg(format!("{name}-{version}.crate")));
    let sums = sums.stderr(Stdio::inherit()).output()?;
    if !sums.status.success() {
        return Err("sha256sum cannot read the packages".into());
    }
    fs::write(target.join("packages/SHA256SUMS"), sums.stdout)?;
    Ok(())
}

/// Compares the public API with that of the last release, once there is one.
fn semver_checks() -> Result<bool> {
    let mut installed = cargo();
    installed.args(["semver-checks", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !installed.status().is_ok_and(|status| status.success()) {
        println!(
            "skipped: cargo-semver-checks is not installed (cargo install --locked cargo-semver-checks)"
        );
        return Ok(true);
    }
    let mut published = cargo();
    published
        .args(["info", "--registry", "crates-io", "twinbox"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !published.status()?.success() {
        println!("skipped: nothing is published yet that the API could be compared with");
        return Ok(true);
    }
    let mut checks = cargo();
    checks.args(["semver-checks", "--workspace"]);
    Ok(checks.status()?.success())
}

fn root() -> Result<PathBuf> {
    let own = env::var_os("CARGO_MANIFEST_DIR").ok_or("run this as `cargo xtask`")?;
    Ok(Path::new(&own).parent().ok_or("xtask lies in the workspace")?.to_owned())
}

fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// The names of the packages in `crates/`, all of which are published.
fn published(root: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join("crates"))? {
        names.push(entry?.file_name().into_string().map_err(|_| "a crate has no readable name")?);
    }
    names.sort();
    Ok(names)
}

/// The version that all packages share.
fn version(root: &Path) -> Result<String> {
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("version = "));
    Ok(line.ok_or("Cargo.toml has no version")?.trim_matches('"').to_owned())
}
