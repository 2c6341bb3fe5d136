//! One column of one row, read and written under the lock of the row.
use crate::{Dialect, Error, ErrorKind, InTransaction, scope::Scope, statement::query_of};
use sqlx::{AssertSqlSafe, Encode, Type};

/// A column. Names are written as in SQL, with a schema or quotes where they need them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) table: &'static str,
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
}

impl Column {
    /// Reads and locks the row with this id until the transaction ends. Its value is the column `value`.
    pub(crate) async fn lock<'q, DB, Id>(
        &self,
        tx: &mut impl InTransaction<DB>,
        id: Id,
        as_type: &str,
    ) -> Result<Option<DB::Row>, Error>
    where
        DB: Dialect,
        Id: Encode<'q, DB> + Type<DB> + Send + 'q,
    {
        let Self { table, id: id_column, name } = *self;
        let (conn, scope) = tx.parts();
        let (bind, lock) = (if DB::NUMBERED_BINDS { "$1" } else { "?" }, DB::LOCK_ROW);
        let read = format!(
            "SELECT CAST({name} AS {as_type}) AS value FROM {table} WHERE {id_column} = {bind} {lock}"
        );
        let read = query_of::<DB>(AssertSqlSafe(read), named(scope)).for_caller().bind(id);
        Ok(read.fetch_optional(&mut *conn).await?)
    }

    /// Sets the column of the row with this id to `expression`, in which `?` is `value`.
    pub(crate) async fn set<'q, DB, Id, T>(
        &self,
        tx: &mut impl InTransaction<DB>,
        id: Id,
        expression: &str,
        value: T,
    ) -> Result<(), Error>
    where
        DB: Dialect,
        Id: Encode<'q, DB> + Type<DB> + Send + 'q,
        T: Encode<'q, DB> + Type<DB> + Send + 'q,
    {
        let Self { table, id: id_column, name } = *self;
        let (conn, scope) = tx.parts();
        let (first, second) = if DB::NUMBERED_BINDS { ("$1", "$2") } else { ("?", "?") };
        let expression = expression.replace('?', first);
        let write = format!("UPDATE {table} SET {name} = {expression} WHERE {id_column} = {second}");
        let write = query_of::<DB>(AssertSqlSafe(write), named(scope)).for_caller().bind(value).bind(id);
        match DB::rows_affected(&write.execute(&mut *conn).await?) {
            1 => Ok(()),
            0 => Err(wrong(format!("a row of {table} was not updated: a trigger or a policy keeps it"))),
            _ => Err(wrong(format!("{id_column} is not unique in {table}"))),
        }
    }
}

/// Whether the server may keep the statement under a name. Outside a handler the pooler of the connection is
/// unknown.
fn named(scope: Option<&mut Scope>) -> bool {
    scope.is_some_and(|scope| scope.catalog.is_named)
}

pub(crate) fn wrong(what: String) -> Error {
    Error::new(ErrorKind::Configuration, what)
}
