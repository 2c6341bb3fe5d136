//! The secret of advisory locks, as this process knows it.
use crate::{Error, ErrorKind, catalog::Catalog, lock_secret::LockSecret, statement::scalar};
use sqlx::{PgConnection, Postgres};

/// Returns the secret, which is read once for each store.
pub(super) async fn known<'a>(
    conn: &mut PgConnection,
    catalog: &'a Catalog,
) -> Result<&'a LockSecret, Error> {
    catalog.lock_secret.get_or_try_init(|| read(conn, catalog)).await
}

async fn read(conn: &mut PgConnection, catalog: &Catalog) -> Result<LockSecret, Error> {
    let secret = scalar::<Postgres, Vec<u8>>(&catalog.sql.setup.lock_secret).fetch_optional(conn).await?;
    secret.map(LockSecret::from_bytes).ok_or_else(gone)
}

/// The error if the table has not the secret of this process.
pub(super) fn gone() -> Error {
    let what =
        "the row of the table `lock_secret` is gone, or was changed: restore it, or restart this process";
    Error::new(ErrorKind::Schema, what)
}
