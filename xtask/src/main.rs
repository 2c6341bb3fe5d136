//! The commands of this project: `cargo xtask`.

use std::env;
use std::process::ExitCode;

mod bench;
mod cargo;
mod ci;
mod download;
mod error;
mod group;
mod install;
mod release;
mod services;
mod test;

use error::Result;

const USAGE: &str = "\
cargo xtask services up         start Postgres, MariaDB and NATS, and print variables for `eval`
cargo xtask services down       stop the servers and delete their data
cargo xtask services status     list the running servers
cargo xtask test [AREA] [-- …]  run all tests, or one area of integration-tests, on private servers
cargo xtask test --one-by-one […] the same with streams that take no batches
cargo xtask bench NAME [ARGS]   run one benchmark on private servers
cargo xtask release --dry-run   make the packages of a release, and publish nothing
cargo xtask ci                  run all checks that a merge needs";

/// The variable by which tests create streams that take no batches.
const ONE_BY_ONE: (&str, &str) = ("TWINBOX_TEST_ONE_BY_ONE", "1");

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    // The servers stop when `run` returns. Nothing may exit the process before that.
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
            let (env, rest): (&[_], _) = match rest {
                ["--one-by-one", rest @ ..] => (&[ONE_BY_ONE], rest),
                rest => (&[], rest),
            };
            let outcome = match rest {
                ["--", extra @ ..] => test::run(env, None, extra)?,
                [area] => test::run(env, Some(area), &[])?,
                [area, "--", extra @ ..] => test::run(env, Some(area), extra)?,
                [] => test::run(env, None, &[])?,
                _ => return Err(USAGE.into()),
            };
            println!("{outcome}");
            Ok(outcome.ok())
        }
        ["bench", name, extra @ ..] => bench::run(name, extra),
        ["release", "--dry-run"] => release::dry_run(),
        ["ci"] => ci::run(),
        _ => Err(USAGE.into()),
    }
}
