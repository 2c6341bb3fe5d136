//! An open store, and what commands need beside it.
use crate::{
    connection::{Connection, ConnectionArguments, DatabaseName},
    exit::Exit,
    output::{Output, note, plain},
};
use sqlx::{MySql, Postgres, Sqlite, SqlitePool, sqlite::SqliteConnectOptions};
use std::borrow::Cow;
use twinbox_core::{DecodeError, Message};
use twinbox_ops::Ops;
use twinbox_sql::{Dialect, Store};

pub(crate) struct Session<DB: Dialect> {
    pub(crate) store: Store<DB>,
    pub(crate) ops: Ops<DB>,
    pub(crate) database: DatabaseName,
    pub(crate) connection: ConnectionArguments,
    pub(crate) output: Output,
}

impl<DB: Dialect> Session<DB> {
    /// The message for a person: decoded, if the tool has its codec and its key.
    pub(crate) fn decoded<'m>(&self, message: &'m Message) -> Cow<'m, Message> {
        self.store.decode(message).unwrap_or_else(|error| {
            if let DecodeError::Codec { source, .. } = error
                && !message.is_redacted()
            {
                note(&format!("Message {} stays encrypted: {source}", plain(&message.id)));
            }
            Cow::Borrowed(message)
        })
    }

    /// Adds the sessions that lock tables to the error of a statement that waited for a lock.
    pub(crate) async fn with_locks(&self, exit: Exit) -> Exit {
        self.locks().await.iter().fold(exit, |exit, lock| exit.and(lock))
    }

    /// The sessions that lock tables. None, if they cannot be read: the answer is whole without them.
    pub(crate) async fn locks(&self) -> Vec<String> {
        let locks = self.ops.table_locks().await.unwrap_or_default();
        locks.iter().map(ToString::to_string).collect()
    }
}

/// A session on either database.
pub(crate) enum Opened {
    Postgres(Session<Postgres>),
    MySql(Session<MySql>),
    Sqlite(Session<Sqlite>),
}

impl Opened {
    /// Opens the existing store. `is_checked`: refuses one that needs a repair.
    pub(crate) async fn open(
        connection: ConnectionArguments,
        output: Output,
        is_checked: bool,
    ) -> Result<Self, Exit> {
        let (prepared, database) = connection.prepare()?;
        Ok(match prepared {
            Connection::Postgres(pool) => {
                let store = Store::open_existing(pool, connection.store_options()?).await?;
                if is_checked {
                    store.check().await?;
                }
                let ops = Ops::new(&store);
                Self::Postgres(Session { store, ops, database, connection, output })
            }
            Connection::MySql(pool) => {
                let store = Store::open_existing(pool, connection.store_options()?).await?;
                store.check().await?;
                let ops = Ops::new(&store);
                Self::MySql(Session { store, ops, database, connection, output })
            }
            Connection::Sqlite(options) => {
                let pool = open_file(*options).await?;
                let store = Store::open_existing(pool, connection.store_options()?).await?;
                store.check().await?;
                let ops = Ops::new(&store);
                Self::Sqlite(Session { store, ops, database, connection, output })
            }
        })
    }
}

/// Opens a file that has to be there, and whose journal mode stays.
pub(crate) async fn open_file(options: SqliteConnectOptions) -> Result<SqlitePool, Exit> {
    let file = options.get_filename();
    if !file.exists() {
        return Err(Exit::not_found(format!("the file {} does not exist", file.display())));
    }
    Ok(twinbox_sql::sqlite::open_existing(options).await?)
}
