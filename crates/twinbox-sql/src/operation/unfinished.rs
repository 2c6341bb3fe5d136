//! Operations that began something outside, and never ended.
use crate::{
    Dialect, Error, Store,
    micros::Micros,
    sql::{query, scalar},
    text::hex,
};
use sqlx::Row as _;
use std::collections::BTreeMap;
use twinbox_core::Timestamp;

/// So many are counted, and listed at a time.
pub const UNFINISHED_MAX: u32 = 10_000;

/// An operation that called somebody outside, or may have, and has no answer, or one that gave up. Nobody works on it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// The digest that its key is stored under, in hexadecimal digits: logs have the first 8 of them.
    pub slot: String,
    /// Whose data it is about.
    pub tenant: String,
    /// Who asked.
    pub principal: String,
    /// What for.
    pub scope: String,
    /// What the caller chose. Empty if the text of keys is not kept.
    pub key: String,
    /// How often it was tried.
    pub attempts: u32,
    /// What it has saved last.
    pub recovery_point: Option<String>,
    /// When tokens for vendors were given out, by kind and generation: `charge/0`.
    pub tokens: BTreeMap<String, Timestamp>,
    /// When it was asked for first.
    pub created_at: Timestamp,
    /// When it was tried, or saved something, last.
    pub updated_at: Timestamp,
    /// For how long the caller may expect that it is remembered.
    pub expires_at: Timestamp,
    /// That time is over: nobody can be expected to ask again.
    pub has_expired: bool,
}

impl<DB: Dialect> Store<DB> {
    /// Operations that called somebody outside, or may have, and that nobody has ended: they
    /// [saved](super::Lease::save) a recovery point, or were given a [token](super::Lease::token_within). Those that rest
    /// longest come first, at most [`UNFINISHED_MAX`]; those that somebody works on are left out. One that has
    /// [failed](super::Answer::failed) for good with a code of 500 or above is among them: it was given up half-way.
    ///
    /// Such a key does not expire and is never purged. Whoever asks the same again goes on with it, or gets the failure
    /// again; somebody has to look what was done, and end it by hand: [`forget_unfinished`](Self::forget_unfinished).
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn unfinished_operations(&self, limit: u32) -> Result<Vec<Unfinished>, Error> {
        let mut conn = self.connection().await?;
        let rows =
            query::<DB>(&self.statements().unfinished_operations).bind(i64::from(limit.min(UNFINISHED_MAX)));
        let rows = rows.fetch_all(&mut *conn).await?;
        conn.done().await?;
        rows.iter().map(read::<DB>).collect()
    }

    /// How many there are of [those](Self::unfinished_operations), counted up to [`UNFINISHED_MAX`].
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn count_unfinished(&self) -> Result<u64, Error> {
        let mut conn = self.connection().await?;
        let count = scalar::<DB, i64>(&self.statements().count_unfinished).bind(i64::from(UNFINISHED_MAX));
        let count = count.fetch_one(&mut *conn).await?;
        conn.done().await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// Forgets the key of an unfinished operation, by its [slot](super::OperationKey::slot): asked again, it begins anew,
    /// with other tokens. For when it is known that it has done nothing outside, or that this was settled by hand. False:
    /// there is none, it has ended, or somebody works on it.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn forget_unfinished(&self, slot: &[u8; 32]) -> Result<bool, Error> {
        let _permit = self.write_permit().await?;
        let mut conn = self.connection().await?;
        let forget = query::<DB>(&self.statements().forget_unfinished).bind(slot.to_vec());
        let forgotten = DB::rows_affected(&forget.execute(&mut *conn).await?);
        conn.done().await?;
        Ok(forgotten == 1)
    }
}

fn read<DB: Dialect>(row: &DB::Row) -> Result<Unfinished, Error> {
    let time = |column| Ok::<_, Error>(row.try_get::<Micros, _>(column)?.0);
    // What somebody else wrote there is nothing to go by, and the row is listed all the same.
    let tokens = row.try_get::<Option<String>, _>(7)?;
    let tokens: BTreeMap<String, i64> =
        tokens.and_then(|tokens| serde_json::from_str(&tokens).ok()).unwrap_or_default();
    Ok(Unfinished {
        slot: hex(&row.try_get::<Vec<u8>, _>(0)?),
        tenant: row.try_get(1)?,
        principal: row.try_get(2)?,
        scope: row.try_get(3)?,
        key: row.try_get(4)?,
        attempts: u32::try_from(row.try_get::<i64, _>(5)?.max(0)).unwrap_or(u32::MAX),
        recovery_point: row.try_get(6)?,
        tokens: tokens.into_iter().map(|(kind, at)| (kind, Timestamp::from_micros(at))).collect(),
        created_at: time(8)?,
        updated_at: time(9)?,
        expires_at: time(10)?,
        has_expired: row.try_get(11)?,
    })
}
