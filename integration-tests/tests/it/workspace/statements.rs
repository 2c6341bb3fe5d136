//! Statements of Twinbox run where a limit ends the wait for a silent server. sqlx has none.
use super::files::texts;

/// Calls that wait for a server without an end.
const WAITS: &[&str] = &[
    "sqlx::query",
    "raw_sql(",
    "fetch_many(",
    "pool.acquire(",
    "pool().acquire(",
    "Transaction::begin(",
    "TransactionManager::",
    ".ping(",
];

/// Files that may hold them, and why.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/twinbox-sql/src/statement.rs", "the limit itself"),
    ("crates/twinbox-sql/src/owned_tx.rs", "BEGIN and COMMIT, each with the limit"),
    ("crates/twinbox-sql/src/dialect/transaction.rs", "savepoints, with the limit"),
    ("crates/twinbox-sql/src/dialect/postgres/pooler.rs", "a connection that is lent with a limit"),
    ("crates/twinbox-sql/src/engine/handle.rs", "a connection that is lent with a limit"),
];

/// The waits in the code of a file, without its comments and its tests.
fn waits(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    lines.filter(|line| WAITS.iter().any(|wait| line.contains(wait)))
}

#[test]
fn every_statement_has_a_limit() {
    let mut exempt = Vec::new();
    for (name, text) in texts().filter(|(name, _)| name.starts_with("crates/") && name.ends_with(".rs")) {
        let is_product = name.contains("/src/") && !name.starts_with("crates/twinbox-testkit/");
        if !is_product || name.contains("/tests") {
            continue;
        }
        let found = Vec::from_iter(waits(&text));
        match EXEMPT.iter().find(|(file, _)| *file == name) {
            Some((file, _)) => exempt.extend((!found.is_empty()).then_some(*file)),
            None => assert!(found.is_empty(), "{name}: use `twinbox_sql::engine::query`: {found:?}"),
        }
    }
    assert_eq!(exempt.len(), EXEMPT.len(), "list no file without need: {exempt:?}");
}

#[test]
fn a_statement_without_a_limit_is_found() {
    let hidden = "/// sqlx::query(\"SELECT 1\")\nlet rows = 1;\n#[cfg(test)]\nmod tests {\nraw_sql(";
    assert_eq!(waits(hidden).count(), 0);
    for open in ["sqlx::query(\"SELECT 1\").fetch_one(conn)", "let mut conn = self.pool.acquire().await?;"] {
        assert_eq!(waits(open).count(), 1, "{open}");
    }
}
