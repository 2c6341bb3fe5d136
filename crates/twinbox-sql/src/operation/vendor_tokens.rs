//! Giving out tokens under a lease.
use super::{
    lease::{HeldKey, OperationLease, lost},
    token::BYTES_MAX,
};
use crate::{Dialect, Error, ErrorKind, micros::Micros, statement::scalar};
use std::time::Duration;
use twinbox_core::limits;

impl<DB: Dialect> OperationLease<DB> {
    /// Returns the idempotency key for a vendor that remembers its keys for `window`. It is the same for each
    /// attempt of this request, and another for each `kind` of call and each `generation`.
    ///
    /// None: it was given out `window` ago or earlier, by the clock of the database. The vendor may have been
    /// called with it, and may have forgotten that: **the result of the call is unknown**. Look the object up
    /// at the vendor. Only if nothing was done, go on with the next generation, which has a window of its
    /// own. Count up as well after the vendor has refused: many vendors store a refusal under the key, and
    /// would repeat it.
    ///
    /// Stripe forgets keys when they are at least 24 hours old: a window of 23 hours leaves an hour for the
    /// call itself and for clocks that differ. For a vendor that never forgets: [`Duration::MAX`].
    ///
    /// The fact is committed before this returns. From then on the key belongs to this request, even if it
    /// fails, and does not expire before the operation has ended: see
    /// [`IdempotencyKeys::unfinished`](super::IdempotencyKeys::unfinished). After a crash before the commit
    /// no process has the token, as if it had not been asked for.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another process has the key, so call no vendor.
    /// [`ErrorKind::Configuration`]: the kind has more than 255 bytes, or there are too many of them. Or the
    /// database refused or is away.
    pub async fn token_within(
        &self,
        kind: &str,
        generation: u32,
        window: Duration,
    ) -> Result<Option<String>, Error> {
        if kind.len() > limits::KEY_BYTES_MAX {
            return Err(Error::new(ErrorKind::Configuration, "the kind of a token has at most 255 bytes"));
        }
        let held = &self.held;
        held.check_not_ending()?;
        let mut given = self.tokens.given.lock().await;
        let now = held.time().await?;
        let name = format!("{kind}/{generation}");
        if let Some(first) = given.get(&name) {
            let age = Duration::from_micros(u64::try_from(now.saturating_sub(*first)).unwrap_or(0));
            return Ok((age < window).then(|| self.tokens.token(kind, generation)));
        }
        let mut all = given.clone();
        all.insert(name, now);
        let text = serde_json::to_string(&all).unwrap_or_default();
        if text.len() > BYTES_MAX {
            let what = "an operation has too many kinds and generations of tokens: 16 KiB of them are kept";
            return Err(Error::new(ErrorKind::Configuration, what));
        }
        if !held.update(&held.engine.sql().operations.save_tokens, |save| save.bind(text)).await? {
            return Err(lost());
        }
        *given = all;
        Ok(Some(self.tokens.token(kind, generation)))
    }
}

impl<DB: Dialect> HeldKey<DB> {
    /// The time of the database in microseconds since 1970, if this process still has the key.
    async fn time(&self) -> Result<i64, Error> {
        let mut conn = self.engine.connection().await?;
        let time = scalar::<DB, Micros>(&self.engine.sql().operations.token_time);
        let time = time.bind(self.slot.to_vec()).bind(self.owner).fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(time.ok_or_else(lost)?.0.as_micros())
    }
}
