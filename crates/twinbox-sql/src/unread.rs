//! What is still to be read by somebody, told by what decides whether it can be.
use crate::{
    Dialect, Error, Store,
    log::Cursor,
    micros::Micros,
    replay::{Replay, bind, unsigned},
    row::optional_text,
    sql::{query, render},
};
use sqlx::Row as _;
use twinbox_core::{Timestamp, message::header};

/// Replays that are looked at, the newest.
const REPLAYS_MAX: u32 = 1000;

/// Messages that are still to be read, and that one program can read either all or none of.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unread {
    /// Where they are.
    pub standing: Standing,
    /// A destination; a consumer that reads the log is `consumer:NAME`, and so is one that has put them aside or given
    /// them up, or for which they are replayed. None: they are on their way to nobody yet.
    pub of: Option<String>,
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
    /// A replay that has not ended selects them.
    Replayed,
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
            Self::Replayed => "replayed",
            Self::Published => "published",
        }
    }
}

/// Counts the messages of a table `o`, but for those that were blanked, which nobody reads. The first two columns are
/// whether they can be given up no more, and whose they are.
pub(crate) fn count(is_dead: &str, of: &str, id: &str, from: &str) -> String {
    // Postgres makes no text of a NUL, which a header from elsewhere may hold.
    let header = |name: &str| {
        format!("CAST(CAST(replace(o.headers, '\\u0000', '\\ufffd') AS {{json}}) ->> '{name}' AS TEXT)")
    };
    format!(
        "SELECT {is_dead}, {of}, o.type, o.version, {}, count(*), min(o.{id}) FROM {from} \
        AND NOT (length(o.payload) = 0 AND COALESCE({}, '') = 'true') GROUP BY 1, 2, 3, 4, 5",
        header(header::CODEC),
        header(header::REDACTED),
    )
}

impl<DB: Dialect> Store<DB> {
    /// All messages that are still to be read, by type, version and codec: those that wait for their time, those that a
    /// destination or a consumer of the log has not settled, those that were put aside, dead letters, and what replays
    /// select that have not ended. With `since` also what was published and says that it is from then or later, which a
    /// broker may still keep for its consumers. What moves on meanwhile is counted once or twice, and is not missed.
    ///
    /// # Errors
    /// The database refused or is away.
    pub async fn unread(&self, since: Option<Timestamp>) -> Result<Vec<Unread>, Error> {
        let statements = self.statements();
        let replays = self.replays(REPLAYS_MAX).await?;
        let (mut conn, mut unread) = (self.connection().await?, Vec::new());
        // In the order in which messages go.
        for row in query::<DB>(&statements.unread_delayed).fetch_all(&mut *conn).await? {
            unread.push(read::<DB>(&row, Standing::Delayed)?);
        }
        for name in query::<DB>(&statements.unread_cursors).fetch_all(&mut *conn).await? {
            let name: String = name.try_get(0)?;
            let bound = query::<DB>(&statements.replay_bound).bind(name.clone());
            let Some(row) = bound.fetch_optional(&mut *conn).await? else { continue };
            let Cursor { p, w, position } =
                Cursor { p: row.try_get(0)?, w: row.try_get(1)?, position: row.try_get(2)? };
            let pending = query::<DB>(&statements.unread_pending).bind(p).bind(w).bind(position);
            for row in pending.bind(name.clone()).fetch_all(&mut *conn).await? {
                unread.push(Unread { of: Some(name.clone()), ..read::<DB>(&row, Standing::Pending)? });
            }
        }
        for row in query::<DB>(&statements.unread_aside).fetch_all(&mut *conn).await? {
            let standing = if row.try_get(0)? { Standing::Dead } else { Standing::Parked };
            unread.push(read::<DB>(&row, standing)?);
        }
        for replay in replays.iter().filter(|replay| !replay.state.has_ended()) {
            unread.extend(self.replayed(&mut conn, replay).await?);
        }
        if let Some(since) = since {
            let published = query::<DB>(&statements.unread_since).bind(Micros(since));
            for row in published.fetch_all(&mut *conn).await? {
                unread.push(read::<DB>(&row, Standing::Published)?);
            }
        }
        conn.done().await?;
        Ok(unread)
    }

    /// All that it selects, what it has done included.
    async fn replayed(&self, conn: &mut DB::Connection, replay: &Replay) -> Result<Vec<Unread>, Error> {
        let conditions = replay.selection.conditions(self.service());
        let texts = conditions.iter().map(|(text, _)| format!(" AND {text}")).collect::<String>();
        let from =
            format!("{{outbox}} o WHERE o.position BETWEEN {} AND {}{texts}", replay.first, replay.last);
        let counted = render::<DB>(&self.statements().namespace, &count("false", "''", "id", &from));
        let query = sqlx::query(counted).persistent(false);
        let query = bind::<DB>(query, conditions.into_iter().flat_map(|(_, bounds)| bounds));
        let of =
            replay.consumer.as_ref().map_or(replay.destination.clone(), |name| format!("consumer:{name}"));
        let rows = query.fetch_all(conn).await?;
        let read =
            |row: &DB::Row| Ok(Unread { of: Some(of.clone()), ..read::<DB>(row, Standing::Replayed)? });
        let all = rows.iter().map(read).collect::<Result<Vec<_>, Error>>()?;
        Ok(all.into_iter().filter(|one| replay.selection.takes(&one.event_type)).collect())
    }
}

fn read<DB: Dialect>(row: &DB::Row, standing: Standing) -> Result<Unread, Error> {
    Ok(Unread {
        standing,
        of: optional_text::<DB>(row, 1)?.filter(|of| !of.is_empty()),
        event_type: optional_text::<DB>(row, 2)?.unwrap_or_default(),
        version: u32::try_from(row.try_get::<i64, _>(3)?).unwrap_or(u32::MAX),
        codec: optional_text::<DB>(row, 4)?,
        messages: unsigned(row.try_get(5)?),
        example: optional_text::<DB>(row, 6)?.unwrap_or_default(),
    })
}
