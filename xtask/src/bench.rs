//! Runs one benchmark.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::error::Result;
use crate::group::Group;
use crate::services::{Fsync, Servers, Services};

/// Builds the benchmarks and the measured programs, then runs the benchmark `name`.
///
/// Returns whether both succeeded.
pub(crate) fn run(name: &str, extra: &[&str]) -> Result<bool> {
    let services = Services::start(Servers::All, Fsync::On)?;
    // The programs are built in the same command, so that the benchmark measures the current code.
    let mut build = cargo();
    build.args(["build", "--release", "-q"]);
    build.args(["-p", "twinbox-bench", "-p", "twinbox-relay", "-p", "twinbox-cli"]);
    if !Group::spawn(&mut build)?.wait()?.success() {
        return Ok(false);
    }
    let profiles = env::current_exe()?.parent().and_then(Path::parent).map(PathBuf::from);
    let profiles = profiles.ok_or("xtask does not run from cargo's target folder")?;
    let mut command = Command::new(profiles.join("release/twinbox-bench"));
    command.arg(name).args(extra);
    Ok(Group::spawn(command.envs(services.env()))?.wait()?.success())
}
