//! The store itself, publishing, and messages that wait for their time.
use super::area;

area! {
    /// The store itself.
    Setup {
        /// The time of the database.
        now,
        /// The server run of this connection. NULL: nobody has recorded it yet, or the server is a standby.
        server_run,
        /// Whether the server run is still this one. Bind: server run.
        is_server_run,
        /// Records a server run. Absent where a database forgets nothing while a process has it open.
        record_server_run,
        /// The service that owns the tables.
        service,
        /// Names the service that owns the tables, once. Bind: service.
        set_service,
        /// Makes the secret in the name of the migrations' lock, unless there is one. Absent where they lock
        /// a table. Bind: secret.
        create_lock_secret,
        /// The secret in the numbers of advisory locks. Absent where there are none.
        lock_secret,
        /// The version of the tables, and the oldest program version that may use them.
        schema_version,
        /// Records a migration. Binds: version, name, oldest compatible version.
        record_migration,
        /// Settings of the server on which durability rests, as names and values.
        settings,
        /// Whether a role has a right on a table, a schema or a column; without an object, whether the role
        /// exists. Absent where the database has no roles. Binds: role, object, privilege, column.
        has_right,
        /// The role of this connection. Absent where the database has no roles.
        role,
        /// The rights that a role holds or can get, each with its object, grantee, and the membership that
        /// leads there. Of a role that owns the tables or the server, only a row that says so. Binds: role,
        /// namespace.
        rights_held,
        /// The same of rights that `rights_held` cannot read everywhere: on settings, which older servers of
        /// Postgres do not have; through roles and on procedures of MySQL, which few accounts may read.
        more_rights_held,
        /// The triggers, rules and row-level security of the tables, as kind, table, name and state. Bind:
        /// namespace.
        guards,
        /// The sessions that lock tables of the store for themselves, as table, mode, session and role, in
        /// the order of the tables. Reads no table of the store. Absent where they are not shown. Binds:
        /// namespace, limit.
        table_locks,
    }
}

area! {
    /// Publishing.
    Outbox {
        /// Writes one message. Absent where the statement may have to be repeated. Binds: the columns of
        /// `{published}`.
        publish,
        /// Writes many messages in one statement. Where the database binds no arrays, rows of binds follow
        /// it.
        publish_all,
        /// Locks a key until the transaction ends. Absent where a transaction that writes is alone. Binds:
        /// key; on Postgres number of the lock, secret of the number.
        lock_key,
        /// The newest messages of a type, by primary key. Binds: type, limit.
        published,
        /// The types of the newest messages, by primary key. Bind: how many messages.
        recent_types,
    }
}

area! {
    /// Messages that wait for their time.
    Delayed {
        /// Writes one message. Binds: the columns of `{published}`, message id, time.
        insert,
        /// Deletes a message, by `delayed_messages_message_id`. Bind: message id.
        cancel,
        /// The time of the next message, and now, by `delayed_messages_due`.
        next,
        /// Locks due messages, and returns their numbers and the bytes of their payloads, by
        /// `delayed_messages_due`. Absent where one statement moves. Bind: limit.
        lock_due,
        /// Copies messages to the log in the order of their times. One whose time the log does not take gets
        /// that of now. Bind: the array of their numbers. Where it is the one statement that moves, it also
        /// finds and deletes them, and its binds are the limit and the bytes after which it takes no more.
        move_due,
        /// Deletes the messages that were copied. Bind: the array of their numbers.
        delete_moved,
    }
}
