//! Refuses a COMMIT that does not come from Twinbox, by SQLite's hooks.
use crate::Error;
use sqlx::SqliteConnection;
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::SeqCst},
};

const CLOSED: u8 = 0;
const ALLOWED: u8 = 1;
const COMMITTED: u8 = 2;
const ENDED: u8 = 3;
const RELEASED: u8 = 4;

/// Decides whether a SQLite connection may commit, for the hooks of that connection. Dropped, it lets every
/// commit through, so a connection that goes back to the pool with the hooks still set is like any other.
#[derive(Debug)]
pub struct CommitGate(Arc<AtomicU8>);

impl CommitGate {
    pub(super) async fn close(conn: &mut SqliteConnection) -> Result<Self, Error> {
        let gate = Self(Arc::new(AtomicU8::new(CLOSED)));
        let (commits, rollbacks) = (gate.0.clone(), gate.0.clone());
        let mut handle = conn.lock_handle().await?;
        // Refusing turns a COMMIT into a ROLLBACK, and so it would the implicit ones after it.
        handle.set_commit_hook(move || {
            let _ = commits.compare_exchange(ALLOWED, COMMITTED, SeqCst, SeqCst);
            let _ = commits.compare_exchange(CLOSED, ENDED, SeqCst, SeqCst);
            commits.load(SeqCst) != ENDED
        });
        handle.set_rollback_hook(move || {
            let _ = rollbacks.compare_exchange(CLOSED, ENDED, SeqCst, SeqCst);
        });
        Ok(gate)
    }

    /// Closes a gate that has let a commit through, so that its hooks are in place, for the next transaction
    /// of the connection.
    pub(super) fn close_again(&self) {
        self.0.store(CLOSED, SeqCst);
    }

    /// Allows the next commit, unless the transaction has ended.
    pub(super) fn allow(&self) -> Result<(), Error> {
        self.0.compare_exchange(CLOSED, ALLOWED, SeqCst, SeqCst).map_err(|_| Error::transaction_ended())?;
        Ok(())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.load(SeqCst) == ENDED
    }

    pub(super) fn has_committed(&self) -> bool {
        self.0.load(SeqCst) == COMMITTED
    }
}

impl Drop for CommitGate {
    fn drop(&mut self) {
        self.0.store(RELEASED, SeqCst);
    }
}
