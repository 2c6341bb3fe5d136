//! Whose messages are parked, and where.
use crate::{
    Dialect, Error, Fence, Store,
    log::cursor::Ownership,
    row,
    sql::{Statement, query},
};
use sqlx::{Row as _, query::Query};
use twinbox_core::Message;

/// Who parks messages.
#[derive(Debug, Clone)]
pub enum Owner {
    /// A reader of the log.
    #[doc(hidden)]
    Cursor(CursorOwner),
    /// A consumer, of one partition of a broker's log.
    Partition {
        /// The consumer.
        consumer: String,
        /// By what it owns the partition.
        fence: Fence,
    },
}

/// A reader of the log that owns its cursor.
#[derive(Debug, Clone)]
pub struct CursorOwner {
    pub(crate) destination: String,
    pub(crate) ownership: Ownership,
}

/// The statements of a table of parked messages.
pub(super) struct Of<'a> {
    pub(super) heads: &'a Statement,
    pub(super) keyless: &'a Statement,
    pub(super) next_keyless: &'a Statement,
    pub(super) run: &'a Statement,
    pub(super) sizes: &'a Statement,
    pub(super) messages: &'a Statement,
    pub(super) count: &'a Statement,
    pub(super) delete: &'a Statement,
}

impl Owner {
    /// How it is told of.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Cursor(cursor) => &cursor.destination,
            Self::Partition { consumer, .. } => consumer,
        }
    }

    pub(super) fn statements<'a, DB: Dialect>(&self, store: &'a Store<DB>) -> Of<'a> {
        let s = store.statements();
        match self {
            Self::Cursor(_) => Of {
                heads: &s.parked_heads,
                keyless: &s.parked_keyless,
                next_keyless: &s.parked_next_keyless,
                run: &s.parked_run,
                sizes: &s.parked_sizes,
                messages: &s.messages_among,
                count: &s.parked_count,
                delete: &s.unpark,
            },
            Self::Partition { .. } => Of {
                heads: &s.deliveries_heads,
                keyless: &s.deliveries_keyless,
                next_keyless: &s.deliveries_next_keyless,
                run: &s.deliveries_run,
                sizes: &s.deliveries_sizes,
                messages: &s.deliveries_among,
                count: &s.deliveries_count,
                delete: &s.unpark_deliveries,
            },
        }
    }

    /// Binds whose rows a statement is about.
    pub(super) fn bind<'q, DB: Dialect>(
        &self,
        query: Query<'q, DB, DB::Arguments>,
    ) -> Query<'q, DB, DB::Arguments> {
        match self {
            Self::Cursor(cursor) => query.bind(cursor.destination.clone()),
            Self::Partition { consumer, fence } => {
                query.bind(consumer.clone()).bind(i64::from(fence.partition))
            }
        }
    }

    /// The run of the server in which it became the owner.
    pub(super) fn run(&self) -> i64 {
        match self {
            Self::Cursor(cursor) => cursor.ownership.run,
            Self::Partition { fence, .. } => fence.run,
        }
    }

    /// Keeps everybody else from becoming the owner until the transaction ends.
    pub(super) async fn fence<DB: Dialect>(
        &self,
        store: &Store<DB>,
        conn: &mut DB::Connection,
    ) -> Result<(), Error> {
        match self {
            Self::Cursor(CursorOwner { destination, ownership }) => {
                let fence = query::<DB>(&store.statements().parked_fence).bind(destination.clone());
                let fence = fence.bind(ownership.epoch).bind(ownership.owner).bind(ownership.run);
                let fence = fence.fetch_optional(conn).await?;
                fence.map(drop).ok_or_else(crate::log::lease_lost)
            }
            Self::Partition { consumer, fence } => store.hold_fence(conn, consumer, *fence).await,
        }
    }

    /// The number of a row and its message, of a row of [`Of::messages`].
    pub(super) fn read<DB: Dialect>(
        &self,
        store: &Store<DB>,
        row: &DB::Row,
    ) -> Result<(i64, Box<Message>), Error> {
        let number: i64 = row.try_get(0)?;
        let message = match self {
            Self::Cursor(_) => row::of_log::<DB>(row, 1, store.service(), number)?,
            Self::Partition { .. } => row::message::<DB>(row, 1, "", row.try_get(14)?)?,
        };
        Ok((number, Box::new(message)))
    }

    /// The messages of a destination are in the log, whatever their owner.
    pub(super) fn bind_messages<'q, DB: Dialect>(
        &self,
        query: Query<'q, DB, DB::Arguments>,
    ) -> Query<'q, DB, DB::Arguments> {
        match self {
            Self::Cursor(_) => query,
            Self::Partition { .. } => self.bind(query),
        }
    }
}
