//! The databases of the build. Where it lacks one, the names mean SQLite: what uses them compiles, and
//! [`cases`](super::cases) makes no tests of them.

#[cfg(feature = "mysql")]
pub(crate) use sqlx::MySql;
#[cfg(not(feature = "mysql"))]
pub(crate) use sqlx::Sqlite as MySql;
#[cfg(feature = "postgres")]
pub(crate) use sqlx::{PgConnection, PgPool, Postgres, postgres::PgPoolOptions};
#[cfg(not(feature = "postgres"))]
pub(crate) use sqlx::{
    Sqlite as Postgres, SqliteConnection as PgConnection, SqlitePool as PgPool,
    sqlite::SqlitePoolOptions as PgPoolOptions,
};

/// The sessions of MySQL or MariaDB. MySQL cannot read the old table while a session has bytes in its
/// statement.
pub(crate) const PROCESSES: &str =
    "/*!80400 performance_schema.processlist */ /*M! information_schema.processlist */";
