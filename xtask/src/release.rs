//! The packages of a release, made and tried without publishing anything.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo::cargo;
use crate::error::Result;

/// The steps by hand after a dry run that has passed.
const TO_PUBLISH: &str = "\
To release:
  1. .ci/run, and cargo xtask test --long
  2. date the section in crates/twinbox/CHANGELOG.md, set `version` in Cargo.toml, commit, and tag
  3. cargo publish --workspace --locked";

/// Makes all packages and a configuration with which an application builds them instead of published ones.
/// Returns whether every step passed.
pub(crate) fn dry_run() -> Result<bool> {
    let root = root()?;
    let crates = published(&root)?;
    let mut package = cargo();
    // The application that tries them in the tests of whole length compiles each package.
    package.args(["package", "--no-verify", "--allow-dirty", "--locked", "--quiet"]);
    crates.iter().for_each(|name| _ = package.args(["--package", name]));
    if !package.status()?.success() {
        return Ok(false);
    }
    let version = version(&root)?;
    let folder = target(&root).join("packages");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let mut patches = String::from("[patch.crates-io]\n");
    for name in &crates {
        let archive = target(&root).join(format!("package/{name}-{version}.crate"));
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
    println!("{TO_PUBLISH}");
    Ok(true)
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
