//! Readers of the table of messages that lack one of the rules, and are found out for it.
use crate::log::hostile::Ledger;
use crate::support::wait::{self, Pause};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, raw_sql};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use twinbox::CancellationToken;

/// The rule that a reader lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naive {
    /// Remembers the largest position, and no holes.
    LargestPosition,
    /// Gives a hole up when it is a second old.
    AgeAlone,
    /// Reads the holes, and a moment later the newcomers.
    TwoReads,
    /// Commits nothing before it hands out what it has read.
    NoCommit,
}

/// The pause between two looks at the table, as of any reader that polls.
const POLL: Duration = Duration::from_millis(5);

/// A message as it stands in the table: position, type, event id, key, payload.
type Row = (i64, Vec<u8>, Vec<u8>, Option<Vec<u8>>, Vec<u8>);

pub(super) struct NaiveReader {
    kind: Naive,
    newest: i64,
    /// With the time at which each was seen first.
    holes: BTreeMap<i64, Instant>,
    pub(super) ledger: Ledger,
}

impl NaiveReader {
    pub(super) fn new(kind: Naive, name: &'static str) -> Self {
        Self { kind, newest: 0, holes: BTreeMap::new(), ledger: Ledger::new(name) }
    }

    /// Reads until `done`, and then until nothing more comes.
    pub(super) async fn run(mut self, url: String, done: CancellationToken) -> Self {
        loop {
            let was_done = done.is_cancelled();
            match self.read_on(&url, &done).await {
                Ok(()) if was_done => return self,
                // The server was killed. The reader keeps its state, and looks whether the server is back.
                Ok(()) | Err(_) => wait::pause(Pause::Look, POLL).await,
            }
        }
    }

    async fn read_on(&mut self, url: &str, done: &CancellationToken) -> sqlx::Result<()> {
        let mut conn = MySqlConnection::connect(url).await?;
        loop {
            let was_done = done.is_cancelled();
            let delivered = self.page(&mut conn, async {}).await?;
            if was_done && delivered == 0 {
                return Ok(());
            }
            wait::pause(Pause::Look, POLL).await;
        }
    }

    /// Hands out one page. `between` happens between the holes and the newcomers. Returns how many rows the
    /// page had.
    pub(super) async fn page(
        &mut self,
        conn: &mut MySqlConnection,
        between: impl Future<Output = ()>,
    ) -> sqlx::Result<usize> {
        let snapshot = match self.kind {
            Naive::TwoReads => "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION",
            _ => {
                "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
                START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
            }
        };
        raw_sql(snapshot).execute(&mut *conn).await?;
        let mut rows = Vec::new();
        if !self.holes.is_empty() {
            let holes = Vec::from_iter(self.holes.keys().map(i64::to_string)).join(", ");
            rows = read(conn, &format!("position IN ({holes})")).await?;
        }
        between.await;
        rows.extend(read(conn, &format!("position > {} ORDER BY position LIMIT 500", self.newest)).await?);
        raw_sql("COMMIT").execute(conn).await?;
        for row in &rows {
            self.take(row);
        }
        if self.kind == Naive::AgeAlone {
            self.holes.retain(|_, since| since.elapsed() < Duration::from_secs(1));
        }
        Ok(rows.len())
    }

    fn take(&mut self, (position, event_type, id, key, payload): &Row) {
        if *position <= self.newest {
            self.holes.remove(position);
        } else {
            if self.kind != Naive::LargestPosition {
                self.holes.extend((self.newest + 1..*position).map(|hole| (hole, Instant::now())));
            }
            self.newest = *position;
        }
        if !event_type.is_empty() {
            let number = std::str::from_utf8(id).unwrap().parse().unwrap();
            let key = std::str::from_utf8(key.as_deref().unwrap()).unwrap();
            self.ledger.deliver(number, key, payload, false);
            self.ledger.settle(number);
        }
    }
}

async fn read(conn: &mut MySqlConnection, condition: &str) -> sqlx::Result<Vec<Row>> {
    let sql = format!("SELECT position, type, id, `key`, payload FROM twinbox_outbox WHERE {condition}");
    sqlx::query_as(AssertSqlSafe(sql)).persistent(false).fetch_all(conn).await
}
