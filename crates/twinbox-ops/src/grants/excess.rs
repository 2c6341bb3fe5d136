//! Rights that a role has and does not need.
use super::{Right, Role, rights};
use crate::Ops;
use twinbox_sql::{Dialect, Error, engine::TextColumns};

impl<DB: Dialect> Ops<DB> {
    /// Returns the rights on the tables that the database role `name` has beyond those of its purposes in
    /// `GRANTS.md`, as the rest of a `GRANT`, and the right to create in the schema `public`: what is made
    /// there, sessions of other roles may run. Without a name: the connected role. None: the database has no
    /// roles. On MySQL what a role of the server gives an account does not count.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn excess_rights(
        &self,
        name: Option<&str>,
        purposes: &[Role],
    ) -> Result<Option<Vec<String>>, Error> {
        let held = &self.engine.sql().setup.rights_held;
        if held.is_absent() {
            return Ok(None);
        }
        let namespace = &self.engine.catalog().namespace;
        let (name, schema) = (name.unwrap_or_default().to_owned(), namespace.clone());
        let rows = self.engine.fetch_all(held, |query| query.bind(name).bind(schema)).await?;
        let is_mysql = DB::NAME == "MySQL";
        let documented = Vec::from_iter(purposes.iter().flat_map(|role| rights(*role, is_mysql)));
        let mut excess: Vec<(String, String, Vec<String>)> = Vec::new();
        for row in &rows {
            let (object, column) = (row.text("object")?, row.text("of_column")?);
            let privilege = row.text("privilege")?;
            if privilege == "OWNER" {
                return Ok(Some(vec!["everything: it owns the tables, or the server".to_owned()]));
            }
            let table = object.strip_prefix(&format!("{namespace}_")).unwrap_or(&object);
            if documented.iter().any(|right| right.covers(&privilege, table, &column)) {
                continue;
            }
            match excess.last_mut() {
                Some((last, of, columns))
                    if *last == privilege && *of == object && !columns.is_empty() && !column.is_empty() =>
                {
                    columns.push(column);
                }
                _ if column.is_empty() => excess.push((privilege, object, Vec::new())),
                _ => excess.push((privilege, object, vec![column])),
            }
        }
        let named = excess.into_iter().map(|(privilege, object, columns)| match &columns[..] {
            [] => format!("{privilege} ON {object}"),
            columns => format!("{privilege} ({}) ON {object}", columns.join(", ")),
        });
        Ok(Some(named.collect()))
    }
}

impl Right<'_> {
    /// Returns whether this right gives a privilege on a table, or on a column of it.
    fn covers(&self, privilege: &str, table: &str, column: &str) -> bool {
        self.privilege == privilege
            && self.table == Some(table)
            && self.column.is_none_or(|own| own == column)
    }
}
