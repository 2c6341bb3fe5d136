//! Every row of a database as text, and how two of them differ.
use sqlx::AssertSqlSafe;
use std::{collections::BTreeMap, fmt::Write as _};
use twinbox_sql::Dialect;

/// Rows of one table that a report shows.
const SHOWN_MAX: usize = 10;

/// The rows of each table, sorted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Snapshot(BTreeMap<String, Vec<String>>);

impl Snapshot {
    /// What this connection sees, its own transaction included.
    pub(super) async fn of<DB: Dialect>(conn: &mut DB::Connection) -> sqlx::Result<Self> {
        let mut snapshot = Self::default();
        let (tables, postgres) = match DB::NAME {
            "PostgreSQL" => (POSTGRES_TABLES, true),
            _ => (SQLITE_TABLES, false),
        };
        for table in sqlx::query_scalar::<DB, String>(tables).fetch_all(&mut *conn).await? {
            let row = if postgres {
                "to_jsonb(t)::text".to_owned()
            } else {
                sqlite_row::<DB>(conn, &table).await?
            };
            let rows =
                sqlx::query_scalar::<DB, String>(AssertSqlSafe(format!("SELECT {row} FROM {table} t")));
            snapshot.put(&table, rows.fetch_all(&mut *conn).await?);
        }
        Ok(snapshot)
    }

    pub(super) fn put(&mut self, table: &str, mut rows: Vec<String>) {
        rows.sort_unstable();
        self.0.insert(table.to_owned(), rows);
    }

    /// Rows of each table; those without are left out.
    pub(super) fn counts(&self) -> BTreeMap<&str, usize> {
        let counts = self.0.iter().map(|(table, rows)| (table.as_str(), rows.len()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// What is gone (`-`) and what is new (`+`) in `later`, by table. Empty: nothing.
    pub(super) fn difference(&self, later: &Self) -> String {
        let none = Vec::new();
        let mut report = String::new();
        let mut tables: Vec<_> = self.0.keys().chain(later.0.keys()).collect();
        tables.sort_unstable();
        tables.dedup();
        for table in tables {
            let (before, after) = (self.0.get(table).unwrap_or(&none), later.0.get(table).unwrap_or(&none));
            let lines = changed(before, after);
            if !lines.is_empty() {
                let _ = writeln!(report, "  {table}");
                for line in lines.iter().take(SHOWN_MAX) {
                    let _ = writeln!(report, "    {line}");
                }
                if lines.len() > SHOWN_MAX {
                    let _ = writeln!(report, "    … and {} more", lines.len() - SHOWN_MAX);
                }
            }
        }
        report
    }
}

const POSTGRES_TABLES: &str = "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables \
     WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1";
const SQLITE_TABLES: &str = "SELECT '\"' || replace(name, '\"', '\"\"') || '\"' FROM sqlite_master \
     WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY 1";

/// The expression that writes a row as text, blobs included.
async fn sqlite_row<DB: Dialect>(conn: &mut DB::Connection, table: &str) -> sqlx::Result<String> {
    let columns = format!("SELECT name FROM pragma_table_info({})", table.replace('"', "'"));
    let columns = sqlx::query_scalar::<DB, String>(AssertSqlSafe(columns)).fetch_all(conn).await?;
    let written = columns.iter().map(|column| {
        let (text, name) = (column.replace('\'', "''"), column.replace('"', "\"\""));
        format!("'{text}: ' || quote(\"{name}\")")
    });
    Ok(written.collect::<Vec<_>>().join(" || ', ' || "))
}

/// The lines of a report, for sorted rows.
fn changed(before: &[String], after: &[String]) -> Vec<String> {
    let (mut before, mut after) = (before.iter().peekable(), after.iter().peekable());
    let mut lines = Vec::new();
    loop {
        match (before.peek(), after.peek()) {
            (Some(old), Some(new)) if old == new => {
                before.next();
                after.next();
            }
            (Some(old), new) if new.is_none_or(|new| old < new) => {
                lines.push(format!("- {old}"));
                before.next();
            }
            (_, Some(new)) => {
                lines.push(format!("+ {new}"));
                after.next();
            }
            _ => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(tables: &[(&str, &[&str])]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (table, rows) in tables {
            snapshot.put(table, rows.iter().map(ToString::to_string).collect());
        }
        snapshot
    }

    #[test]
    fn a_difference_names_tables_and_rows() {
        let before = snapshot(&[("a", &["1", "2", "2"]), ("b", &["7"]), ("same", &["x"])]);
        let after = snapshot(&[("a", &["3", "2"]), ("c", &["8"]), ("same", &["x"])]);
        let expected = "  a\n    - 1\n    - 2\n    + 3\n  b\n    - 7\n  c\n    + 8\n";
        assert_eq!(before.difference(&after), expected);
        assert_eq!(before.difference(&before), "");
    }

    #[test]
    fn a_long_difference_is_cut() {
        let rows = Vec::from_iter((10..22).map(|n| n.to_string()));
        let rows = Vec::from_iter(rows.iter().map(String::as_str));
        let report = snapshot(&[]).difference(&snapshot(&[("a", &rows)]));
        assert_eq!(report.lines().count(), SHOWN_MAX + 2);
        assert!(report.ends_with("    + 19\n    … and 2 more\n"), "{report}");
    }
}
