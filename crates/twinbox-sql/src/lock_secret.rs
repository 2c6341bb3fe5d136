//! The numbers of advisory locks.
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The secret of the tables. Any role of the database may hold an advisory lock whose number it knows, so
/// each number is a digest of this. `Debug` does not print it.
pub(crate) struct LockSecret(Vec<u8>);

impl LockSecret {
    pub(crate) fn from_bytes(secret: Vec<u8>) -> Self {
        Self(secret)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the number of the lock with a name. Two names that share a number wait for each other, and
    /// nothing worse.
    pub(crate) fn number(&self, name: &[&[u8]]) -> i64 {
        let mut hash = Sha256::new_with_prefix(&self.0);
        name.iter().for_each(|part| hash.update(part));
        let mut head = [0; 8];
        head.copy_from_slice(&hash.finalize()[..8]);
        i64::from_be_bytes(head)
    }
}

impl fmt::Debug for LockSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LockSecret(…)")
    }
}
