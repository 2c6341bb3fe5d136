//! What is still to be read by somebody, told by what decides whether it can be.
use crate::{Dialect, Error, Store, micros::Micros, replay::unsigned, sql::query};
use sqlx::Row as _;
use twinbox_core::Timestamp;

/// Messages that are still to be read, and that one program can read either all or none of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// Where they are.
    pub standing: Standing,
    /// A destination; a consumer that reads the log is `consumer:NAME`, and so is one that has put them aside or given
    /// them up. Empty: they are not on their way to anybody yet.
    pub of: String,
    /// Their type.
    pub event_type: String,
    /// The version of their payload.
    pub version: u32,
    /// What has encoded it.
    pub codec: Option<String>,
    /// How many there are.
    pub messages: u64,
    /// The event id of one of them.
    pub example: String,
}

/// Where messages are that are still to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// They wait for their time.
    Delayed,
    /// They are in the log, and not settled by that destination.
    Pending,
    /// They were put aside, to be tried again.
    Parked,
    /// They were given up, and can be redriven.
    Dead,
    /// They are published, and whoever keeps them for consumers may still have them.
    Published,
}

impl Standing {
    /// In a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Pending => "pending",
            Self::Parked => "parked",
            Self::Dead => "dead",
            Self::Published => "published",
        }
    }

    fn of(word: &str) -> Self {
        let all = [Self::Delayed, Self::Pending, Self::Parked, Self::Dead];
        all.into_iter().find(|one| one.as_str() == word).unwrap_or(Self::Published)
    }
}

/// Counts the messages of a table `o`, but for those that were blanked, which nobody reads.
pub(crate) fn count(standing: &str, of: &str, id: &str, from: &str) -> String {
    let header = |name: &str| format!("CAST(o.headers AS {{json}}) ->> '{name}'");
    format!(
        "SELECT {standing}, {of}, o.type, o.version, {}, count(*), min(o.{id}) FROM {from} \
        AND NOT (length(o.payload) = 0 AND COALESCE({}, '') = 'true') GROUP BY 1, 2, 3, 4, 5",
        header(twinbox_core::message::header::CODEC),
        header(twinbox_core::message::header::REDACTED),
    )
}

impl<DB: Dialect> Store<DB> {
    /// All messages that are still to be read, by type, version and codec: those that wait for their time, those that a
    /// destination or a consumer of the log has not settled, those that were put aside, and dead letters. With `since`
    /// also what was published since then, which a broker may still keep for its consumers. Reads the log once for each
    /// destination.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn unread(&self, since: Option<Timestamp>) -> Result<Vec<Unread>, Error> {
        let statements = self.statements();
        let mut conn = self.connection().await?;
        let mut rows = query::<DB>(&statements.unread_aside).fetch_all(&mut *conn).await?;
        if let Some(since) = since {
            rows.extend(
                query::<DB>(&statements.unread_since).bind(Micros(since)).fetch_all(&mut *conn).await?,
            );
        }
        let mut unread: Vec<_> = rows.iter().map(read::<DB>).collect::<Result<_, _>>()?;
        for cursor in query::<DB>(&statements.unread_cursors).fetch_all(&mut *conn).await? {
            let destination: String = cursor.try_get(0)?;
            let pending = query::<DB>(&statements.unread_pending)
                .bind(cursor.try_get::<i64, _>(1)?)
                .bind(cursor.try_get::<i64, _>(2)?)
                .bind(cursor.try_get::<i64, _>(3)?)
                .bind(destination.clone());
            for row in pending.fetch_all(&mut *conn).await? {
                unread.push(Unread { of: destination.clone(), ..read::<DB>(&row)? });
            }
        }
        conn.done().await?;
        Ok(unread)
    }
}

fn read<DB: Dialect>(row: &DB::Row) -> Result<Unread, Error> {
    Ok(Unread {
        standing: Standing::of(&row.try_get::<String, _>(0)?),
        of: row.try_get(1)?,
        event_type: row.try_get(2)?,
        version: u32::try_from(row.try_get::<i64, _>(3)?).unwrap_or(u32::MAX),
        codec: row.try_get(4)?,
        messages: unsigned(row.try_get(5)?),
        example: row.try_get(6)?,
    })
}
