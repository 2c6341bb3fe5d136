//! Standing by for a lease of another process.
use crate::{
    shares::{Shares, Wish},
    task::in_time,
};
use sqlx::Row as _;
use std::{fmt, time::Duration};
use twinbox_sql::{
    Dialect, Error, Store,
    engine::{Engine, query},
};
use uuid::Uuid;

/// How long a look may last.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// A process that does not own a destination: it waits for the end of the lease, or
/// [wishes](Shares) for it.
pub struct Standby<DB: Dialect> {
    engine: Engine<DB>,
    destination: String,
    owner: Uuid,
    lease: Duration,
    shares: Shares,
}

impl<DB: Dialect> Standby<DB> {
    /// Makes the standby of a reader: with the same destination, owner and lease.
    pub fn new(store: &Store<DB>, destination: &str, owner: Uuid, lease: Duration, shares: Shares) -> Self {
        Self { engine: store.engine().clone(), destination: destination.to_owned(), owner, lease, shares }
    }

    /// Looks at the lease after another process was found to have it, and wishes for it if that process has a
    /// larger share. Returns how long to wait before the next try to take it.
    ///
    /// # Errors
    /// The database is away, or did not answer within 5 s. A wish may be written then, and the next look
    /// finds it.
    pub async fn look(&self) -> Result<Duration, Error> {
        in_time(LOOK_MAX, self.look_and_wish()).await
    }

    /// Returns whether this process wishes for the lease.
    pub fn wishes(&self) -> bool {
        self.shares.is_wisher(self.owner)
    }

    /// Ends the wish of this process, because it tries to use the destination and failed. If the lease was
    /// `handed_over` to it, it wishes for no other destination for a minute: it may be the one at fault.
    pub fn failed(&self, handed_over: bool) {
        self.shares.end_wish(self.owner);
        if handed_over {
            self.shares.rest();
        }
    }

    async fn look_and_wish(&self) -> Result<Duration, Error> {
        let mut conn = self.engine.connection().await?;
        let found = query::<DB>(&self.engine.sql().cursors.standby)
            .bind(self.owner)
            .bind(self.destination.clone())
            .fetch_optional(&mut *conn)
            .await?;
        conn.done().await?;
        let Some(row) = found else { return Ok(self.lease / 4) };
        let left = |column| row.try_get(column).map(|left: i64| Duration::from_micros(left.max(0) as u64));
        let (lease_left, wish_left) = (left("lease_left")?, left("wish_left")?);
        let wish = if wish_left.is_zero() {
            Wish::None
        } else if row.try_get("is_own_wish")? {
            let owned: Option<i64> = row.try_get("wisher_owned")?;
            Wish::Own { owned: owned.unwrap_or_default(), is_old: wish_left < self.lease / 2 }
        } else {
            Wish::Other
        };
        if let Some(owned) = self.shares.wish(self.owner, row.try_get("owned")?, wish) {
            self.wish(owned).await?;
        }
        let others_wish = if wish == Wish::Other { wish_left } else { Duration::ZERO };
        Ok(self.pause(lease_left.max(others_wish)))
    }

    async fn wish(&self, owned: i64) -> Result<(), Error> {
        let _permit = self.engine.write_permit().await?;
        let mut conn = self.engine.connection().await?;
        query::<DB>(&self.engine.sql().cursors.wish)
            .bind(self.owner)
            .bind(owned)
            .bind(self.destination.clone())
            .bind(self.owner)
            .execute(&mut *conn)
            .await?;
        conn.done().await
    }

    /// A wish may be granted at any time. Otherwise nobody gets the lease before it ends, unless its owner
    /// stops.
    fn pause(&self, left: Duration) -> Duration {
        let shortest = self.lease / 40;
        if self.wishes() { shortest } else { left.clamp(shortest, self.lease / 4) }
    }
}

impl<DB: Dialect> Drop for Standby<DB> {
    fn drop(&mut self) {
        self.shares.end_wish(self.owner);
    }
}

impl<DB: Dialect> fmt::Debug for Standby<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Standby")
            .field("destination", &self.destination)
            .field("wishes", &self.wishes())
            .finish_non_exhaustive()
    }
}
