//! Runs the tests on private servers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{env, fs, process, thread};

use crate::cargo::cargo;
use crate::error::Result;
use crate::focus::Focus;
use crate::group::Group;
use crate::results::{Outcome, Results};
use crate::services::{Servers, Services};
use crate::table::Table;
use crate::versions::{Server, Versions};

/// The variable for the number of tests that run at the same time. A value in the environment is kept.
const THREADS: &str = "RUST_TEST_THREADS";
/// The variable by which tests create streams that take no batches.
const ONE_BY_ONE: &str = "TWINBOX_TEST_ONE_BY_ONE";
/// The variable by which tests run in their whole length.
const LONG: &str = "TWINBOX_TEST_LONG";
/// With three the processor is hardly busier, and a test can wait for minutes.
const TESTS_PER_CORE: usize = 2;
/// The test programs with areas, and their lists of them. An area of both is in the first, unless that is not
/// built.
const AREAS: [(&str, &str); 2] = [
    ("programs", include_str!("../../integration-tests/tests/it/programs.rs")),
    ("it", include_str!("../../integration-tests/tests/it/main.rs")),
];
/// Work of normal priority that takes one core.
const BUSY: [&str; 2] = ["-c", "while :; do :; done"];

/// Which tests to run, and how.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Options<'a> {
    /// Only tests of `integration-tests` whose names contain this word.
    pub(crate) area: Option<&'a str>,
    /// Only those of one database.
    pub(crate) focus: Option<Focus>,
    /// On these versions of the databases.
    pub(crate) versions: Versions<'a>,
    /// Arguments of the test programs, such as further words.
    pub(crate) extra: &'a [&'a str],
    /// With streams that take no batches.
    pub(crate) one_by_one: bool,
    /// In their whole length.
    pub(crate) long: bool,
    /// How often. Zero is once.
    pub(crate) repeat: u32,
    /// Beside other work that takes all cores.
    pub(crate) busy: bool,
}

impl<'a> Options<'a> {
    /// Reads the arguments behind `test`. None: they are not understood.
    pub(crate) fn parse(mut args: &'a [&'a str]) -> Option<Self> {
        let mut options = Self::default();
        loop {
            args = match args {
                [] => return Some(options),
                ["--", extra @ ..] => return Some(Self { extra, ..options }),
                ["--one-by-one", rest @ ..] => {
                    options.one_by_one = true;
                    rest
                }
                ["--long", rest @ ..] => {
                    options.long = true;
                    rest
                }
                ["--busy", rest @ ..] => {
                    options.busy = true;
                    rest
                }
                ["--only", database, area, rest @ ..] if options.area.is_none() => {
                    options.focus = Some(Focus::named(database)?);
                    options.area = Some(area);
                    rest
                }
                ["--postgres", line, rest @ ..] => {
                    options.versions.postgres = Some(line);
                    rest
                }
                [product @ ("--mysql" | "--mariadb"), line, rest @ ..] => {
                    let server = if *product == "--mysql" { Server::MySql } else { Server::MariaDb };
                    options.versions.mysql = Some(server(line));
                    rest
                }
                ["--repeat", times, rest @ ..] => {
                    options.repeat = times.parse().ok()?;
                    rest
                }
                [area, rest @ ..] if !area.starts_with('-') && options.area.is_none() => {
                    options.area = Some(area);
                    rest
                }
                _ => return None,
            }
        }
    }
}

/// Builds and runs the tests.
///
/// # Errors
/// No test has the name, or the servers do not start.
pub(crate) fn run(options: Options<'_>, table: &mut Table) -> Result<Results> {
    let mut build = programs(options);
    if !table.step("compile tests", || Group::spawn(build.arg("--no-run"))?.wait())?.success() {
        return Ok(Results::of_failure("the tests do not compile"));
    }
    // These servers never crash. Tests that crash a server start their own.
    let servers = options.focus.map_or(Servers::All, Focus::servers);
    let services = table.step("start servers", || Services::start_strict(servers, options.versions))?;
    let run = Run { options, services, threads: threads() };
    let _busy = options.busy.then(other_work).transpose()?;
    let mut results = Results::default();
    for _ in 0..options.repeat.max(1) {
        results.add(table.step("run tests", || run.all())?);
    }
    match options.area {
        Some(area) if results.outcome == Outcome::default() => {
            let all =
                options.focus.map_or("", |_| ": `cargo xtask test` with the word alone builds all tests");
            Err(format!("no test of this build matches {area:?}{all}").into())
        }
        _ => Ok(results),
    }
}

/// The command that builds and runs test programs. All share the features of the whole workspace, so that
/// nothing is compiled twice.
fn programs(options: Options<'_>) -> Command {
    if let (Some(focus), Some(area)) = (options.focus, options.area) {
        return focus.tests(area);
    }
    let mut command = cargo();
    command.args(["test", "--workspace", "--all-features"]);
    match options.area {
        Some(area) => {
            programs_with(area).into_iter().for_each(|program| _ = command.args(["--test", program]));
            command.arg(area)
        }
        None => command.arg("--tests"),
    };
    command
}

/// The test programs in which an area can be: the one with the module of its name, or all.
fn programs_with(area: &str) -> Vec<&'static str> {
    let module = area.split("::").next().unwrap_or(area);
    let has = |(_, text): &&(&str, &str)| text.contains(&format!("\nmod {module};"));
    match AREAS.iter().find(has) {
        Some((program, _)) if area != module || !is_part_of_an_area(module) => vec![program],
        _ => AREAS.iter().map(|(program, _)| *program).collect(),
    }
}

/// Whether `integration-tests` has an area of this name.
pub(crate) fn is_area(name: &str) -> bool {
    AREAS.iter().any(|(_, text)| text.contains(&format!("\nmod {name};")))
}

/// Whether another area has a part of this name, as `consumer` has `faults`.
fn is_part_of_an_area(name: &str) -> bool {
    let areas = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../integration-tests/tests/it"));
    let areas = areas.into_iter().flatten().flatten().filter(|area| area.file_name() != "support");
    areas.map(|area| area.path().join(name).with_extension("rs")).any(|part| part.exists())
}

/// How many tests run at the same time. They wait for servers, leases and processes more than they compute.
fn threads() -> usize {
    let given = env::var(THREADS).ok().and_then(|threads| threads.parse().ok());
    let cores = thread::available_parallelism().map_or(2, NonZero::get);
    given.unwrap_or(TESTS_PER_CORE * cores)
}

/// Starts other work on each core, which ends when the values are dropped.
fn other_work() -> Result<Vec<Group>> {
    let cores = thread::available_parallelism().map_or(2, NonZero::get);
    (0..cores).map(|_| Group::spawn(Command::new("sh").args(BUSY))).collect()
}

/// The servers and settings of all test programs of a run.
struct Run<'a> {
    options: Options<'a>,
    services: Services,
    threads: usize,
}

impl Run<'_> {
    /// Runs the test programs, and the tests of documents beside them.
    fn all(&self) -> Result<Results> {
        let mut tests = programs(self.options);
        tests.arg("--no-fail-fast").arg("--").args(self.options.extra);
        if self.options.area.is_some() {
            return self.results("tests", &mut tests);
        }
        let mut documents = cargo();
        documents.args(["test", "--workspace", "--all-features", "--doc", "--no-fail-fast"]);
        documents.arg("--").args(self.options.extra);
        thread::scope(|scope| {
            let documents =
                scope.spawn(|| self.results("documents", &mut documents).map_err(|e| e.to_string()));
            let mut results = self.results("tests", &mut tests)?;
            results.add(documents.join().map_err(|_| "the tests of documents panicked")??);
            Ok(results)
        })
    }

    /// Runs a command of cargo to its end, and copies what it prints.
    fn results(&self, name: &str, command: &mut Command) -> Result<Results> {
        let skipped = SkippedFile::new(name)?;
        command.envs(self.services.env()).env("TWINBOX_SKIPPED", &skipped.0);
        command.env(THREADS, self.threads.to_string());
        for (variable, is_set) in [(ONE_BY_ONE, self.options.one_by_one), (LONG, self.options.long)] {
            if is_set {
                command.env(variable, "1");
            }
        }
        let mut tests = Group::spawn(command.stdout(Stdio::piped()))?;
        let mut results = Results::default();
        let stdout = tests.stdout().expect("stdout was piped above");
        let start = Instant::now();
        let copied = copy_lines(stdout, io::stdout(), |line| {
            results.add_line(line, start.elapsed(), self.threads);
        });
        let status = tests.wait()?;
        copied?;
        for (test, reason) in skipped.tests()? {
            println!("SKIPPED: {reason}");
            results.skip(&test);
        }
        if !status.success() && results.outcome.ok() {
            results.add(Results::of_failure("cargo failed before all tests had reported"));
        }
        Ok(results)
    }
}

/// The file to which a test that cannot run on this machine writes its name and the reason, one line each.
struct SkippedFile(PathBuf);

impl SkippedFile {
    fn new(name: &str) -> Result<Self> {
        let path = env::current_exe()?.with_file_name(format!("skipped-{name}-{}", process::id()));
        fs::write(&path, "")?;
        Ok(Self(path))
    }

    fn tests(&self) -> Result<Vec<(String, String)>> {
        let read = |line: &str| {
            let (test, reason) = line.split_once('\t').unwrap_or(("", line));
            (test.to_owned(), reason.to_owned())
        };
        Ok(fs::read_to_string(&self.0)?.lines().map(read).collect())
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
    fn words_behind_test_are_options_a_name_and_arguments_of_the_programs() {
        let options =
            Options::parse(&["--long", "--repeat", "5", "--busy", "relay", "--", "row_11"]).unwrap();
        assert!(options.long && options.busy && !options.one_by_one);
        assert_eq!((options.repeat, options.area, options.extra), (5, Some("relay"), &["row_11"][..]));
        let options = Options::parse(&["--only", "postgres", "relay", "--busy"]).unwrap();
        assert_eq!((options.focus, options.area, options.busy), (Some(Focus::Postgres), Some("relay"), true));
        let options = Options::parse(&["--postgres", "18", "--mysql", "9.7", "relay"]).unwrap();
        let versions = Versions { postgres: Some("18"), mysql: Some(Server::MySql("9.7")) };
        assert_eq!((options.versions, options.area), (versions, Some("relay")));
        for wrong in
            [&["--repeat"][..], &["--repeat", "x"], &["a", "b"], &["--unknown"], &["--only", "x", "y"]]
        {
            assert!(Options::parse(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn an_area_is_in_the_program_that_lists_it() {
        assert_eq!(programs_with("consumer::ordered"), ["it"]);
        assert_eq!(programs_with("relay"), ["programs"]);
        for in_several in ["row_11", "faults"] {
            assert_eq!(programs_with(in_several), ["programs", "it"]);
        }
    }

    #[test]
    fn all_lines_are_copied_and_read() {
        let (mut copy, mut lines) = (Vec::new(), Vec::new());
        copy_lines("a\nb\nc".as_bytes(), &mut copy, |line| lines.push(line.to_owned())).unwrap();
        assert_eq!((copy, lines), (b"a\nb\nc".to_vec(), vec!["a\n".to_owned(), "b\n".to_owned()]));
    }
}
