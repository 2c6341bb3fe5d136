//! Statements over a table of the application and the side effects of its rows.
use crate::{
    Dialect,
    catalog::Catalog,
    dialect::{SOURCE_IDS, SOURCE_ORPHANS, SOURCE_PAGE},
    render::render,
    statement::Statement,
};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};

/// A table of the application, as its code names it in SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceTable {
    /// The table.
    pub table: &'static str,
    /// The column with the id, which is unique.
    pub id: &'static str,
    /// An expression of a row `s`: the source of its effects.
    pub source: Option<&'static str>,
    /// A condition of the rows that have effects.
    pub condition: &'static str,
    /// An expression: since when a row has fulfilled the condition.
    pub time: &'static str,
}

/// The statements about one table.
#[derive(Debug)]
pub struct SourceStatements {
    /// A page of rows after an id. Binds: how the kind begins, twice; least age, most age, id, limit.
    pub page: Statement,
    /// The row with an id. Binds as of a page.
    pub one: Statement,
    /// The first and the last id.
    pub ids: Statement,
    /// The effects of a range of positions without a row. Binds: position before, last position, how the kind
    /// begins, twice.
    pub orphans: Statement,
}

impl SourceTable {
    /// Renders the statements of a table.
    pub fn statements<DB: Dialect>(&self, catalog: &Catalog) -> SourceStatements {
        let statement = |text: &str, compared: &str| {
            // The parts of the application come last: nothing of them is taken for a bind or a fragment.
            let sql = render::<DB>(&catalog.namespace, text);
            let source = self.source.map_or_else(|| format!("s.{}", self.id), |source| format!("({source})"));
            let sql = [
                ("[compared]", compared),
                ("[id]", self.id),
                ("[source]", &source),
                ("[condition]", self.condition),
                ("[time]", self.time),
                ("[table]", self.table),
            ]
            .into_iter()
            .fold(sql.as_str().to_owned(), |sql, (mark, text)| sql.replace(mark, text));
            Statement::new(AssertSqlSafe(sql).into_sql_str(), catalog.is_named)
        };
        SourceStatements {
            page: statement(SOURCE_PAGE, ">"),
            one: statement(SOURCE_PAGE, "="),
            ids: statement(SOURCE_IDS, ""),
            orphans: statement(SOURCE_ORPHANS, ""),
        }
    }
}
