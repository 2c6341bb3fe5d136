//! All rows of a database as text, and the difference between two such snapshots.
use sqlx::AssertSqlSafe;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};
use twinbox_sql::Dialect;

/// Rows of one table that a report shows at most.
const SHOWN_MAX: usize = 10;
/// Separates the columns of a row in the result of the query: the character 31.
const BETWEEN: char = '\u{1f}';

/// The rows of each table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Snapshot(BTreeMap<String, Table>);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Table {
    /// Empty: each row is one line.
    columns: Vec<String>,
    /// Sorted.
    rows: Vec<Vec<String>>,
}

/// Columns by table and name.
pub(super) type Columns = BTreeSet<(String, String)>;

impl Snapshot {
    /// Takes a snapshot of the rows that this connection sees, within its transaction.
    pub(super) async fn of<DB: Dialect>(conn: &mut DB::Connection) -> sqlx::Result<Self> {
        let (columns, as_text, between) = match DB::NAME {
            "PostgreSQL" => (POSTGRES_COLUMNS, "COALESCE(to_json({})::text, 'null')", " || chr(31) || "),
            "MySQL" => (MYSQL_COLUMNS, "{}", ", CHAR(31), "),
            _ => (SQLITE_COLUMNS, "quote({})", " || char(31) || "),
        };
        let columns = sqlx::query_as::<DB, (String, String)>(columns).fetch_all(&mut *conn).await?;
        let mut snapshot = Self::default();
        for of_one in columns.chunk_by(|(one, _), (other, _)| one == other) {
            let name = &of_one[0].0;
            let row: Vec<String> = of_one.iter().map(|(_, column)| as_text.replace("{}", column)).collect();
            let mut row = row.join(between);
            if DB::NAME == "MySQL" {
                row = format!("CONVERT(CONCAT({row}) USING utf8mb4)");
            }
            let rows = sqlx::query_scalar::<DB, String>(AssertSqlSafe(format!("SELECT {row} FROM {name}")));
            let rows = rows.fetch_all(&mut *conn).await?;
            let rows = rows.iter().map(|row| row.split(BETWEEN).map(readable).collect()).collect();
            let columns = of_one.iter().map(|(_, column)| plain(column)).collect();
            snapshot.insert(name, columns, rows);
        }
        Ok(snapshot)
    }

    /// Adds a table whose rows are lines.
    pub(super) fn put(&mut self, table: &str, lines: Vec<String>) {
        self.insert(table, Vec::new(), lines.into_iter().map(|line| vec![line]).collect());
    }

    fn insert(&mut self, table: &str, columns: Vec<String>, mut rows: Vec<Vec<String>>) {
        rows.sort_unstable();
        self.0.insert(plain(table), Table { columns, rows });
    }

    /// Returns the number of rows of each table, without empty tables.
    pub(super) fn counts(&self) -> BTreeMap<&str, usize> {
        let counts = self.0.iter().map(|(name, table)| (name.as_str(), table.rows.len()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns a snapshot with only the columns for which `keep(table, column)` is true.
    pub(super) fn only(&self, keep: impl Fn(&str, &str) -> bool) -> Self {
        let mut kept = Self::default();
        for (name, table) in &self.0 {
            let of_row = |row: &Vec<String>| {
                let columns = table.columns.iter().zip(row).filter(|(column, _)| keep(name, column));
                columns.map(|(_, value)| value.clone()).collect()
            };
            let columns = Vec::from_iter(table.columns.iter().filter(|column| keep(name, column)).cloned());
            if table.columns.is_empty() {
                kept.0.insert(name.clone(), table.clone());
            } else if !columns.is_empty() {
                kept.insert(name, columns, table.rows.iter().map(of_row).collect());
            }
        }
        kept
    }

    /// Returns the columns whose values differ from those in `other`, in any order of rows.
    pub(super) fn varying(&self, other: &Self) -> Columns {
        let mut varying = Columns::new();
        for (name, table) in &self.0 {
            for (n, column) in table.columns.iter().enumerate() {
                let values = |table: &Table| {
                    let mut values = Vec::from_iter(table.rows.iter().filter_map(|row| row.get(n).cloned()));
                    values.sort_unstable();
                    values
                };
                if other.0.get(name).is_none_or(|other| values(other) != values(table)) {
                    varying.insert((name.clone(), column.clone()));
                }
            }
        }
        varying
    }

    /// Reports the rows that are gone (`-`), new (`+`) or changed (`~`) in `later`, by table. Empty if there
    /// are none.
    pub(super) fn difference(&self, later: &Self) -> String {
        let none = Table::default();
        let mut report = String::new();
        for name in self.0.keys().chain(later.0.keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (self.0.get(name).unwrap_or(&none), later.0.get(name).unwrap_or(&none));
            let lines = changed(before, after);
            if !lines.is_empty() {
                let _ = writeln!(report, "  {name}");
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

const POSTGRES_COLUMNS: &str =
    "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname), quote_ident(a.attname)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0 AND NOT a.attisdropped
        AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
    ORDER BY n.nspname, c.relname, a.attnum";
/// The column is the expression that reads it.
const MYSQL_COLUMNS: &str = "SELECT CAST(CONCAT('`', table_name, '`') AS CHAR), CAST(CASE
        WHEN data_type LIKE '%binary' OR data_type LIKE '%blob' THEN CONCAT(
            'IF(`', column_name, '` IS NULL, ''NULL'', ',
            'CONCAT(''X'', CHAR(39), HEX(`', column_name, '`), CHAR(39)))')
        WHEN numeric_precision IS NOT NULL THEN CONCAT('COALESCE(`', column_name, '`, ''NULL'')')
        ELSE CONCAT('QUOTE(`', column_name, '`)') END AS CHAR)
    FROM information_schema.columns
    WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position";
const SQLITE_COLUMNS: &str =
    "SELECT '\"' || replace(m.name, '\"', '\"\"') || '\"', '\"' || replace(c.name, '\"', '\"\"') || '\"'
    FROM sqlite_master m, pragma_table_info(m.name) c
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY m.name, c.cid";

/// Returns a name without its quotes, and without the expression that reads a column.
fn plain(name: &str) -> String {
    match name.split('`').nth(1) {
        Some(name) => name.to_owned(),
        None => name.replace('"', ""),
    }
}

/// Returns a value that is hex-encoded text as text, and other values unchanged.
fn readable(value: &str) -> String {
    let hex = value.strip_prefix(r#""\\x"#).and_then(|hex| hex.strip_suffix('"'));
    let hex = hex.or_else(|| value.strip_prefix("X'").and_then(|hex| hex.strip_suffix('\'')));
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes = hex.and_then(|hex| hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>());
    match bytes.map(String::from_utf8) {
        Some(Ok(text)) if !text.is_empty() && !text.contains(char::is_control) => text,
        _ => value.to_owned(),
    }
}

/// Returns the lines of a report about one table.
fn changed(before: &Table, after: &Table) -> Vec<String> {
    let columns = if before.columns.is_empty() { &after.columns } else { &before.columns };
    let only_in = |one: &Table, other: &Table| {
        let mut rest = other.rows.iter().peekable();
        let mut only = Vec::new();
        for row in &one.rows {
            while rest.next_if(|other| *other < row).is_some() {}
            if rest.next_if(|other| *other == row).is_none() {
                only.push(row.clone());
            }
        }
        only
    };
    let (gone, mut new) = (only_in(before, after), only_in(after, before));
    let mut lines = Vec::new();
    for row in gone {
        // The first column is usually the id of the row.
        let same = new.iter().position(|other| columns.len() > 1 && other.first() == row.first());
        lines.push(match same.map(|n| new.remove(n)) {
            Some(other) => format!("~ {}", altered(columns, &row, &other)),
            None => format!("- {}", shown(columns, &row)),
        });
    }
    lines.extend(new.iter().map(|row| format!("+ {}", shown(columns, row))));
    lines
}

fn shown(columns: &[String], row: &[String]) -> String {
    if columns.is_empty() {
        return row.concat();
    }
    let values = columns.iter().zip(row).map(|(column, value)| format!("{column}: {value}"));
    values.collect::<Vec<_>>().join(", ")
}

fn altered(columns: &[String], before: &[String], after: &[String]) -> String {
    let first = format!("{}: {}", columns[0], before[0]);
    let others = columns.iter().zip(before.iter().zip(after)).filter(|(_, (before, after))| before != after);
    let others = others.map(|(column, (before, after))| format!("{column}: {before} → {after}"));
    std::iter::once(first).chain(others).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[&str]) -> Vec<String> {
        values.iter().map(ToString::to_string).collect()
    }

    fn orders(rows: &[&[&str]]) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.insert(
            "orders",
            row(&["id", "state", "at"]),
            rows.iter().map(|values| row(values)).collect(),
        );
        snapshot
    }

    #[test]
    fn a_difference_names_tables_rows_and_what_has_changed() {
        let mut before = orders(&[&["1", "placed", "a"], &["2", "paid", "b"], &["4", "paid", "d"]]);
        before.put("mails", row(&["x", "y", "y"]));
        let mut after = orders(&[&["3", "paid", "c"], &["1", "paid", "a"], &["4", "paid", "d"]]);
        after.put("mails", row(&["y", "z"]));
        let expected = "  mails\n    - x\n    - y\n    + z\n  \
            orders\n    ~ id: 1, state: placed → paid\n    - id: 2, state: paid, at: b\n    + id: 3, state: \
            paid, at: c\n";
        assert_eq!(before.difference(&after), expected);
        assert_eq!(before.difference(&before), "");
    }

    #[test]
    fn a_long_difference_is_cut() {
        let mut many = Snapshot::default();
        many.put("a", (10..22).map(|n| n.to_string()).collect());
        let report = Snapshot::default().difference(&many);
        assert_eq!(report.lines().count(), SHOWN_MAX + 2);
        assert!(report.ends_with("    + 19\n    … and 2 more\n"), "{report}");
    }

    #[test]
    fn columns_that_vary_can_be_left_out() {
        let (one, other) = (orders(&[&["1", "paid", "a"]]), orders(&[&["1", "paid", "b"]]));
        let varying = one.varying(&other);
        assert_eq!(varying, Columns::from([("orders".to_owned(), "at".to_owned())]));
        let keep = |table: &str, column: &str| !varying.contains(&(table.to_owned(), column.to_owned()));
        assert_eq!(one.only(keep).difference(&other.only(keep)), "");
        // The order of rows does not count.
        let (one, other) =
            (orders(&[&["1", "x", ""], &["2", "y", ""]]), orders(&[&["1", "y", ""], &["2", "x", ""]]));
        assert_eq!(one.varying(&other), Columns::new());
    }

    #[test]
    fn bytes_that_are_text_are_shown_as_text() {
        assert_eq!(readable(r#""\\x7b7d""#), "{}");
        assert_eq!(readable("X'7B7D'"), "{}");
        for other in [r#""\\x00""#, r#""\\xff""#, "X''", "7", r#""x""#, "null"] {
            assert_eq!(readable(other), other);
        }
    }
}
