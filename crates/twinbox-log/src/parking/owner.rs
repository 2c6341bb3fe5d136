//! The owner of parked messages, and the statements of its table.
use crate::{log::lease_lost, owned_cursor::Ownership};
use sqlx::Row as _;
use twinbox_core::Message;
use twinbox_sql::{
    Dialect, Error, Fence,
    engine::{Engine, MessageColumns, ParkedQueue, Query, Scalar, Statement, hold_fence, query},
};

/// The owner of parked messages, whose lease fences the writes: a destination, or a partition of a consumer.
#[derive(Debug, Clone)]
pub enum Owner {
    /// A destination, or a consumer of the log, which owns its cursor.
    #[doc(hidden)]
    Cursor(CursorOwner),
    /// A consumer of one partition of a broker's log.
    Partition {
        /// The consumer.
        consumer: String,
        /// The proof of owning the partition.
        fence: Fence,
    },
}

/// The proof that a reader of the log owns its cursor.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct CursorOwner {
    pub(crate) destination: String,
    pub(crate) ownership: Ownership,
}

impl Owner {
    /// The owner of a cursor.
    pub(crate) fn cursor(owner: CursorOwner) -> Self {
        Self::Cursor(owner)
    }

    /// The name in log lines.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Cursor(cursor) => &cursor.destination,
            Self::Partition { consumer, .. } => consumer,
        }
    }

    /// The statements of its table.
    pub(super) fn sql<'e, DB: Dialect>(&self, engine: &'e Engine<DB>) -> &'e ParkedQueue<Statement> {
        match self {
            Self::Cursor(_) => &engine.sql().destination_queue,
            Self::Partition { .. } => &engine.sql().delivery_queue,
        }
    }

    /// Binds the owner.
    pub(super) fn bind<'q, DB: Dialect>(&self, query: Query<'q, DB>) -> Query<'q, DB> {
        match self {
            Self::Cursor(cursor) => query.bind(cursor.destination.clone()),
            Self::Partition { consumer, fence } => {
                query.bind(consumer.clone()).bind(i64::from(fence.partition))
            }
        }
    }

    /// Binds the owner of a query for one value.
    pub(super) fn bind_scalar<'q, DB: Dialect>(&self, query: Scalar<'q, DB, i64>) -> Scalar<'q, DB, i64> {
        match self {
            Self::Cursor(cursor) => query.bind(cursor.destination.clone()),
            Self::Partition { consumer, fence } => {
                query.bind(consumer.clone()).bind(i64::from(fence.partition))
            }
        }
    }

    /// The server run in which it became the owner.
    pub(super) fn server_run(&self) -> i64 {
        match self {
            Self::Cursor(cursor) => cursor.ownership.server_run,
            Self::Partition { fence, .. } => fence.server_run,
        }
    }

    /// Keeps other processes from becoming the owner until the transaction ends.
    pub(super) async fn fence<DB: Dialect>(
        &self,
        engine: &Engine<DB>,
        conn: &mut DB::Connection,
    ) -> Result<(), Error> {
        match self {
            Self::Cursor(CursorOwner { destination, ownership }) => {
                let lock = query::<DB>(&engine.sql().cursors.lock).bind(destination.clone());
                let lock = lock.bind(ownership.epoch).bind(ownership.owner).bind(ownership.server_run);
                lock.fetch_optional(conn).await?.map(drop).ok_or_else(lease_lost)
            }
            Self::Partition { consumer, fence } => {
                hold_fence::<DB>(conn, engine.catalog(), consumer, *fence).await
            }
        }
    }

    /// Reads the number of a row and its message.
    pub(super) fn read<DB: Dialect>(
        &self,
        engine: &Engine<DB>,
        columns: &MessageColumns,
        row: &DB::Row,
    ) -> Result<(i64, Box<Message>), Error> {
        let number: i64 = row.try_get("number")?;
        let message = match self {
            Self::Cursor(_) => columns.read_log::<DB>(row, engine.service(), number)?,
            Self::Partition { .. } => columns.read::<DB>(row, "", row.try_get("sequence")?)?,
        };
        Ok((number, Box::new(message)))
    }

    /// Binds the owner where the rows hold the messages. Those of a destination are in the log.
    pub(super) fn bind_messages<'q, DB: Dialect>(&self, query: Query<'q, DB>) -> Query<'q, DB> {
        match self {
            Self::Cursor(_) => query,
            Self::Partition { .. } => self.bind(query),
        }
    }
}
