//! Runs the tests on private servers and adds up the results that cargo prints.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::Stdio;
use std::{env, fmt, fs, process, thread};

use crate::cargo::cargo;
use crate::error::Result;
use crate::group::Group;
use crate::services::{Fsync, Services};

/// The variable for the number of tests that run at the same time. A value in the environment is kept.
const THREADS: &str = "RUST_TEST_THREADS";

/// The results of all tests. Its text is the summary line.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Outcome {
    pub(crate) fn ok(&self) -> bool {
        self.failed == 0
    }

    /// Adds the counts of a line `test result: ok. 3 passed; 0 failed; 1 ignored; …`. Ignores other lines.
    fn add_line(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        for count in counts.split(['.', ';']) {
            match *count.split_whitespace().collect::<Vec<_>>() {
                [n, "passed"] => self.passed += n.parse().unwrap_or(0),
                [n, "failed"] => self.failed += n.parse().unwrap_or(0),
                [n, "ignored"] => self.skipped += n.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Runs all tests of the workspace, or one area of `integration-tests`, with `env` added to the environment.
/// `extra` goes to the test binaries.
pub(crate) fn run(env: &[(&str, &str)], area: Option<&str>, extra: &[&str]) -> Result<Outcome> {
    // These servers never crash. Tests that crash a server start their own.
    let services = Services::start(Fsync::Off)?;
    let skipped = SkippedFile::new()?;
    let mut command = cargo();
    command.args(["test", "--no-fail-fast", "--all-features"]);
    match area {
        Some(area) => command.args(["-p", "integration-tests", area]),
        None => command.arg("--workspace"),
    };
    if !extra.is_empty() {
        command.arg("--").args(extra);
    }
    command.envs(services.env()).envs(env.iter().copied()).env("TWINBOX_SKIPPED", &skipped.0);
    if env::var_os(THREADS).is_none() {
        // Tests wait for servers, leases and processes more than they compute.
        let cores = thread::available_parallelism().map_or(2, NonZero::get);
        command.env(THREADS, (cores + cores.div_ceil(2)).to_string());
    }
    let mut tests = Group::spawn(command.stdout(Stdio::piped()))?;
    let mut outcome = Outcome::default();
    let stdout = tests.stdout().expect("stdout was piped above");
    let copied = copy_lines(stdout, io::stdout(), |line| outcome.add_line(line));
    let status = tests.wait()?;
    copied?;

    for reason in skipped.reasons()? {
        println!("SKIPPED: {reason}");
        // Cargo cannot skip a test at run time, so it counted this one as passed.
        outcome.passed = outcome.passed.saturating_sub(1);
        outcome.skipped += 1;
    }
    if !status.success() && outcome.failed == 0 {
        println!("cargo test failed ({status}) before all tests had reported; this counts as one failure");
        outcome.failed = 1;
    }
    if let (Some(area), Outcome { passed: 0, failed: 0, skipped: 0 }) = (area, &outcome) {
        return Err(format!("no test of integration-tests matches {area:?}").into());
    }
    Ok(outcome)
}

/// The file to which a test that cannot run on this machine writes its reason, one line each.
struct SkippedFile(PathBuf);

impl SkippedFile {
    fn new() -> Result<Self> {
        let path = env::current_exe()?.with_file_name(format!("skipped-{}", process::id()));
        fs::write(&path, "")?;
        Ok(Self(path))
    }

    fn reasons(&self) -> Result<Vec<String>> {
        Ok(fs::read_to_string(&self.0)?.lines().map(str::to_owned).collect())
    }
}

impl Drop for SkippedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Copies bytes as they arrive, also parts of lines, and calls `each` with every complete line.
fn copy_lines(from: impl Read, mut to: impl Write, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        let chunk = from.fill_buf()?;
        let length = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None => chunk.len(),
        };
        if length == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..length])?;
        to.flush()?;
        line.extend_from_slice(&chunk[..length]);
        from.consume(length);
        if line.ends_with(b"\n") {
            each(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_summed() {
        let mut outcome = Outcome::default();
        let text = "running 3 tests\ntest a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 5 filtered out; finished in 0.00s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        copy_lines(text.as_bytes(), io::sink(), |line| outcome.add_line(line)).unwrap();
        assert_eq!(outcome, Outcome { passed: 13, failed: 2, skipped: 1 });
        assert_eq!(outcome.to_string(), "13 passed, 2 failed, 1 skipped");
        assert!(!outcome.ok());
    }
}
