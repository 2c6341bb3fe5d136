//! Runs the tests on each server that Twinbox supports, and writes the page of the book that says so.

mod page;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fmt, fs};

use crate::error::Result;
use crate::results::Results;
use crate::table::Table;
use crate::test::{self, Options};
use crate::versions::{self, Server, Versions};
use page::{Column, Page};

/// Tests of two databases run beside each other, and those of SQLite beside the first.
const RUNS: [Versions<'static>; 5] = [
    Versions { postgres: Some("14"), mysql: Some(Server::MariaDb("10.11")) },
    Versions { postgres: Some("15"), mysql: Some(Server::MariaDb("11.8")) },
    Versions { postgres: Some("16"), mysql: Some(Server::MySql("9.7")) },
    Versions { postgres: Some("17"), mysql: None },
    Versions { postgres: Some("18"), mysql: None },
];

/// Words in the names of tests of MySQL.
const OF_MYSQL: [&str; 3] = ["mysql", "mariadb", "log::holes"];
/// The page of the book, from the root of the workspace.
const PAGE: &str = "docs/src/matrix.md";

/// The tests of an area on one server.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Cell {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Runs all tests on the servers of these lines, such as 18 or 10.11, or on all, and writes what became of
/// them into the book after each run.
pub(crate) fn run(lines: &[&str]) -> Result<bool> {
    let is_wanted = |run: &&Versions<'_>| lines.is_empty() || lines.iter().any(|line| has_line(run, line));
    if let Some(unknown) = lines.iter().find(|line| !RUNS.iter().any(|run| has_line(run, line))) {
        return Err(format!("no run has a server of the line {unknown}: {RUNS:?}").into());
    }
    let commit = commit()?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let mut all = Results::default();
    for versions in RUNS.iter().filter(is_wanted) {
        let skipped: &[&str] = match versions.mysql {
            _ if *versions == RUNS[0] => &[],
            Some(_) => &["--skip", "sqlite"],
            None => &["--skip", "sqlite", "--skip", "mysql", "--skip", "mariadb", "--skip", "log::holes"],
        };
        let mut table = Table::default();
        let options = Options { versions: *versions, extra: skipped, ..Options::default() };
        let results = test::run(options, &mut table)?;
        println!("{}", table.text(&results.durations));
        if !results.is_complete() {
            println!("not written: not all tests have reported");
            all.add(results);
            continue;
        }
        let mut page = Page::read(&fs::read_to_string(&path)?);
        for column in columns(&names(versions)?, &results, &commit) {
            page.put(column);
        }
        fs::write(&path, page.to_string())?;
        println!("written: {PAGE}");
        all.add(results);
    }
    Ok(all.print())
}

fn has_line(run: &Versions<'_>, line: &str) -> bool {
    let of_mysql = match run.mysql {
        Some(Server::MySql(line) | Server::MariaDb(line)) => Some(line),
        None => None,
    };
    [run.postgres, of_mysql].contains(&Some(line))
}

/// The day of today and the commit that is run.
fn commit() -> Result<String> {
    let said = |program: &str, args: &[&str]| -> Result<String> {
        let output = Command::new(program).args(args).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let is_changed = !said("git", &["status", "--porcelain", "--", ".", &format!(":!{PAGE}")])?.is_empty();
    let hash = said("git", &["rev-parse", "--short=8", "HEAD"])?;
    let changed = if is_changed { " and changes" } else { "" };
    Ok(format!("{} {hash}{changed}", said("date", &["-u", "+%F"])?))
}

/// The servers of a run.
struct Names {
    postgres: String,
    mysql: String,
}

/// The exact versions: servers move under us.
fn names(versions: &Versions<'_>) -> Result<Names> {
    let postgres = versions.postgres.map(versions::postgres).transpose()?;
    let mysql = versions.mysql.map(versions::mysql).transpose()?;
    Ok(Names {
        postgres: postgres.map_or(Ok("?".to_owned()), |bin| version_of(&bin.join("postgres")))?,
        mysql: mysql.map_or(Ok("?".to_owned()), |bin| match bin.join("mariadbd") {
            mariadbd if mariadbd.exists() => version_of(&mariadbd),
            _ => version_of(&bin.join("mysqld")),
        })?,
    })
}

impl Names {
    /// The server of a test: the database in its name, or else Postgres.
    fn of_test(&self, test: &str) -> &str {
        match test {
            test if test.contains("sqlite") => "SQLite",
            test if OF_MYSQL.iter().any(|word| test.contains(word)) => &self.mysql,
            _ => &self.postgres,
        }
    }
}

/// Returns a column for each server. A unit test counts for an area if its module has the name of one.
fn columns(names: &Names, results: &Results, commit: &str) -> Vec<Column> {
    let mut servers: BTreeMap<&str, BTreeMap<&str, Cell>> = BTreeMap::new();
    for test in results.durations.keys() {
        let area = test.split("::").next().filter(|area| test::is_area(area)).unwrap_or("unit tests");
        let cells = servers.entry(names.of_test(test)).or_default();
        for row in [area, "all"] {
            let cell = cells.entry(row).or_default();
            match test {
                test if results.has_failed(test) => cell.failed += 1,
                test if results.was_skipped(test) => cell.skipped += 1,
                _ => cell.passed += 1,
            }
        }
    }
    let column = |(server, cells): (&str, BTreeMap<&str, Cell>)| Column {
        server: server.to_owned(),
        commit: commit.to_owned(),
        cells: cells.into_iter().map(|(area, cell)| (area.to_owned(), cell.to_string())).collect(),
    };
    servers.into_iter().map(column).collect()
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.passed)?;
        for (count, what) in [(self.failed, "failed"), (self.skipped, "skipped")] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// Reads `postgres (PostgreSQL) 18.4` or `mysqld  Ver 9.7.4-2 for Linux`.
fn version_of(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(read_version(&text).ok_or_else(|| format!("{} does not say its version", program.display()))?)
}

fn read_version(text: &str) -> Option<String> {
    let version = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    let number = version.split('-').next()?;
    Some(match text {
        text if text.contains("PostgreSQL") => format!("Postgres {number}"),
        text if text.contains("MariaDB") => format!("MariaDB {number}"),
        _ => format!("MySQL {number}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn servers_say_their_versions() {
        let texts = [
            "postgres (PostgreSQL) 18.4",
            "/x/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))",
            "mariadbd  Ver 11.8.9-MariaDB-4 from Debian for debian-linux-gnu on x86_64",
        ];
        let versions = ["Postgres 18.4", "MySQL 9.7.4", "MariaDB 11.8.9"];
        assert_eq!(texts.map(read_version), versions.map(|version| Some(version.to_owned())));
    }

    #[test]
    fn tests_are_counted_by_area_and_server() {
        let text = "running 4 tests\n\
            test log::mysql::x ... ok\n\
            test log::y ... FAILED\n\
            test log::y_on_sqlite ... ok\n\
            test b::z ... ok\n\
            test result: FAILED. 3 passed; 1 failed; 0 ignored\n";
        let mut results = Results::default();
        text.lines().for_each(|line| results.add_line(line, Duration::ZERO, 1));
        results.skip("b::z");
        let names = Names { postgres: "Postgres 18.4".to_owned(), mysql: "MySQL 9.7.4".to_owned() };
        let said = columns(&names, &results, "2026-11-30 abc").into_iter().map(|column| {
            let cells = column.cells.into_iter().map(|(area, cell)| format!("{area}: {cell}"));
            (column.server, Vec::from_iter(cells).join("; "))
        });
        let expected = [
            ("MySQL 9.7.4", "all: 1; log: 1"),
            ("Postgres 18.4", "all: 0, 1 failed, 1 skipped; log: 0, 1 failed; unit tests: 0, 1 skipped"),
            ("SQLite", "all: 1; log: 1"),
        ];
        assert_eq!(
            Vec::from_iter(said),
            expected.map(|(server, cells)| (server.to_owned(), cells.to_owned()))
        );
    }

    #[test]
    fn a_line_selects_the_runs_that_have_it() {
        let runs = |line: &str| RUNS.iter().filter(|run| has_line(run, line)).count();
        assert_eq!(["14", "9.7", "11.8", "13"].map(runs), [1, 1, 1, 0]);
    }
}
