//! The rights that roles need, as `GRANTS.md` grants them.
use crate::{
    Dialect, Error, ErrorKind, Store,
    connection::Connection,
    sql::{Statement, scalar},
};
use std::str::FromStr;

const PAGE: &str = include_str!("../GRANTS.md");

/// What a role is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// It only publishes.
    Producer,
    /// It relays and consumes.
    Runtime,
    /// It purges and retires.
    Keeper,
    /// It runs the tool `twinbox`.
    Operator,
    /// It blanks payloads.
    Redactor,
}

impl Role {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Runtime => "runtime",
            Self::Keeper => "keeper",
            Self::Operator => "operator",
            Self::Redactor => "redactor",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Producer, Self::Runtime, Self::Keeper, Self::Operator, Self::Redactor];
        let found = all.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            format!("no role {text:?}: write `producer`, `runtime`, `keeper`, `operator` or `redactor`")
        })
    }
}

/// One right on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Right<'a> {
    privilege: &'a str,
    /// Without: on all of it.
    column: Option<&'a str>,
    /// Without: on the schema.
    table: Option<&'a str>,
}

/// The rights of a role, by the statements of the page.
fn rights(role: Role) -> Vec<Right<'static>> {
    let sql = PAGE.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap_or_default();
    let name = format!("shop_{}", role.as_str());
    let mut rights = Vec::new();
    for statement in sql.split(';') {
        let Some((_, grant)) = statement.split_once("GRANT ") else { continue };
        let Some((what, rest)) = grant.split_once(" ON ") else { continue };
        let Some((objects, roles)) = rest.split_once("TO ") else { continue };
        if !roles.split(',').any(|role| role.trim() == name) {
            continue;
        }
        for table in objects.split(',').map(str::trim) {
            let table = table.strip_prefix("twinbox.");
            for (privilege, columns) in privileges(what) {
                match columns {
                    None => rights.push(Right { privilege, column: None, table }),
                    Some(columns) => {
                        let columns = columns.split(',').map(|column| Some(column.trim()));
                        rights.extend(columns.map(|column| Right { privilege, column, table }));
                    }
                }
            }
        }
    }
    rights
}

/// `SELECT, UPDATE (a, b)` as each privilege with its columns.
fn privileges(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut found = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find([',', '(']).unwrap_or(rest.len());
        let (privilege, after) = (rest[..end].trim(), &rest[end..]);
        let columns = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        found.push((privilege, columns.map(|(columns, _)| columns)));
        rest = columns.map_or(after, |(_, after)| after).trim_start_matches([',', ' ', '\n']);
    }
    found
}

impl<DB: Dialect> Store<DB> {
    /// What a database role lacks of the rights that `GRANTS.md` grants for a purpose, as the rest of a `GRANT`. Without a
    /// name: the role that is connected. None: the database has no roles.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: there is no such role. The database refused or is away.
    pub async fn missing_rights(&self, name: Option<&str>, role: Role) -> Result<Option<Vec<String>>, Error> {
        let Some(has_right) = DB::HAS_RIGHT else { return Ok(None) };
        let has_right =
            Statement::new::<DB>(&self.statements().namespace, has_right, self.statements().named);
        let (mut conn, mut missing) = (self.connection().await?, Vec::new());
        let name = name.unwrap_or_default();
        if !has::<DB>(&mut conn, &has_right, [name, "", "", ""]).await? {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no database role {name:?}")));
        }
        for Right { privilege, column, table } in rights(role) {
            let object = match table {
                Some(table) => DB::table(&self.statements().namespace, table),
                None => self.statements().namespace.clone(),
            };
            if !has::<DB>(&mut conn, &has_right, [name, &object, privilege, column.unwrap_or_default()])
                .await?
            {
                let column = column.map_or(String::new(), |column| format!(" ({column})"));
                let schema = if table.is_none() { "SCHEMA " } else { "" };
                missing.push(format!("{privilege}{column} ON {schema}{}", object.replace('"', "")));
            }
        }
        conn.done().await?;
        Ok(Some(missing))
    }
}

/// Binds: role, object, privilege, column.
async fn has<DB: Dialect>(
    conn: &mut Connection<DB>,
    statement: &Statement,
    binds: [&str; 4],
) -> Result<bool, Error> {
    let mut query = scalar::<DB, bool>(statement);
    for bind in binds {
        query = query.bind(bind.to_owned());
    }
    Ok(query.fetch_one(&mut **conn).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_read_as_it_stands() {
        let has = |role, privilege, column, table| rights(role).contains(&Right { privilege, column, table });
        assert!(has(Role::Producer, "INSERT", None, Some("outbox")));
        assert!(has(Role::Producer, "SELECT", Some("message_id"), Some("delayed")));
        assert!(!has(Role::Producer, "SELECT", None, Some("outbox")));
        assert!(has(Role::Runtime, "UPDATE", Some("died_at"), Some("dead_letters")));
        assert!(has(Role::Operator, "SELECT", None, Some("delayed")));
        assert!(has(Role::Redactor, "UPDATE", Some("updated_at"), Some("idempotency_keys")));
        let all = [Role::Producer, Role::Runtime, Role::Keeper, Role::Operator, Role::Redactor];
        for role in all {
            let rights = rights(role);
            assert!(rights.iter().any(|right| right.privilege == "USAGE"), "{role:?}");
            assert!(rights.len() > 5, "{role:?}: {rights:?}");
            let known = ["USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"];
            assert!(rights.iter().all(|right| known.contains(&right.privilege)), "{rights:?}");
        }
    }
}
