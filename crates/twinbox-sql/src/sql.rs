//! How text becomes a statement.
use crate::Dialect;
pub(crate) use crate::statements::Statements;
use sqlx::{
    AssertSqlSafe, FromRow, SqlSafeStr, SqlStr,
    query::{Query, QueryAs, QueryScalar},
};

/// What a message row reads as, in the order that [`crate::row`] expects.
pub(crate) const MESSAGE: &str = "id, source, type, version, key, subject, time, correlation_id, causation_id, \
     traceparent, content_type, headers, payload";

/// The columns that a producer writes.
pub(crate) const PUBLISHED: &str = "id, type, version, key, subject, time, correlation_id, causation_id, \
     traceparent, content_type, headers, payload";

/// Renders a statement: `{table}` → where the table is, `{now}` → the database's time, `{after}` → the time
/// that `?` microseconds from now will be, `{never}` → the time that does not come, `{behind}` → whether the cursor `c`
/// has yet to settle a message that is older than `?` microseconds, `{uuid}` → the type of an id, `{json}` → what headers
/// are read as, `{bounded}` → true, and locks are waited for 2 s at most from here on, `{turn}` → true, and nobody else
/// locks many messages meanwhile, `{is_run}` → whether it is still the run `?` of the server, `{expired}` → whether the
/// lease of the row has ended, `{flushed}` → the commit is flushed, `{unflushed}` → true, and it is not,
/// `{among}` → is one of the numbers in the JSON array `?`, `?` → the dialect's bind.
pub(crate) fn render<DB: Dialect>(namespace: &str, text: &str) -> SqlStr {
    let text = text
        .replace("{bounded}", DB::BOUNDED)
        .replace("{turn}", DB::TURN)
        .replace("{behind}", DB::BEHIND)
        .replace("{expired}", &expired::<DB>());
    let text = text.replace("{never}", DB::NEVER);
    let text = text
        .replace("{is_run}", DB::IS_RUN)
        .replace("{flushed}", DB::FLUSHED)
        .replace("{unflushed}", DB::UNFLUSHED)
        .replace("{among}", DB::AMONG);
    let text = text
        .replace("{uuid}", DB::UUID)
        .replace("{json}", DB::JSON)
        .replace("{after}", DB::AFTER)
        .replace("{now}", DB::NOW);
    let text = text.replace("{message}", MESSAGE).replace("{published}", PUBLISHED);
    let text = tables::<DB>(namespace, &text);
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

/// A lease that ends later than twice its length from now was given before the clock of the database stepped back.
fn expired<DB: Dialect>() -> String {
    let beyond = DB::AFTER.replace('?', "2 * lease");
    format!("(lease_until <= {{now}} OR (lease_until < {{never}} AND lease_until > {beyond}))")
}

/// Puts every `{name}` where the store keeps it.
pub(crate) fn tables<DB: Dialect>(namespace: &str, text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        out += before;
        out += &DB::table(namespace, name);
        rest = after;
    }
    out + rest
}

/// The text of a statement, and whether the server may know it by a name.
#[derive(Debug)]
pub(crate) struct Statement {
    sql: SqlStr,
    named: bool,
}

impl Statement {
    pub(crate) fn new<DB: Dialect>(namespace: &str, text: &str, named: bool) -> Self {
        Self { sql: render::<DB>(namespace, text), named }
    }

    pub(crate) fn as_str(&self) -> &str {
        self.sql.as_str()
    }
}

pub(crate) fn query<'q, DB: Dialect>(statement: &Statement) -> Query<'q, DB, DB::Arguments> {
    sqlx::query(statement.sql.clone()).persistent(statement.named)
}

pub(crate) fn scalar<'q, DB: Dialect, T>(statement: &Statement) -> QueryScalar<'q, DB, T, DB::Arguments>
where
    (T,): for<'r> FromRow<'r, DB::Row>,
{
    sqlx::query_scalar(statement.sql.clone()).persistent(statement.named)
}

pub(crate) fn rows<'q, DB: Dialect, T>(statement: &Statement) -> QueryAs<'q, DB, T, DB::Arguments>
where
    T: for<'r> FromRow<'r, DB::Row>,
{
    sqlx::query_as(statement.sql.clone()).persistent(statement.named)
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
            "UPDATE \"my_events\".outbox SET a = $1, b = (clock_timestamp() + $2 * interval '1 microsecond') WHERE c = $3"
        );
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn sqlite_prefixes_its_tables() {
        let sql = render::<sqlx::Sqlite>("twinbox", "SELECT a FROM {inbox} WHERE b = ?");
        assert_eq!(sql.as_str(), "SELECT a FROM twinbox_inbox WHERE b = ?");
    }
}
