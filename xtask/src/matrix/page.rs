//! The page of the book with the results: a column for each server, which each run replaces.

use std::collections::BTreeMap;
use std::fmt;

/// The rows above those of the areas.
const COMMIT: &str = "run on";

/// The results on one server.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Column {
    /// Product and version, such as `Postgres 18.4`.
    pub(super) server: String,
    /// The day and the commit.
    pub(super) commit: String,
    /// By area.
    pub(super) cells: BTreeMap<String, String>,
}

/// The text before the table, the table, and the text behind it.
#[derive(Debug)]
pub(super) struct Page {
    before: String,
    columns: Vec<Column>,
    after: String,
}

impl Page {
    pub(super) fn read(text: &str) -> Self {
        let is_row = |line: &&str| line.starts_with('|');
        let before = text.lines().take_while(|line| !is_row(line)).map(|line| format!("{line}\n"));
        let rows = text.lines().skip_while(|line| !is_row(line)).take_while(is_row);
        let after = text.lines().skip_while(|line| !is_row(line)).skip_while(is_row);
        let mut rows = rows.map(|row| row.trim_matches('|').split('|').map(str::trim));
        let names = rows.next().into_iter().flatten().skip(1);
        let mut columns: Vec<Column> =
            names.map(|server| Column { server: server.to_owned(), ..Column::default() }).collect();
        for mut row in rows.skip(1) {
            let area = row.next().unwrap_or_default();
            for (column, cell) in columns.iter_mut().zip(row) {
                match area {
                    COMMIT => cell.clone_into(&mut column.commit),
                    _ if cell.is_empty() => {}
                    _ => _ = column.cells.insert(area.to_owned(), cell.to_owned()),
                }
            }
        }
        Self { before: before.collect(), columns, after: after.map(|line| format!("{line}\n")).collect() }
    }

    /// Puts a column in the place of the one of the same line of versions.
    pub(super) fn put(&mut self, column: Column) {
        self.columns.retain(|other| line(&other.server) != line(&column.server));
        self.columns.push(column);
        self.columns.sort_by_key(|column| line(&column.server).to_owned());
    }
}

/// `Postgres 18` of `Postgres 18.4`.
fn line(server: &str) -> &str {
    server.rsplit_once('.').map_or(server, |(line, _)| line)
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut areas: Vec<&str> =
            self.columns.iter().flat_map(|column| column.cells.keys()).map(String::as_str).collect();
        areas.sort_by_key(|area| (*area == "all", *area));
        areas.dedup();
        let row = |name: &str, cell: &dyn Fn(&Column) -> String| {
            let cells = self.columns.iter().map(cell);
            let cells = Vec::from_iter([name.to_owned()].into_iter().chain(cells));
            format!("| {} |\n", cells.join(" | "))
        };
        let mut text = row("area", &|column| column.server.clone());
        text += &format!("|---|{}\n", "---:|".repeat(self.columns.len()));
        text += &row(COMMIT, &|column| column.commit.clone());
        for area in areas {
            text += &row(area, &|column| column.cells.get(area).cloned().unwrap_or_default());
        }
        write!(f, "{}{text}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Title\n\n\
        | area | MariaDB 10.11.18 | Postgres 18.4 |\n\
        |---|---:|---:|\n\
        | run on | 2026-11-28 a | 2026-11-29 b |\n\
        | log | 3, 1 failed | 4 |\n\
        | tls |  | 7 |\n\
        | all | 3, 1 failed | 11 |\n\
        \nThe end.\n";

    #[test]
    fn what_is_read_is_written_again() {
        assert_eq!(Page::read(TEXT).to_string(), TEXT);
    }

    #[test]
    fn a_newer_version_takes_the_place_of_the_older_one() {
        let mut page = Page::read(TEXT);
        let cells = [("log", "5"), ("all", "5")].map(|(area, cell)| (area.to_owned(), cell.to_owned()));
        let column = Column {
            server: "MariaDB 10.11.19".to_owned(),
            commit: "2026-11-30 c".to_owned(),
            cells: cells.into(),
        };
        page.put(column);
        let text = page.to_string();
        assert!(text.contains("| area | MariaDB 10.11.19 | Postgres 18.4 |\n"), "{text}");
        assert!(text.contains("| run on | 2026-11-30 c | 2026-11-29 b |\n"), "{text}");
        assert!(text.contains("| all | 5 | 11 |\n\nThe end.\n"), "{text}");
    }

    #[test]
    fn a_page_without_a_table_gets_one() {
        let mut page = Page::read("# Title\n\n");
        page.put(Column { server: "SQLite".to_owned(), ..Column::default() });
        assert_eq!(page.to_string(), "# Title\n\n| area | SQLite |\n|---|---:|\n| run on |  |\n");
    }
}
