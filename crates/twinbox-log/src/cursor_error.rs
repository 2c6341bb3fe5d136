//! Why a cursor cannot be made or taken. A person has to change something.
use sqlx::Row as _;
use twinbox_sql::{Dialect, Error, ErrorKind};

/// Fails if the cursor of a row is detached, or has another number of partitions than is asked for.
pub(crate) fn check_settings<DB: Dialect>(
    row: &DB::Row,
    destination: &str,
    asked: Option<i64>,
) -> Result<(), Error> {
    if row.try_get("is_detached")? {
        return Err(detached(destination));
    }
    let kept: Option<i64> = row.try_get("partitions")?;
    if kept == asked { Ok(()) } else { Err(other_partitions(destination, kept, asked)) }
}

fn detached(destination: &str) -> Error {
    let text = format!(
        "destination {destination:?} was detached: it was so far behind that messages which it had not \
         settled may be gone. Retire it (`twinbox destinations retire {destination}`), start it again at the \
         beginning of the log, now, or at a time, and backfill the messages that are gone"
    );
    Error::new(ErrorKind::Detached, text)
}

fn other_partitions(destination: &str, kept: Option<i64>, asked: Option<i64>) -> Error {
    let text = format!(
        "destination {destination:?} spreads its keys over {} partitions and is asked for {}: that would \
         break the order of keys. Drain it, stop every consumer that reads it in order, and start a \
         destination with another id and another subject prefix",
        kept.map_or("no".to_owned(), |n| n.to_string()),
        asked.map_or("none".to_owned(), |n| n.to_string()),
    );
    Error::new(ErrorKind::Configuration, text)
}

pub(crate) fn new_on_a_log(destination: &str) -> Error {
    let text = format!(
        "destination {destination:?} is new, and the log has messages: set where it starts with `start`, at \
         the beginning, now, or at a time. If it is an old one with a new name, give it its old name back"
    );
    Error::new(ErrorKind::Configuration, text)
}
