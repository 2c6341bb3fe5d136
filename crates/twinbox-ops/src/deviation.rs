//! A difference from `GRANTS.md` or the migrations, and how to remove it.
use std::fmt;
use twinbox_sql::Dialect;

/// A difference from `GRANTS.md` or the migrations, and how to remove it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deviation {
    /// The part of the database that differs.
    pub kind: DeviationKind,
    /// The difference.
    pub found: String,
    /// How to remove it: a statement, where there is one. Names that others have chosen are quoted in it.
    pub remedy: String,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.found, self.remedy)
    }
}

/// The part of the database that a [`Deviation`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeviationKind {
    /// A right on an object of the store, on its schema or its database, or on the server.
    Right,
    /// A right to give rights to others.
    GrantOption,
    /// An object of the store, or its database, that the role owns.
    Ownership,
    /// A role that this one is a member of, and that itself is a right.
    Membership,
    /// An attribute of a role, such as `CREATEROLE`.
    Attribute,
    /// A function in the schema of the store that runs with the rights of another role.
    Function,
    /// A right on a setting, or a setting that turns triggers off.
    Setting,
    /// A function or a view outside of the schema that runs with the rights of another role.
    OutsideSchema,
    /// A trigger of the store that is missing or disabled.
    Trigger,
    /// A trigger on a table of the store that no migration makes.
    UnknownTrigger,
    /// A rule on a table of the store.
    Rule,
    /// Row-level security on a table of the store: it hides rows.
    RowSecurity,
    /// A part of the catalog that this connection may not read. It may hold a difference.
    NotVisible,
}

impl DeviationKind {
    /// Returns the word for this kind, in the plural.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Right => "rights",
            Self::GrantOption => "grant options",
            Self::Ownership => "objects",
            Self::Membership => "memberships",
            Self::Attribute => "attributes",
            Self::Function => "functions",
            Self::Setting => "settings",
            Self::OutsideSchema => "functions and views outside of the schema",
            Self::Trigger => "triggers",
            Self::UnknownTrigger => "unknown triggers",
            Self::Rule => "rules",
            Self::RowSecurity => "row-level security",
            Self::NotVisible => "objects that are not visible",
        }
    }

    /// Returns whether a person has to review it, because it may be right as it is.
    pub const fn needs_review(self) -> bool {
        matches!(self, Self::OutsideSchema | Self::UnknownTrigger | Self::NotVisible)
    }
}

/// A name in a statement. Others choose names, and a statement is run by the owner of the tables.
pub(crate) fn quoted<DB: Dialect>(name: &str) -> String {
    let quote = if DB::NAME == "MySQL" { "`" } else { "\"" };
    format!("{quote}{}{quote}", name.replace(quote, &quote.repeat(2)))
}

/// A name in a finding: quoted, unless it is plain.
pub(crate) fn shown<DB: Dialect>(name: &str) -> String {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { name.to_owned() } else { quoted::<DB>(name) }
}

/// The qualified name of an object in a statement. The catalog names it without its schema.
pub(crate) fn place<DB: Dialect>(namespace: &str, object: &str) -> String {
    let object = quoted::<DB>(object);
    match DB::table(namespace, "") {
        schema if schema.ends_with('.') => schema + &object,
        _ => object,
    }
}

#[cfg(all(test, feature = "mysql", feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_another_role_chose_ends_no_statement() {
        let name = "x\" ON outbox; DROP TABLE `y`; --";
        assert_eq!(quoted::<sqlx::Postgres>(name), "\"x\"\" ON outbox; DROP TABLE `y`; --\"");
        assert_eq!(quoted::<sqlx::MySql>(name), "`x\" ON outbox; DROP TABLE ``y``; --`");
        assert_eq!(shown::<sqlx::Postgres>("Outbox_2"), "Outbox_2");
        assert_eq!(place::<sqlx::Postgres>("shop", "Outbox"), "\"shop\".\"Outbox\"");
        assert_eq!(place::<sqlx::MySql>("shop", "shop_outbox"), "`shop_outbox`");
    }
}
