//! Runs the tests on each server that Twinbox supports, and says in which versions.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::Command;

use crate::error::Result;
use crate::results::Results;
use crate::table::Table;
use crate::test::{self, Options};
use crate::versions::{self, Server, Versions};

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

/// The tests of an area on one server.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Cell {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Areas by servers.
#[derive(Debug, Default)]
struct Matrix {
    servers: Vec<String>,
    cells: BTreeMap<(String, String), Cell>,
}

/// Runs all tests, and prints a table for the book.
pub(crate) fn run() -> Result<bool> {
    let (mut matrix, mut all) = (Matrix::default(), Results::default());
    for (nth, versions) in RUNS.into_iter().enumerate() {
        let skipped: &[&str] = match (nth, versions.mysql) {
            (0, _) => &[],
            (_, Some(_)) => &["--skip", "sqlite"],
            (_, None) => {
                &["--skip", "sqlite", "--skip", "mysql", "--skip", "mariadb", "--skip", "log::holes"]
            }
        };
        let mut table = Table::default();
        let options = Options { versions, extra: skipped, ..Options::default() };
        let results = test::run(options, &mut table)?;
        println!("{}", table.text(&results.durations));
        let postgres = versions.postgres.map(versions::postgres).transpose()?;
        let mysql = versions.mysql.map(versions::mysql).transpose()?;
        let names = Names {
            postgres: postgres.map_or(Ok("?".to_owned()), |bin| version_of(&bin.join("postgres")))?,
            mysql: mysql.map_or(Ok("?".to_owned()), |bin| match bin.join("mariadbd") {
                mariadbd if mariadbd.exists() => version_of(&mariadbd),
                _ => version_of(&bin.join("mysqld")),
            })?,
        };
        matrix.add(&names, &results);
        all.add(results);
    }
    println!("{matrix}");
    Ok(all.print())
}

/// The servers of a run.
struct Names {
    postgres: String,
    mysql: String,
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

impl Matrix {
    fn add(&mut self, names: &Names, results: &Results) {
        for test in results.durations.keys() {
            let (server, area) = (names.of_test(test), test.split("::").next().unwrap_or_default());
            if !self.servers.iter().any(|known| known == server) {
                self.servers.push(server.to_owned());
            }
            let cell = self.cells.entry((area.to_owned(), server.to_owned())).or_default();
            match test {
                test if results.has_failed(test) => cell.failed += 1,
                test if results.was_skipped(test) => cell.skipped += 1,
                _ => cell.passed += 1,
            }
        }
    }
}

impl fmt::Display for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        writeln!(f, "{}", row([vec!["area".to_owned()], self.servers.clone()].concat()))?;
        writeln!(f, "|---|{}", "---:|".repeat(self.servers.len()))?;
        let mut areas: Vec<&String> = self.cells.keys().map(|(area, _)| area).collect();
        areas.dedup();
        for area in areas {
            let cells = self.servers.iter().map(|server| {
                let cell = self.cells.get(&(area.clone(), server.clone())).copied().unwrap_or_default();
                let mut text = cell.passed.to_string();
                for (count, what) in [(cell.failed, "failed"), (cell.skipped, "skipped")] {
                    if count > 0 {
                        let _ = write!(text, ", {count} {what}");
                    }
                }
                text
            });
            writeln!(f, "{}", row([area.clone()].into_iter().chain(cells).collect()))?;
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
            test a::mysql::x ... ok\n\
            test a::y ... FAILED\n\
            test a::y_on_sqlite ... ok\n\
            test b::z ... ok\n\
            test result: FAILED. 3 passed; 1 failed; 0 ignored\n";
        let mut results = Results::default();
        text.lines().for_each(|line| results.add_line(line, Duration::ZERO, 1));
        results.skip("b::z");
        let mut matrix = Matrix::default();
        let names = Names { postgres: "Postgres 18.4".to_owned(), mysql: "MySQL 9.7.4".to_owned() };
        matrix.add(&names, &results);
        let expected = "| area | MySQL 9.7.4 | Postgres 18.4 | SQLite |\n|---|---:|---:|---:|\n\
            | a | 1 | 0, 1 failed | 1 |\n| b | 0 | 0, 1 skipped | 0 |\n";
        assert_eq!(matrix.to_string(), expected);
    }
}
