//! Publishing, and messages that wait for their time.
use super::super::portable::{self, move_due};
use crate::{
    Error, ErrorKind,
    catalog::Catalog,
    error::is_duplicate,
    row,
    statement::{Query, query, query_of},
    texts::{Delayed, Outbox},
};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};
use twinbox_core::draft::Fields;

pub(super) const OUTBOX: Outbox = Outbox {
    publish: "",
    // Two keys that share a row wait for each other, and nothing worse.
    lock_key: "
        SELECT slot
        FROM {key_locks}
        WHERE slot = CRC32(?) MOD 512
        FOR UPDATE",
    // A tombstone has no type.
    recent_types: "
        SELECT DISTINCT type
        FROM (
            SELECT type
            FROM {outbox}
            ORDER BY position DESC
            LIMIT ?
        ) recent
        WHERE type <> ''
        ORDER BY type",
    ..portable::OUTBOX
};

pub(super) const DELAYED: Delayed = Delayed {
    // By the text of the time: MySQL sorts in a table that takes no day 0.
    move_due: move_due!("CAST(not_before AS CHAR)"),
    // A DELETE of one table would look at each of its rows. One that names the table first is a join.
    delete_moved: "
        DELETE d
        FROM {delayed_messages} d
        WHERE d.insert_order {among}",
    ..portable::DELAYED
};

/// Counts statements of producers that ran again, because a reader had taken one of their positions.
const REPEATED: &str = "twinbox_mysql_repeated_inserts_total";
/// How often one statement is run again at most.
const REPEATS_MAX: u32 = 100;

/// Writes messages in one statement. If a reader has put a tombstone at one of their positions, because it
/// took more than a second from the number to the row, the statement runs again, with new positions.
pub(super) async fn publish_all(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    messages: Vec<Fields>,
) -> Result<(), Error> {
    let sql = portable::publish_all::<MySql>(catalog, messages.len());
    write(conn, || {
        let query = query_of::<MySql>(AssertSqlSafe(sql.clone()), messages.len() == 1).for_caller();
        messages.iter().cloned().fold(query, row::bind_fields::<MySql>)
    })
    .await
}

/// The same for messages that are due. `numbers`: a list of theirs.
pub(super) async fn move_due(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    numbers: &str,
) -> Result<(), Error> {
    write(conn, || query::<MySql>(&catalog.sql.delayed.move_due).bind(numbers.to_owned())).await
}

async fn write(conn: &mut MySqlConnection, insert: impl Fn() -> Query<'static, MySql>) -> Result<(), Error> {
    for _ in 0..REPEATS_MAX {
        match insert().execute(&mut *conn).await {
            Err(error) if is_duplicate(&error) => metrics::counter!(REPEATED).increment(1),
            written => return Ok(written.map(drop)?),
        };
    }
    Err(Error::new(ErrorKind::Busy, "readers took the positions of this message again and again"))
}
