//! Looks whether a reader would get its cursor, without taking it.
use crate::{
    Reader, StartPosition,
    cursor_error::{check_settings, new_on_a_log},
    options::ReaderOptions,
};
use twinbox_sql::{Dialect, Error, Store, engine::query};

impl<DB: Dialect> Reader<DB> {
    /// Looks whether [`open`](Self::open) would make or take the cursor `destination`, and changes nothing.
    /// Returns whether the cursor exists. Its lease does not matter.
    ///
    /// # Errors
    /// The store must not be read (see [`Store::check`]), the cursor is detached or has another number of
    /// partitions, or it is new and the log has messages ([`StartPosition::IfEmpty`]).
    pub async fn check(store: &Store<DB>, destination: &str, options: &ReaderOptions) -> Result<bool, Error> {
        store.check().await?;
        let engine = store.engine();
        let mut conn = engine.connection().await?;
        let cursor = query::<DB>(&engine.sql().cursors.settings).bind(destination.to_owned());
        let cursor = cursor.fetch_optional(&mut *conn).await?;
        let has_messages = match (&cursor, options.start) {
            (None, StartPosition::IfEmpty) => {
                query::<DB>(&engine.sql().log.any).fetch_optional(&mut *conn).await?.is_some()
            }
            _ => false,
        };
        conn.done().await?;
        let Some(cursor) = cursor else {
            return if has_messages { Err(new_on_a_log(destination)) } else { Ok(false) };
        };
        check_settings::<DB>(&cursor, destination, options.partitions.map(i64::from)).map(|()| true)
    }
}
