//! Idempotency keys for vendors, which forget.
use super::{
    Lease,
    lease::{Held, lost},
};
use crate::{Dialect, Error, ErrorKind, dialect::OperationBegun, micros::Micros, sql::scalar};
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::Mutex;
use twinbox_core::{id, limits};
use uuid::Uuid;

/// All that a row keeps of tokens. A kind has at most 255 of them.
const BYTES_MAX: usize = 16 * 1024;

/// Which were given out.
pub(super) struct Tokens {
    /// What they follow from: the operation, and when its key was taken. A key that is used again has other tokens.
    operation: Uuid,
    /// In microseconds since 1970, by kind and generation.
    given: Mutex<BTreeMap<String, i64>>,
}

impl Tokens {
    pub(super) fn of(begun: &OperationBegun, domain_id: &Uuid) -> Result<Self, Error> {
        let made_at = begun.made_at.as_micros().to_be_bytes();
        let given = begun.tokens.as_deref().map(serde_json::from_str).transpose().map_err(|error| {
            let what = "what an operation keeps of its tokens is not what this program writes";
            Error::new(ErrorKind::Configuration, what).with_source(error)
        })?;
        Ok(Self {
            operation: id::derive("operation/1", &[domain_id.as_bytes(), &made_at]),
            given: Mutex::new(given.unwrap_or_default()),
        })
    }

    /// Whether one was given out.
    pub(super) async fn are_given(&self) -> bool {
        !self.given.lock().await.is_empty()
    }

    fn token(&self, kind: &str, generation: u32) -> String {
        let parts = [self.operation.as_bytes(), kind.as_bytes(), &generation.to_be_bytes()];
        id::derive("token/1", &parts).to_string()
    }
}

impl<DB: Dialect> Lease<DB> {
    /// The idempotency key for a vendor that remembers its keys for `window`: the same for each try of this request,
    /// another for each `kind` of call and each `generation`.
    ///
    /// None: it was given out `window` ago or earlier, by the clock of the database. The vendor may have been called with
    /// it, and may have forgotten that: **what became of the call is unknown**. Ask the vendor, by what you gave it beside
    /// the key. Only if it says that nothing was done, go on with the next generation, which has a window of its own. Count
    /// up as well after the vendor has refused: many keep such an answer under the key, and would give it again.
    ///
    /// Stripe forgets keys when they are at least 24 hours old: a window of 23 hours leaves an hour for the call itself and
    /// for clocks that differ. For a vendor that never forgets: [`Duration::MAX`].
    ///
    /// That it was given out is committed before this returns. From then on the key belongs to this request, even if it
    /// fails, and does not expire before it has ended: see
    /// [`Store::unfinished_operations`](crate::Store::unfinished_operations). After a crash before that, nobody has the
    /// token, and it is as if it had not been asked for.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`]: another has the key, so call nobody. [`ErrorKind::Configuration`]: the kind has more than
    /// 255 bytes, or there are too many of them. Or the database refused or is away.
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
        held.outside()?;
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
        if !held.update(&held.store.statements().give_token, |give| give.bind(text)).await? {
            return Err(lost());
        }
        *given = all;
        Ok(Some(self.tokens.token(kind, generation)))
    }
}

impl<DB: Dialect> Held<DB> {
    /// The time of the database, in microseconds since 1970, if the key is still this one's.
    async fn time(&self) -> Result<i64, Error> {
        let mut conn = self.store.connection().await?;
        let time = scalar::<DB, Micros>(&self.store.statements().token_time);
        let time = time.bind(self.slot.to_vec()).bind(self.owner).fetch_optional(&mut *conn).await?;
        conn.done().await?;
        Ok(time.ok_or_else(lost)?.0.as_micros())
    }
}
