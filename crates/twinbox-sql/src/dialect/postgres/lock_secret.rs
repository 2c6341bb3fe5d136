//! The numbers of advisory locks.
use crate::{Error, ErrorKind, catalog::Catalog, statement::scalar};
use sha2::{Digest as _, Sha256};
use sqlx::{PgConnection, Postgres};
use std::fmt;

/// The secret of the tables. Any role of the database may hold an advisory lock whose number it knows, so
/// each number is a digest of this. `Debug` does not print it.
pub(crate) struct LockSecret(Vec<u8>);

impl LockSecret {
    /// Returns the secret, which is read once for each store.
    pub(super) async fn of<'a>(conn: &mut PgConnection, catalog: &'a Catalog) -> Result<&'a Self, Error> {
        catalog.lock_secret.get_or_try_init(|| Self::read(conn, catalog)).await
    }

    async fn read(conn: &mut PgConnection, catalog: &Catalog) -> Result<Self, Error> {
        let secret = scalar::<Postgres, Vec<u8>>(&catalog.sql.setup.lock_secret).fetch_optional(conn).await?;
        secret.map(Self).ok_or_else(gone)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of the lock with a name. Two names that share a number wait for each other, and
    /// nothing worse.
    pub(super) fn number(&self, name: &[&[u8]]) -> i64 {
        let mut hash = Sha256::new_with_prefix(&self.0);
        name.iter().for_each(|part| hash.update(part));
        let mut head = [0; 8];
        head.copy_from_slice(&hash.finalize()[..8]);
        i64::from_be_bytes(head)
    }
}

/// The error if the table has not the secret of this process.
pub(super) fn gone() -> Error {
    let what =
        "the row of the table `lock_secret` is gone, or was changed: restore it, or restart this process";
    Error::new(ErrorKind::Schema, what)
}

impl fmt::Debug for LockSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockSecret(…)")
    }
}
