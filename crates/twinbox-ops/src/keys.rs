//! The messages of one key.
use crate::Ops;
use sqlx::Row as _;
use twinbox_core::{Message, Timestamp};
use twinbox_sql::{
    Dialect, Error,
    engine::{Micros, Query, TextColumns, log_message, query},
};

/// Messages of the log that one statement looks at.
const PAGE: i64 = 10_000;
/// The most messages of the log that one call of [`Ops::key_page`] looks at.
pub const KEY_SCANNED_MAX: u32 = 20_000;

/// The result of [`Ops::key_page`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct KeyPage {
    /// The messages of the key, the newest first.
    pub messages: Vec<Message>,
    /// The position before which the next page begins. None: the log has no older messages.
    pub next: Option<i64>,
    /// The time of the oldest message that was looked at, of any key.
    pub looked_back_to: Option<Timestamp>,
}

impl<DB: Dialect> Ops<DB> {
    /// Returns up to `limit` messages of a key, the newest first. `before`: the [`next`](KeyPage::next) of
    /// the page before.
    ///
    /// No index has keys, so it reads the log backwards, at most [`KEY_SCANNED_MAX`] messages, and says how
    /// far it came. A page that is not full may therefore have a `next`.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn key_page(&self, key: &str, before: Option<i64>, limit: usize) -> Result<KeyPage, Error> {
        let (sql, mut conn) = (&self.engine.sql().log, self.engine.connection().await?);
        let mut page = KeyPage { messages: Vec::new(), next: before, looked_back_to: None };
        let mut scanned = 0;
        while scanned < KEY_SCANNED_MAX && page.messages.len() < limit {
            let before = page.next.unwrap_or(i64::MAX);
            let end = query::<DB>(&sql.page_end).bind(before).bind(PAGE).fetch_one(&mut *conn).await?;
            let Some(first) = end.try_get::<Option<i64>, _>("first")? else {
                page.next = None;
                break;
            };
            let left = i64::try_from(limit - page.messages.len()).unwrap_or(i64::MAX);
            let rows = query::<DB>(&sql.messages_of_key_between).bind(key.to_owned());
            let rows = rows.bind(first).bind(before).bind(left).fetch_all(&mut *conn).await?;
            let is_full = rows.len() as i64 == left;
            for row in &rows {
                let position = row.try_get("position")?;
                page.messages.push(log_message::<DB>(row, self.engine.service(), position)?);
                page.next = Some(position);
            }
            if !is_full {
                page.next = Some(first);
            }
            page.looked_back_to = end.try_get::<Option<Micros>, _>("oldest")?.map(|time| time.0);
            scanned += PAGE as u32;
        }
        conn.done().await?;
        Ok(page)
    }

    /// Returns the positions of a key that are parked for each reader of the log, with their states, in
    /// order. Later messages of the key wait behind a parked one that is not given up.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn parked_of_key(&self, key: &str, limit: u32) -> Result<Vec<(String, i64, String)>, Error> {
        let mut parked = Vec::new();
        for reader in self.readers().await? {
            let (name, key) = (reader.name.clone(), key.to_owned());
            let find = &self.engine.sql().parked_messages.of_key;
            let bind = |query: Query<'static, DB>| query.bind(name).bind(key).bind(i64::from(limit));
            for row in self.engine.fetch_all(find, bind).await? {
                parked.push((reader.name.clone(), row.try_get("position")?, row.text("state")?));
            }
        }
        Ok(parked)
    }
}
