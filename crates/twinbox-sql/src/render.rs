//! Renders texts for a store.
use crate::{Dialect, catalog::Catalog, codecs::Codecs, statement::Statement};
use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

impl Catalog {
    /// Renders every statement of a store.
    pub(crate) fn new<DB: Dialect>(namespace: &str, service: &str, codecs: Codecs, is_named: bool) -> Self {
        let statement = |text: &str| {
            let statement = Statement::new(render::<DB>(namespace, text), is_named);
            statement.with_bounded_wait(text.contains("{bounded_wait}"))
        };
        Self {
            service: service.to_owned(),
            namespace: namespace.to_owned(),
            codecs,
            is_named,
            #[cfg(feature = "mysql")]
            durable_tick: Default::default(),
            #[cfg(feature = "postgres")]
            lock_secret: Default::default(),
            sql: DB::SQL.map(statement),
        }
    }
}

/// The indentation of a text in the source code. The database's statistics show statements without it.
const INDENTATION: &str = "\n        ";

/// Renders a text of SQL for one store and its database.
pub fn render<DB: Dialect>(namespace: &str, text: &str) -> SqlStr {
    let text = script::<DB>(namespace, text).trim().replace(INDENTATION, "\n");
    if !DB::NUMBERED_BINDS {
        return AssertSqlSafe(text).into_sql_str();
    }
    let mut parts = text.split('?');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (n, part) in parts.enumerate() {
        out += &format!("${}{part}", n + 1);
    }
    AssertSqlSafe(out).into_sql_str()
}

/// Puts its text for each `{fragment}` and its place for each `{table}` of a script without binds.
pub(crate) fn script<DB: Dialect>(namespace: &str, text: &str) -> String {
    quote_words(&expand::<DB>(namespace, text), DB::RESERVED_WORDS)
}

/// Puts backticks around words, but for those inside of string literals and comments.
fn quote_words(text: &str, words: &[&str]) -> String {
    if words.is_empty() {
        return text.to_owned();
    }
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut is_quoted) = (text, false);
    while let Some(first) = rest.chars().next() {
        if !is_quoted && rest.starts_with("--") {
            let line = rest.find('\n').unwrap_or(rest.len());
            out += &rest[..line];
            rest = &rest[line..];
        } else if is_of_word(first) {
            let word = &rest[..rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())];
            match !is_quoted && words.contains(&word) {
                true => out.extend(["`", word, "`"]),
                false => out += word,
            }
            rest = &rest[word.len()..];
        } else {
            is_quoted ^= first == '\'';
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// Puts its text for each `{fragment}` and `{fragment argument}`, see
/// [`Fragments`](crate::dialect::Fragments), and its place for each other `{table}`.
fn expand<DB: Dialect>(namespace: &str, text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        let (name, argument) = name.split_once(' ').unwrap_or((name, "?"));
        out += before;
        out += &match DB::FRAGMENTS.get(name) {
            Some(fragment) => expand::<DB>(namespace, &fragment.replace('?', argument)),
            None => DB::table(namespace, name),
        };
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "postgres")]
    #[test]
    fn postgres_numbers_its_binds_and_names_its_schema() {
        let sql = render::<sqlx::Postgres>("my_events", "UPDATE {outbox} SET a = ?, b = {after} WHERE c = ?");
        assert_eq!(
            sql.as_str(),
            "UPDATE \"my_events\".outbox SET a = $1, \
             b = (clock_timestamp() + ($2)::float8 * interval '1 microsecond') WHERE c = $3"
        );
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_prefixes_its_tables() {
        let sql = render::<sqlx::Sqlite>("twinbox", "SELECT a FROM {inbox} WHERE b = ?");
        assert_eq!(sql.as_str(), "SELECT a FROM twinbox_inbox WHERE b = ?");
    }

    #[test]
    fn reserved_words_stand_in_backticks_outside_of_literals() {
        let quoted = quote_words("-- a key\nSELECT p.key, 'key' AS keys FROM `a`", &["key"]);
        assert_eq!(quoted, "-- a key\nSELECT p.`key`, 'key' AS keys FROM `a`");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn an_argument_takes_the_place_of_a_bind() {
        let sql =
            render::<sqlx::Postgres>("t", "SELECT {after 2 * lease} WHERE {not_replay p.name} AND a = ?");
        assert_eq!(
            sql.as_str(),
            "SELECT (clock_timestamp() + (2 * lease)::float8 * interval '1 microsecond') \
             WHERE p.name NOT LIKE 'replay:%' AND a = $1"
        );
    }
}
