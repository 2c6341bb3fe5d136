//! Listing side effects.
use super::{
    filter::EffectFilter,
    item::{self, EffectDetails, EffectInfo},
};
use crate::Ops;
use twinbox_sql::{Dialect, EffectId, Error, ErrorKind};
use uuid::Uuid;

/// Effects that one statement reads.
const PAGE: u32 = 1000;
/// The most effects that one call of [`Ops::effects`] looks at.
pub const SCANNED_MAX: u32 = 100_000;
/// The most effects of one source that are listed.
pub const EFFECTS_OF_SOURCE_MAX: u32 = 100;

/// The result of [`Ops::effects`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectPage {
    /// The effects that match, newest first.
    pub effects: Vec<EffectInfo>,
    /// The position before which the next page begins. None: there are no older effects.
    pub next: Option<i64>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns up to `limit` effects that match a filter, newest first, without their requests. `before`: the
    /// [`next`](EffectPage::next) of the page before.
    ///
    /// Reads backwards from there by primary key, at most [`SCANNED_MAX`] effects; of the states `unknown`
    /// and `failed` alone it reads by their index. A page that is not full may therefore have a `next`.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn effects(
        &self,
        filter: &EffectFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<EffectPage, Error> {
        let (mut effects, mut next, mut scanned) = (Vec::new(), before.unwrap_or(i64::MAX), 0);
        while scanned < SCANNED_MAX {
            let page = self.page(filter.state.as_deref(), next).await?;
            scanned += PAGE;
            let is_last = page.len() < PAGE as usize;
            for effect in page {
                if effects.len() == limit {
                    return Ok(EffectPage { effects, next: Some(next) });
                }
                next = effect.position;
                if filter.matches(&effect) {
                    effects.push(effect);
                }
            }
            if is_last {
                return Ok(EffectPage { effects, next: None });
            }
        }
        Ok(EffectPage { effects, next: Some(next) })
    }

    async fn page(&self, state: Option<&str>, before: i64) -> Result<Vec<EffectInfo>, Error> {
        let (sql, limit) = (&self.engine.sql().effect_acts, i64::from(PAGE));
        let page = match state {
            Some("unknown") => &sql.unknown_page,
            Some("failed") => &sql.failed_page,
            _ => &sql.page,
        };
        let rows = self.engine.fetch_all(page, |query| query.bind(before).bind(limit)).await?;
        rows.iter().map(item::read::<DB>).collect()
    }

    /// Returns the effects that a message, an operation or a row has planned, the newest first, at most
    /// [`EFFECTS_OF_SOURCE_MAX`].
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn effects_of(&self, source: Uuid) -> Result<Vec<EffectInfo>, Error> {
        let of_source = &self.engine.sql().effect_acts.of_source;
        let limit = i64::from(EFFECTS_OF_SOURCE_MAX);
        let rows = self.engine.fetch_all(of_source, |query| query.bind(source).bind(limit)).await?;
        rows.iter().map(item::read::<DB>).collect()
    }

    /// Returns an effect with its request.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; or the database refused or is away.
    pub async fn effect(&self, id: EffectId) -> Result<EffectDetails, Error> {
        let sql = &self.engine.sql().effects;
        let row = match id {
            EffectId::Position(position) => {
                self.engine.fetch_optional(&sql.get, |query| query.bind(position)).await?
            }
            EffectId::Id(id) => self.engine.fetch_optional(&sql.get_by_id, |query| query.bind(id)).await?,
        };
        match row {
            Some(row) => item::read_details::<DB>(self.engine.catalog(), &row),
            None => Err(no_effect(id)),
        }
    }
}

/// The error of an effect that does not exist.
pub(super) fn no_effect(id: EffectId) -> Error {
    let hint = match id {
        EffectId::Position(_) => "it may have been purged",
        EffectId::Id(_) => "one that was planned in SQL has no id before it is first sent: use its position",
    };
    Error::new(ErrorKind::NotFound, format!("there is no effect {id}: {hint}"))
}
