//! The names of statements by their texts.
use crate::support::stores::{TestDb, World};
use std::collections::HashMap;

pub(super) struct Catalog {
    whole: HashMap<String, Vec<String>>,
    /// Texts that end with a list, which is added to each, or have a place for a guard.
    beginnings: Vec<(String, String)>,
}

/// First words of statements that begin and end transactions. These are no texts of a dialect.
const OTHERS: [&str; 8] = ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "SET", "START", "XA"];

/// The text as it is after a parser has taken it from several.
fn trimmed(sql: &str) -> &str {
    sql.trim().trim_end_matches(';').trim_end()
}

impl Catalog {
    pub(super) fn of<DB: TestDb>(world: &World<DB>) -> Self {
        let (mut whole, mut beginnings) = (HashMap::<_, Vec<_>>::new(), Vec::new());
        for (name, statement) in world.engine().sql().named() {
            let sql = trimmed(statement.as_str());
            let beginning = sql.split_once("GUARD").map(|(beginning, _)| beginning);
            let is_open = ["IN", "VALUES"].iter().any(|end| sql.ends_with(end));
            if let Some(beginning) = beginning.or(is_open.then_some(sql)) {
                beginnings.push((beginning.to_owned(), name));
                continue;
            }
            // A file gets several statements one by one.
            let last = sql.rsplit_once(';').map(|(_, last)| trimmed(last));
            for sql in [Some(sql), last].into_iter().flatten() {
                whole.entry(sql.to_owned()).or_default().push(name.clone());
            }
        }
        Self { whole, beginnings }
    }

    /// The names of a statement of Twinbox, none for one of an application.
    pub(super) fn names(&self, sql: &str) -> Vec<String> {
        let sql = trimmed(sql);
        if let Some(names) = self.whole.get(sql) {
            return names.clone();
        }
        if let Some((_, name)) = self.beginnings.iter().find(|(beginning, _)| sql.starts_with(beginning)) {
            return vec![name.clone()];
        }
        let first = sql.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        OTHERS.iter().filter(|other| **other == first).map(|other| (*other).to_owned()).collect()
    }
}
