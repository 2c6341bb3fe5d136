//! Letting go on what a dead letter holds.
use crate::{Dialect, Error, ErrorKind, Store, sql::query, text::text};

impl<DB: Dialect> Store<DB> {
    /// Lets the later messages of a key go on that wait behind dead letters of it, or behind one that holds the whole
    /// destination. The letters stay. Answers with how many held it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: none holds that key. Or the database refused or is away.
    pub async fn unblock(&self, destination: &str, key: &str) -> Result<u64, Error> {
        let release = self.let_go(&self.statements().parked_release, destination, key).await?;
        if release == 0 {
            let what = format!("no dead letter of {destination:?} holds the key {key:?}");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(release)
    }

    /// Gives a message up that a destination has put aside, by its event id, and lets go on what waits behind it. It stays
    /// as a dead letter.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]: the destination has not put it aside, or nothing waits behind it. Or the database refused
    /// or is away.
    pub async fn skip(&self, destination: &str, event_id: &str) -> Result<u64, Error> {
        let skipped = self.let_go(&self.statements().parked_skip, destination, event_id).await?;
        if skipped == 0 {
            let what =
                format!("nothing waits behind a message {event_id:?} that {destination:?} has put aside");
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(skipped)
    }

    async fn let_go(
        &self,
        statement: &crate::sql::Statement,
        destination: &str,
        which: &str,
    ) -> Result<u64, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let changed = query::<DB>(statement).bind(destination.to_owned()).bind(text(which).into_owned());
        let changed = DB::rows_affected(&changed.execute(&mut *conn).await?);
        conn.done().await?;
        Ok(changed)
    }
}
