//! Gives a log that was restored from a dump transaction ids of this server.
//!
//! All that matters of the old ids is which of the snapshots that cursors name see a message, and those
//! snapshots are nested: each sees what the one before it sees. So there are as many classes of messages as
//! snapshots, and one more for messages that no snapshot sees. Each class gets one transaction id, and each
//! snapshot the id that follows its last class. All of them are older than every running transaction.
use super::{fragments::FRAGMENTS, log};
use crate::{
    Dialect as _, Error, ErrorKind,
    statement::{query_of, raw},
};
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _, SqlSafeStr as _, SqlStr};
use std::time::Duration;

/// How long one statement may take that writes the whole log.
const REWRITE_MAX: Duration = Duration::from_secs(24 * 3600);

const LOCK: &str = "LOCK TABLE {sentinel}, {outbox}, {ticks}, {cursors} IN EXCLUSIVE MODE";

/// The oldest transaction that still runs, how many snapshots cursors name, and the age of the trigger. A
/// restore makes the trigger after it has brought the messages: younger messages were published here.
const FACTS: &str = "
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
        (
            SELECT count(*)
            FROM {ticks} t
            WHERE id > 0
                AND EXISTS (SELECT FROM {cursors} c WHERE t.id IN (c.p, c.w) AND c.lease_until < {never})
        ),
        (SELECT age(xmin) FROM pg_trigger WHERE tgrelid = $1::regclass AND tgname = 'refuse_position')";

/// The snapshots that cursors name, numbered in order.
macro_rules! named_ticks {
    () => {
        "
    WITH named AS MATERIALIZED (
        SELECT id, snapshot, row_number() OVER (ORDER BY id) AS class
        FROM {ticks} t
        WHERE id > 0
            AND EXISTS (SELECT FROM {cursors} c WHERE t.id IN (c.p, c.w) AND c.lease_until < {never})
    )"
    };
}

/// Binds: the id before the first class, the class that no snapshot sees, the age of the trigger.
const MESSAGES: &str = concat!(
    named_ticks!(),
    "
    UPDATE {outbox}
    SET txid = ($1 + CASE
            WHEN age(xmin) < $3 THEN $2
            ELSE COALESCE((SELECT min(class) FROM named WHERE pg_visible_in_snapshot(txid, snapshot)), $2)
        END)::text::xid8"
);

const TICKS: &str = concat!(
    named_ticks!(),
    "
    UPDATE {ticks} t
    SET snapshot = format('%s:%s:', $1 + class + 1, $1 + class + 1)::pg_snapshot
    FROM named
    WHERE t.id = named.id"
);

/// The rest, in this order. Ticks that no cursor names tell of times only.
const REST: &str = "
    DELETE FROM {ticks} t
    WHERE id > 0
        AND NOT EXISTS (SELECT FROM {cursors} c WHERE t.id IN (c.p, c.w) AND c.lease_until < {never});
    UPDATE {cursors}
    SET epoch = epoch + 1, owner = NULL, lease_until = 'epoch'
    WHERE lease_until < {never};
    DELETE FROM {sentinel};
    INSERT INTO {sentinel}
    DEFAULT VALUES";

pub(super) async fn rebase(conn: &mut PgConnection, namespace: &str) -> Result<u64, Error> {
    let render = |text: &str| -> SqlStr { AssertSqlSafe(tables(namespace, text)).into_sql_str() };
    raw::<Postgres>(render(LOCK)).execute(&mut *conn).await?;
    match log::check(conn, namespace).await {
        Err(error) if error.kind() == ErrorKind::Restored => {}
        Err(error) => return Err(error),
        Ok(()) => {
            return Err(refused("this database was not restored from a dump: there is nothing to rebase"));
        }
    }
    let facts = query_of::<Postgres>(render(FACTS), false).bind(Postgres::table(namespace, "outbox"));
    let facts = facts.fetch_one(&mut *conn).await?;
    let (running, named): (i64, i64) = (facts.try_get(0)?, facts.try_get(1)?);
    let Some(trigger) = facts.try_get::<Option<i32>, _>(2)? else {
        return Err(refused(
            "the outbox has lost its trigger `refuse_position`, which tells old messages from new ones",
        ));
    };
    let unseen = named + 1;
    let before = running - unseen - 1;
    // The first transaction id that can be given is 3.
    if before < 2 {
        return Err(refused("this server has given too few transaction ids for so many destinations"));
    }
    let rewrite = |text| query_of::<Postgres>(render(text), false).within(REWRITE_MAX).bind(before);
    let messages = rewrite(MESSAGES).bind(unseen).bind(trigger);
    let messages = messages.execute(&mut *conn).await?.rows_affected();
    rewrite(TICKS).execute(&mut *conn).await?;
    raw::<Postgres>(render(REST)).within(REWRITE_MAX).execute(conn).await?;
    Ok(messages)
}

/// The text with the places of these tables.
fn tables(namespace: &str, text: &str) -> String {
    let text = text.replace("{never}", FRAGMENTS.never);
    ["sentinel", "outbox", "ticks", "cursors"]
        .iter()
        .fold(text, |text, name| text.replace(&format!("{{{name}}}"), &Postgres::table(namespace, name)))
}

fn refused(why: &'static str) -> Error {
    Error::new(ErrorKind::Configuration, why)
}
