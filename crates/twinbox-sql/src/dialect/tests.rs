//! The form of all statements, on every database.
use super::Dialect;

/// The words that begin a clause.
const CLAUSES: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "LIMIT",
    "OFFSET",
    "INSERT INTO",
    "VALUES",
    "ON CONFLICT",
    "UPDATE",
    "SET",
    "DELETE",
    "USING",
    "RETURNING",
    "UNION ALL",
    "JOIN",
    "WITH",
    "FOR UPDATE",
    "ON DUPLICATE KEY",
];

/// Words that hold one of those and begin none of their own.
const PHRASES: &[(&str, &str)] = &[
    ("DELETE FROM", "DELETE"),
    ("ON CONFLICT DO NOTHING", "ON CONFLICT"),
    ("DO UPDATE", "DO"),
    ("ON DUPLICATE KEY UPDATE", "ON DUPLICATE KEY"),
    ("FOR UPDATE SKIP LOCKED", "FOR UPDATE"),
    ("FOR UPDATE", "FOR"),
    ("WITH ORDINALITY", "ORDINALITY"),
    ("IS NOT DISTINCT FROM", "IS"),
    ("IS DISTINCT FROM", "IS"),
    ("PARTITION BY", "PARTITION"),
];

/// The line without what stands in parentheses that it opens and closes.
fn outside(line: &str) -> String {
    let mut open: Vec<usize> = Vec::new();
    let mut out = String::new();
    for c in line.chars() {
        match c {
            '(' => {
                open.push(out.len());
                out.push(c);
            }
            ')' => match open.pop() {
                Some(start) => out.truncate(start),
                None => out.push(c),
            },
            _ => out.push(c),
        }
    }
    out
}

fn clauses(line: &str) -> usize {
    // MySQL's function for the new value of a column.
    let mut line = outside(&line.replace("VALUES(", "new("));
    for (phrase, short) in PHRASES {
        line = line.replace(phrase, short);
    }
    let words: Vec<_> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let begins = |clause: &&&str| {
        let clause: Vec<_> = clause.split(' ').collect();
        words.windows(clause.len()).any(|window| window == clause)
    };
    CLAUSES.iter().filter(begins).count()
}

#[test]
fn clauses_are_counted_outside_of_closed_parentheses() {
    assert_eq!(clauses("SELECT a FROM b WHERE c"), 3);
    assert_eq!(clauses("WHERE a IN (SELECT b FROM c) AND d"), 1);
    assert_eq!(clauses("FROM (SELECT a"), 2);
    assert_eq!(clauses("ON CONFLICT (a) DO UPDATE"), 1);
    assert_eq!(clauses("    LIMIT ?)"), 1);
}

/// Each clause has a line of its own, but for those of a subquery within one line.
fn check<DB: Dialect>() {
    for (name, &text) in DB::SQL.named() {
        for line in text.lines() {
            assert!(clauses(line) <= 1, "{} {name}: more than one clause in {line:?}", DB::NAME);
            assert!(line.len() <= 110 && line.trim_end() == line || text.ends_with(line), "{name}: {line:?}");
        }
        assert!(text.is_empty() || text.lines().count() == 1 || text.starts_with(['\n', '{']), "{name}");
    }
}

#[cfg(feature = "postgres")]
#[test]
fn statements_on_postgres_have_one_clause_a_line() {
    check::<sqlx::Postgres>();
}

#[cfg(feature = "mysql")]
#[test]
fn statements_on_mysql_have_one_clause_a_line() {
    check::<sqlx::MySql>();
}

#[cfg(feature = "sqlite")]
#[test]
fn statements_on_sqlite_have_one_clause_a_line() {
    check::<sqlx::Sqlite>();
}

/// In a text `{name}` is the fragment if there is one, and else the table.
fn check_fragments<DB: Dialect>() {
    for migration in DB::MIGRATIONS {
        for created in migration.sql.split("\nCREATE ").skip(1) {
            let name = created.split(['{', '}']).nth(1).expect("a name");
            assert!(DB::FRAGMENTS.get(name).is_none(), "{}: {name} is a fragment too", DB::NAME);
        }
    }
}

#[cfg(feature = "postgres")]
#[test]
fn no_table_of_postgres_has_the_name_of_a_fragment() {
    check_fragments::<sqlx::Postgres>();
}

#[cfg(feature = "mysql")]
#[test]
fn no_table_of_mysql_has_the_name_of_a_fragment() {
    check_fragments::<sqlx::MySql>();
}

#[cfg(feature = "sqlite")]
#[test]
fn no_table_of_sqlite_has_the_name_of_a_fragment() {
    check_fragments::<sqlx::Sqlite>();
}

/// The texts spell names that other crates define.
#[cfg(feature = "sqlite")]
#[test]
fn statements_spell_headers_and_types_as_the_program_does() {
    use twinbox_core::message::{UNKNOWN_TYPE, header};
    let texts = <sqlx::Sqlite as Dialect>::SQL.backlog;
    assert!(texts.delayed.contains(&format!("{{header {}}}", header::CODEC)));
    assert!(texts.delayed.contains(&format!("{{header {}}}", header::REDACTED)));
    assert!(texts.parked_and_dead.contains(&format!("o.type <> '{UNKNOWN_TYPE}'")));
}
