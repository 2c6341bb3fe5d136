//! The rights that database roles need, as `GRANTS.md` grants them.
mod excess;

use crate::Ops;
use std::{collections::HashSet, str::FromStr};
use twinbox_sql::{
    Dialect, Error, ErrorKind,
    engine::{Connection, Statement, Text, check_namespace, scalar},
};

const PAGE: &str = include_str!("../GRANTS.md");
/// Postgres cuts longer names.
const ROLE_BYTES_MAX: usize = 63;
/// Tables that MySQL does not have, or that no role of it needs.
const NOT_ON_MYSQL: [&str; 3] = ["sentinel", "locks", "lock_secret"];
/// A column that MySQL does not have.
const COLUMN_NOT_ON_MYSQL: &str = "txid";

/// The purpose of a database role, from which its rights follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// A role that publishes only.
    Producer,
    /// A role that publishes, and answers requests with a key and webhooks.
    Web,
    /// A role that relays and consumes.
    Runtime,
    /// A role that purges and retires.
    Keeper,
    /// A role that runs the program `twinbox`.
    Operator,
    /// A role that blanks payloads.
    Redactor,
    /// A role that reads everything and changes nothing.
    Viewer,
}

impl Role {
    /// Returns the word for this role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Web => "web",
            Self::Runtime => "runtime",
            Self::Keeper => "keeper",
            Self::Operator => "operator",
            Self::Redactor => "redactor",
            Self::Viewer => "viewer",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| {
            format!(
                "no role {text:?}: write `producer`, `web`, `runtime`, `keeper`, `operator`, `redactor` or \
                 `viewer`"
            )
        })
    }
}

impl Role {
    /// All roles, as the page lists them.
    pub const ALL: [Self; 7] = [
        Self::Producer,
        Self::Web,
        Self::Runtime,
        Self::Keeper,
        Self::Operator,
        Self::Viewer,
        Self::Redactor,
    ];

    /// The name of the role on the page.
    fn documented(self) -> String {
        format!("shop_{}", self.as_str())
    }
}

/// The statements of a block of the page: the first one is for all databases with roles, the second one adds
/// to it on MySQL.
fn block(number: usize) -> impl Iterator<Item = &'static str> {
    let block = PAGE.split("```sql\n").nth(1 + number);
    let sql = block.and_then(|rest| rest.split("```").next()).unwrap_or_default();
    sql.split(';').filter(|statement| statement.contains("GRANT "))
}

/// The roles, or those of the page if there are none.
fn or_documented(roles: &[(String, Role)]) -> Vec<(String, Role)> {
    match roles {
        [] => Role::ALL.map(|role| (role.documented(), role)).to_vec(),
        roles => roles.to_vec(),
    }
}

/// Returns the SQL of `GRANTS.md` for a namespace and for database roles with their purposes. Without roles:
/// the whole page with its names. The owner of the tables runs them after every migration. They create no
/// role and revoke no right.
///
/// # Errors
/// [`ErrorKind::Configuration`]: the namespace is not a plain lower-case identifier, or the name of a role is
/// empty, longer than Postgres takes, or has a NUL.
pub fn grants_sql(namespace: &str, roles: &[(String, Role)]) -> Result<String, Error> {
    check_namespace(namespace)?;
    let roles = &or_documented(roles);
    if let Some((name, _)) =
        roles.iter().find(|(name, _)| name.is_empty() || name.len() > ROLE_BYTES_MAX || name.contains('\0'))
    {
        let what = format!("the role name {name:?} must have 1 to {ROLE_BYTES_MAX} bytes and no NUL");
        return Err(Error::new(ErrorKind::Configuration, what));
    }
    let mut out = String::new();
    for statement in block(0) {
        let Some((what, granted)) = statement.rsplit_once("TO ") else { continue };
        let granted = Vec::from_iter(granted.split(',').map(str::trim));
        let to = roles.iter().filter(|(_, role)| granted.contains(&role.documented().as_str()));
        let to = Vec::from_iter(to.map(|(name, _)| format!("\"{}\"", name.replace('"', "\"\""))));
        if !to.is_empty() {
            let schema = format!("\"{namespace}\"");
            let what = what.replace("SCHEMA twinbox", &format!("SCHEMA {schema}"));
            let what = what.replace("twinbox.", &format!("{schema}."));
            out += &format!("{}TO {};\n", what.trim_start(), to.join(", "));
        }
    }
    Ok(out)
}

/// Returns the SQL of `GRANTS.md` for MySQL and MariaDB, as [`grants_sql`] does. It is run in the database of
/// the tables. A role is an account, `NAME` or `NAME@HOST`, or a role of the server.
///
/// # Errors
/// [`ErrorKind::Configuration`]: the namespace is not a plain lower-case identifier, or the name of a role is
/// empty, has a NUL, or has more than one `@`.
pub fn grants_sql_mysql(namespace: &str, roles: &[(String, Role)]) -> Result<String, Error> {
    check_namespace(namespace)?;
    let roles = &or_documented(roles);
    let mut out = String::new();
    for (name, role) in roles {
        let (user, host) = name.rsplit_once('@').unwrap_or((name, "%"));
        if user.is_empty() || host.is_empty() || user.contains('@') || name.contains('\0') {
            let what = format!("the role name {name:?} must be NAME or NAME@HOST, without a NUL");
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        let rights = rights(*role, true);
        let mut objects = Vec::from_iter(rights.iter().filter_map(|right| right.table));
        let mut seen = HashSet::new();
        objects.retain(|object| seen.insert(*object));
        for object in objects {
            let of_object = rights.iter().filter(|right| right.table == Some(object));
            let what = granted(&Vec::from_iter(of_object));
            let kind = if what == "EXECUTE" { "PROCEDURE " } else { "" };
            out += &format!("GRANT {what} ON {kind}`{namespace}_{object}` TO {};\n", account(name));
        }
    }
    Ok(out)
}

/// The rights on one object, as a `GRANT` names them.
fn granted(rights: &[&Right<'_>]) -> String {
    let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
    for right in rights {
        let is_on_all = rights.iter().any(|r| r.privilege == right.privilege && r.column.is_none());
        let column = right.column.filter(|_| !is_on_all).map(|column| format!("`{column}`"));
        match parts.iter_mut().find(|(privilege, _)| *privilege == right.privilege) {
            Some((_, columns)) => columns.extend(column),
            None => parts.push((right.privilege, Vec::from_iter(column))),
        }
    }
    let parts = parts.into_iter().map(|(privilege, columns)| match &columns[..] {
        [] => privilege.to_owned(),
        columns => format!("{privilege} ({})", columns.join(", ")),
    });
    Vec::from_iter(parts).join(", ")
}

/// An account of MySQL, quoted.
fn account(name: &str) -> String {
    let quoted = |name: &str| format!("'{}'", name.replace('\\', "\\\\").replace('\'', "''"));
    match name.rsplit_once('@') {
        Some((name, host)) => format!("{}@{}", quoted(name), quoted(host)),
        None => quoted(name),
    }
}

/// Returns the rights of `role` in `GRANTS.md` as privilege, table or procedure, and column. No table: the
/// schema. No column: the whole table.
#[doc(hidden)]
pub fn documented_rights(
    role: Role,
    on_mysql: bool,
) -> Vec<(&'static str, Option<&'static str>, Option<&'static str>)> {
    rights(role, on_mysql).into_iter().map(|right| (right.privilege, right.table, right.column)).collect()
}

/// One right on one object.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Right<'a> {
    privilege: &'a str,
    /// None: on the whole table.
    column: Option<&'a str>,
    /// A table or a procedure. None: the schema.
    table: Option<&'a str>,
}

/// The rights of a purpose, by the statements of the page.
fn rights(role: Role, on_mysql: bool) -> Vec<Right<'static>> {
    let name = role.documented();
    let mut rights = Vec::new();
    for statement in block(0).chain(block(1).filter(|_| on_mysql)) {
        let Some((_, grant)) = statement.split_once("GRANT ") else { continue };
        let Some((what, rest)) = grant.split_once(" ON ") else { continue };
        let Some((objects, roles)) = rest.split_once("TO ") else { continue };
        if !roles.split(',').any(|role| role.trim() == name) {
            continue;
        }
        for object in objects.split(',').map(str::trim) {
            let table = object.split_once("twinbox.").map(|(_, table)| table);
            if on_mysql && table.is_none_or(|table| NOT_ON_MYSQL.contains(&table)) {
                continue;
            }
            for (privilege, columns) in privileges(what) {
                match columns {
                    None => rights.push(Right { privilege, column: None, table }),
                    Some(columns) => {
                        let columns = columns.split(',').map(str::trim);
                        let columns = columns.filter(|column| !on_mysql || *column != COLUMN_NOT_ON_MYSQL);
                        rights.extend(columns.map(|column| Right { privilege, column: Some(column), table }));
                    }
                }
            }
        }
    }
    rights
}

/// Splits `SELECT, UPDATE (a, b)` into privileges with their columns.
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

impl<DB: Dialect> Ops<DB> {
    /// Returns the rights of `role` in `GRANTS.md` that the database role `name` lacks, as the rest of a
    /// `GRANT`. Without a name: the connected role. None: the database has no roles.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: there is no such role. The database refused or is away.
    pub async fn missing_rights(&self, name: Option<&str>, role: Role) -> Result<Option<Vec<String>>, Error> {
        let (catalog, has_right) = (self.engine.catalog(), &self.engine.sql().setup.has_right);
        if has_right.is_absent() {
            return Ok(None);
        }
        let (mut conn, mut missing) = (self.engine.connection().await?, Vec::new());
        let name = name.unwrap_or_default();
        if !has::<DB>(&mut conn, has_right, [name, "", "", ""]).await? {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no database role {name:?}")));
        }
        // Few accounts may read the table of the server with the rights on procedures.
        let rights =
            rights(role, DB::NAME == "MySQL").into_iter().filter(|right| right.privilege != "EXECUTE");
        for Right { privilege, column, table } in rights {
            let object = match table {
                Some(table) => DB::table(&catalog.namespace, table),
                None => catalog.namespace.clone(),
            };
            if !has::<DB>(&mut conn, has_right, [name, &object, privilege, column.unwrap_or_default()])
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

    /// Returns the database role of this connection. None: the database has no roles.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn role(&self) -> Result<Option<String>, Error> {
        let role = &self.engine.sql().setup.role;
        if role.is_absent() {
            return Ok(None);
        }
        let mut conn = self.engine.connection().await?;
        let name = scalar::<DB, Text>(role).fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(Some(name.0))
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
        let has = |role, privilege, column, table| {
            rights(role, false).contains(&Right { privilege, column, table })
        };
        assert!(has(Role::Producer, "INSERT", Some("payload"), Some("outbox")));
        for column in [None, Some("position"), Some("txid")] {
            assert!(!has(Role::Producer, "INSERT", column, Some("outbox")), "{column:?}");
        }
        assert!(has(Role::Producer, "SELECT", Some("message_id"), Some("delayed_messages")));
        assert!(!has(Role::Producer, "SELECT", None, Some("outbox")));
        assert!(has(Role::Runtime, "UPDATE", Some("given_up_at"), Some("dead_letters")));
        assert!(has(Role::Operator, "SELECT", None, Some("delayed_messages")));
        assert!(has(Role::Redactor, "UPDATE", Some("updated_at"), Some("idempotency_keys")));
        for role in Role::ALL {
            let rights = rights(role, false);
            assert!(rights.iter().any(|right| right.privilege == "USAGE"), "{role:?}");
            assert!(rights.len() > 5, "{role:?}: {rights:?}");
            let known = ["USAGE", "SELECT", "INSERT", "UPDATE", "DELETE"];
            assert!(rights.iter().all(|right| known.contains(&right.privilege)), "{rights:?}");
        }
    }

    #[test]
    fn grants_on_mysql_name_each_table_and_account_alone() {
        let roles = [("web".to_owned(), Role::Producer), ("o'dd@10.0.0.%".to_owned(), Role::Producer)];
        let sql = grants_sql_mysql("my_events", &roles).unwrap();
        assert!(sql.contains("GRANT SELECT ON `my_events_meta` TO 'web';\n"), "{sql}");
        assert!(sql.contains("ON `my_events_meta` TO 'o''dd'@'10.0.0.%';\n"), "{sql}");
        assert!(sql.contains("GRANT EXECUTE ON PROCEDURE `my_events_publish` TO 'web';\n"), "{sql}");
        assert!(sql.contains("GRANT INSERT (`id`, `type`, `version`, `key`, "), "{sql}");
        assert!(!sql.contains("SCHEMA") && !sql.contains("sentinel") && !sql.contains("shop_"), "{sql}");
        assert!(block(1).count() > 5, "the rights that MySQL needs on top");
        let all = grants_sql_mysql("twinbox", &[]).unwrap();
        // A right on the whole table makes those on its columns needless.
        assert!(all.contains("GRANT SELECT, INSERT, UPDATE, DELETE ON `twinbox_inbox` TO 'shop_runtime';\n"));
        for name in ["", "a\0", "@localhost", "a@", "a@b@c"] {
            let refused = grants_sql_mysql("twinbox", &[(name.to_owned(), Role::Keeper)]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Configuration);
        }
    }

    #[test]
    fn grants_are_for_the_roles_and_the_namespace_that_are_named() {
        let roles = [("web".to_owned(), Role::Producer), ("o\"dd".to_owned(), Role::Producer)];
        let sql = grants_sql("my_events", &roles).unwrap();
        assert!(sql.starts_with("GRANT USAGE ON SCHEMA \"my_events\" TO \"web\", \"o\"\"dd\";\n"), "{sql}");
        assert!(
            !sql.contains("shop_") && !sql.contains("twinbox.") && !sql.contains("\"my_events\".ticks"),
            "{sql}"
        );
        let all = grants_sql("twinbox", &[]).unwrap();
        assert_eq!(all.matches("GRANT ").count(), block(0).count());
        for (namespace, role) in
            [("My", "web"), ("a\"; DROP", "web"), ("twinbox", ""), ("twinbox", &"x".repeat(64))]
        {
            let refused = grants_sql(namespace, &[(role.to_owned(), Role::Keeper)]).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Configuration, "{namespace} {role}");
        }
    }
}
