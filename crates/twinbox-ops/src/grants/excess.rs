//! Rights that a role has, or can get, and does not need.
use super::{Right, Role, rights};
use crate::{
    Ops,
    deviation::{Deviation, DeviationKind as Kind, place, quoted, shown},
};
use twinbox_sql::{
    Dialect, Error,
    engine::{Statement, TextColumns},
};

/// From this version on Postgres has rights on settings.
const SETTINGS_SINCE: u32 = 150_000;

/// The catalog names objects of these types as they are, and others as a statement does.
const UNQUOTED: [&str; 7] = ["TABLE", "SEQUENCE", "TYPE", "PROCEDURE", "FUNCTION", "PACKAGE", "PACKAGE BODY"];

/// One thing that a role holds.
struct Held {
    kind: String,
    object_type: String,
    object: String,
    /// Empty: all of the object.
    column: String,
    privilege: String,
    is_grantable: bool,
    /// The role itself, everybody, or a role that it is a member of.
    grantee: String,
    /// The membership that leads to `grantee`. Empty: none is needed.
    through: String,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns what the database role `name` has beyond its purposes in `GRANTS.md`, sorted by kind: rights
    /// on the tables, granted to it, to everybody, or to a role that it is a member of or may become; the
    /// right to create in the schema `public`, because what is made there sessions of other roles may run;
    /// attributes; what it owns; functions and views with the rights of others. Without a name: the
    /// connected role. None: the database has no roles.
    ///
    /// On MySQL each role of the server that an account has is such a thing. Its rights are not looked at.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn excess_rights(
        &self,
        name: Option<&str>,
        purposes: &[Role],
    ) -> Result<Option<Vec<Deviation>>, Error> {
        let setup = &self.engine.sql().setup;
        if setup.rights_held.is_absent() {
            return Ok(None);
        }
        let mut held = self.held(&setup.rights_held, name).await?;
        if held.iter().any(|row| row.kind == "everything") {
            let found = "everything: it owns the tables, or the server".to_owned();
            let remedy = "revoke what it does not need".to_owned();
            return Ok(Some(vec![Deviation { kind: Kind::Right, found, remedy }]));
        }
        let mut all = Vec::new();
        let server = held.iter().find(|row| row.kind == "server");
        let version = server.and_then(|row| row.object.parse::<u32>().ok());
        if version.is_none_or(|version| version >= SETTINGS_SINCE) {
            match self.held(&setup.more_rights_held, name).await {
                Ok(more) => held.extend(more),
                Err(error) if error.is_forbidden() => {
                    let found = "roles and procedures cannot be read by this connection".to_owned();
                    let remedy = "connect as an account that may read the database `mysql`".to_owned();
                    all.push(Deviation { kind: Kind::NotVisible, found, remedy });
                }
                Err(error) => return Err(error),
            }
        }
        let is_mysql = DB::NAME == "MySQL";
        let documented = Vec::from_iter(purposes.iter().flat_map(|role| rights(*role, is_mysql)));
        let namespace = &self.engine.catalog().namespace;
        let is_beyond = |row: &&Held| row.is_beyond(&documented, namespace);
        let beyond = Vec::from_iter(held.iter().filter(is_beyond));
        for rows in beyond.chunk_by(|a, b| a.is_beside(b)) {
            let (first, what) = (rows[0], listed(rows, quoted::<DB>));
            let kind = if first.kind == "parameter" { Kind::Setting } else { Kind::Right };
            let (rights, on) = (listed(rows, shown::<DB>), first.named::<DB>());
            let found = format!("{rights} ON {on}{}", first.by());
            let remedy = format!("REVOKE {what} ON {} FROM {}", first.place::<DB>(namespace), first.grantee);
            all.push(Deviation { kind, found, remedy });
        }
        let grantable = Vec::from_iter(held.iter().filter(|row| row.is_grantable));
        for rows in grantable.chunk_by(|a, b| a.is_beside(b)) {
            let (first, what) = (rows[0], listed(rows, quoted::<DB>));
            let (rights, on) = (listed(rows, shown::<DB>), first.named::<DB>());
            let found = format!("may grant {rights} ON {on} to others{}", first.by());
            // MySQL has one for all rights on an object.
            let of = if is_mysql { String::new() } else { format!(" FOR {what}") };
            let (place, grantee) = (first.place::<DB>(namespace), &first.grantee);
            let remedy = format!("REVOKE GRANT OPTION{of} ON {place} FROM {grantee}");
            all.push(Deviation { kind: Kind::GrantOption, found, remedy });
        }
        all.extend(held.iter().filter_map(|row| row.deviation::<DB>(namespace)));
        all.sort_by_key(|one| one.kind);
        Ok(Some(all))
    }

    async fn held(&self, statement: &Statement, name: Option<&str>) -> Result<Vec<Held>, Error> {
        let name = name.unwrap_or_default().to_owned();
        let namespace = self.engine.catalog().namespace.clone();
        let rows = self.engine.fetch_all(statement, |query| query.bind(name).bind(namespace)).await?;
        let read = |row: &DB::Row| {
            Ok::<_, Error>(Held {
                kind: row.text("kind")?,
                object_type: row.text("object_type")?,
                object: row.text("object")?,
                column: row.text("of_column")?,
                privilege: row.text("privilege")?,
                is_grantable: row.text("is_grantable")? == "YES",
                grantee: row.text("grantee")?,
                through: row.text("through")?,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// The rights on one object, as a `GRANT` names them. `named`: how names of columns are written.
fn listed(rows: &[&Held], named: fn(&str) -> String) -> String {
    let parts = rows.chunk_by(|a, b| a.privilege == b.privilege && a.is_of_column() && b.is_of_column());
    let parts = parts.map(|part| {
        let (first, columns) = (part[0], part.iter().map(|row| named(&row.column)));
        match first.is_of_column() {
            true => format!("{} ({})", first.privilege, Vec::from_iter(columns).join(", ")),
            false => first.privilege.clone(),
        }
    });
    Vec::from_iter(parts).join(", ")
}

impl Held {
    /// Returns whether it is a right that no purpose gives.
    fn is_beyond(&self, documented: &[Right<'_>], namespace: &str) -> bool {
        let table = self.object.strip_prefix(&format!("{namespace}_")).unwrap_or(&self.object);
        match (&*self.kind, &*self.object_type, &*self.privilege) {
            ("parameter", ..) => true,
            ("right", "SCHEMA", privilege) => privilege == "CREATE",
            // Everybody who connects may. Functions of the schema run with the rights of their caller.
            ("right", "DATABASE", "CONNECT" | "TEMPORARY") | ("right", "ROUTINE", _) => false,
            // On MySQL that is no right.
            ("right", "SERVER" | "DATABASE" | "TABLE", "USAGE") => false,
            ("right", _, privilege) => {
                !documented.iter().any(|right| right.covers(privilege, table, &self.column))
            }
            _ => false,
        }
    }

    fn is_of_column(&self) -> bool {
        !self.column.is_empty()
    }

    /// Returns whether both are about one object and one grantee.
    fn is_beside(&self, other: &Self) -> bool {
        (&self.kind, &self.object_type, &self.object, &self.grantee)
            == (&other.kind, &other.object_type, &other.object, &other.grantee)
    }

    fn is_unquoted(&self) -> bool {
        UNQUOTED.contains(&&*self.object_type)
    }

    /// The object, as a finding names it.
    fn named<DB: Dialect>(&self) -> String {
        let name = if self.is_unquoted() { shown::<DB>(&self.object) } else { self.object.clone() };
        match &*self.object_type {
            "TABLE" => name,
            _ if name.ends_with(".*") => name,
            object_type => format!("{object_type} {name}"),
        }
    }

    /// The object, as a `REVOKE` names it.
    fn place<DB: Dialect>(&self, namespace: &str) -> String {
        let place = || place::<DB>(namespace, &self.object);
        match &*self.object_type {
            "TABLE" => place(),
            object_type if self.is_unquoted() => format!("{object_type} {}", place()),
            _ => self.named::<DB>(),
        }
    }

    /// Why the role has what was given to somebody else.
    fn by(&self) -> String {
        match &*self.grantee {
            "PUBLIC" => ", as everybody".to_owned(),
            grantee if !self.through.is_empty() => format!(", as a member of {grantee}"),
            _ => String::new(),
        }
    }

    /// Returns a difference that is not a right on an object.
    fn deviation<DB: Dialect>(&self, namespace: &str) -> Option<Deviation> {
        let Self { object_type, object, privilege, grantee, through, .. } = self;
        let direct = if through.is_empty() { object } else { through };
        let (kind, found, remedy) = match &*self.kind {
            "default" => (
                Kind::Right,
                format!("{privilege} ON {object_type} to come{}", self.by()),
                format!(
                    "ALTER DEFAULT PRIVILEGES {object} REVOKE {privilege} ON {object_type} FROM {grantee}"
                ),
            ),
            "admin" => (
                Kind::GrantOption,
                format!("may make others members of {object}"),
                match direct == object {
                    true => format!("REVOKE ADMIN OPTION FOR {object} FROM {grantee}"),
                    false => format!("REVOKE {direct} FROM {grantee}"),
                },
            ),
            "ownership" => {
                let table = if object_type == "TABLE" { "TABLE " } else { "" };
                let place = self.place::<DB>(namespace);
                (
                    Kind::Ownership,
                    format!("owns {table}{}{}", self.named::<DB>(), self.by()),
                    format!("ALTER {table}{place} OWNER TO {privilege}"),
                )
            }
            "membership" if object_type == "PROXY" => (
                Kind::Membership,
                format!("may act as {object}"),
                format!("REVOKE PROXY ON {object} FROM {grantee}"),
            ),
            "membership" => (
                Kind::Membership,
                format!("is a member of {object}"),
                format!("REVOKE {direct} FROM {grantee}"),
            ),
            "attribute" => (
                Kind::Attribute,
                format!("{object}{}", self.by()),
                format!("ALTER ROLE {grantee} NO{object}"),
            ),
            "setting" => (
                Kind::Setting,
                format!("{object} in its sessions"),
                format!("ALTER {privilege} RESET session_replication_role"),
            ),
            "function" | "outside" => {
                let kind = if self.kind == "function" { Kind::Function } else { Kind::OutsideSchema };
                let found = format!("{} has the rights of {privilege}", self.named::<DB>());
                let remedy = match &**object_type {
                    _ if grantee.is_empty() => "revoke the membership that leads to it".to_owned(),
                    "VIEW" => format!("REVOKE ALL ON {object} FROM {grantee}"),
                    _ => format!("REVOKE EXECUTE ON {} FROM {grantee}", self.place::<DB>(namespace)),
                };
                (kind, found, remedy)
            }
            _ => return None,
        };
        Some(Deviation { kind, found, remedy })
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
