//! The project's own commands, run as `cargo xtask`.

use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

mod ci;
mod group;
mod install;
mod services;
mod test;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const USAGE: &str = "\
cargo xtask services up         install and start Postgres and NATS; prints the environment to `eval`
cargo xtask services down       stop them and delete their data
cargo xtask services status     what runs
cargo xtask test [AREA] [-- …]  all tests, or those of one area of integration-tests, with private servers
cargo xtask bench NAME [ARGS]   one benchmark, with private servers
cargo xtask ci                  everything that must hold before a merge";

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    // Servers are stopped when `run` returns, so nothing may exit the process before that.
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprint!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprint!(": {cause}");
                source = cause.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<bool> {
    match args {
        ["services", "up"] => services::up().map(|()| true),
        ["services", "down"] => services::down().map(|()| true),
        ["services", "status"] => services::status().map(|()| true),
        ["test", rest @ ..] => {
            let outcome = match rest {
                ["--", extra @ ..] => test::run(None, extra)?,
                [area] => test::run(Some(area), &[])?,
                [area, "--", extra @ ..] => test::run(Some(area), extra)?,
                [] => test::run(None, &[])?,
                _ => return Err(USAGE.into()),
            };
            println!("{outcome}");
            Ok(outcome.ok())
        }
        ["bench", name, extra @ ..] => bench(name, extra),
        ["ci"] => ci::run(),
        _ => Err(USAGE.into()),
    }
}

fn bench(name: &str, extra: &[&str]) -> Result<bool> {
    let services = services::Services::start(&[])?;
    // Built together, so that the program is the one that is measured.
    let mut build = cargo();
    build.args([
        "build",
        "--release",
        "-q",
        "-p",
        "twinbox-bench",
        "-p",
        "twinbox-relay",
        "-p",
        "twinbox-cli",
    ]);
    if !group::Group::spawn(&mut build)?.wait()?.success() {
        return Ok(false);
    }
    let profiles = env::current_exe()?.parent().and_then(Path::parent).map(PathBuf::from);
    let profiles = profiles.ok_or("xtask runs from cargo's target folder")?;
    let mut command = Command::new(profiles.join("release/twinbox-bench"));
    command.arg(name).args(extra);
    Ok(group::Group::spawn(command.envs(services.env()))?.wait()?.success())
}

/// Cargo, in the workspace's folder.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    if let Some(own) = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) {
        command.current_dir(own.parent().expect("xtask is a folder of the workspace"));
    }
    command
}
