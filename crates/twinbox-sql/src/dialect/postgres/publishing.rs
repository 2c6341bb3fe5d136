//! The store itself, publishing, and messages that wait for their time.
use super::{super::portable, rights};
use crate::{
    Error,
    catalog::Catalog,
    micros::Micros,
    statement::query,
    text,
    texts::{Delayed, Outbox, Setup},
};
use sqlx::{PgConnection, Postgres};
use twinbox_core::draft::Fields;

pub(super) const SETUP: Setup = Setup {
    record_server_run: "
        INSERT INTO {server_run}
        DEFAULT VALUES
        ON CONFLICT DO NOTHING",
    settings: "
        SELECT name, setting AS value
        FROM pg_settings
        WHERE name IN ('server_version', 'fsync', 'full_page_writes', 'synchronous_commit',
            'synchronous_standby_names', 'track_commit_timestamp')
        UNION ALL
        SELECT 'asynchronous_replicas', count(*)::text
        FROM pg_stat_replication
        WHERE sync_state = 'async'
        ORDER BY 1",
    has_right: "
        SELECT CASE
            WHEN $2 = '' THEN $1 = '' OR EXISTS (SELECT FROM pg_roles WHERE rolname = $1)
            WHEN $4 <> '' THEN has_column_privilege(r, $2, $4, $3)
            WHEN strpos($2, '.') > 0 THEN has_table_privilege(r, $2, $3)
            ELSE has_schema_privilege(r, $2, $3) END
        FROM (SELECT COALESCE(NULLIF($1::text, ''), current_user::text)::name) role (r)",
    lock_secret: "
        SELECT secret
        FROM {lock_secret}",
    role: "SELECT current_user::text",
    rights_held: rights::RIGHTS_HELD,
    more_rights_held: rights::MORE_RIGHTS_HELD,
    guards: rights::GUARDS,
    // Modes that a statement of Twinbox does not have, or that it waits for.
    table_locks: "
        SELECT c.relname::text AS locked, l.mode AS mode, l.pid::bigint AS session,
            COALESCE(a.usename::text, ''::text) AS role
        FROM pg_locks l
        JOIN pg_class c ON c.oid = l.relation
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_stat_activity a ON a.pid = l.pid
        WHERE n.nspname::text = ? AND l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
            AND c.relkind::text = 'r'
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND l.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock')
        ORDER BY 1, 3
        LIMIT ?",
    ..portable::SETUP
};

pub(super) const OUTBOX: Outbox = Outbox {
    // Not true if others lock by another secret: they would not wait.
    lock_key: "
        SELECT pg_advisory_xact_lock({lock_number}) IS NOT NULL AND EXISTS (
            SELECT
            FROM {lock_secret}
            WHERE secret = ?
        )",
    publish_all: "
        INSERT INTO {outbox} ({published})
        SELECT id, type, version, key, subject, COALESCE(time, clock_timestamp()), correlation_id,
            causation_id, traceparent, content_type, headers, payload
        FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::timestamptz[],
                $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[]) WITH ORDINALITY
            AS m ({published}, nth)
        ORDER BY nth",
    ..portable::OUTBOX
};

pub(super) const DELAYED: Delayed = Delayed {
    lock_due: "",
    // One process at a time, so that messages of a key come in the order of their times. It takes the lock
    // only if a message is due, because a lock writes. A message that somebody is cancelling is skipped.
    move_due: "
        WITH due AS (
            DELETE FROM {delayed_messages}
            WHERE (
                    SELECT lockable
                    FROM {locks}
                    WHERE name = 'move delayed messages' AND (
                        SELECT not_before
                        FROM {delayed_messages}
                        ORDER BY not_before, insert_order
                        LIMIT 1
                    ) <= (SELECT clock_timestamp())
                    FOR UPDATE SKIP LOCKED
                ) AND insert_order = ANY(ARRAY(
                    SELECT insert_order
                    FROM (
                        SELECT insert_order, bytes,
                            sum(bytes) OVER (ORDER BY not_before, insert_order) AS bytes_so_far
                        FROM (
                            SELECT insert_order, not_before, octet_length(payload) AS bytes
                            FROM {delayed_messages}
                            WHERE not_before <= (SELECT clock_timestamp())
                            ORDER BY not_before, insert_order
                            LIMIT ?
                            FOR UPDATE SKIP LOCKED
                        ) locked
                    ) counted
                    WHERE bytes_so_far - bytes < ?))
            RETURNING *
        )
        INSERT INTO {outbox} ({published})
        SELECT id, type, version, key, subject, {readable time}, correlation_id, causation_id, traceparent,
            content_type, headers, payload
        FROM due
        ORDER BY not_before, insert_order",
    delete_moved: "",
    ..portable::DELAYED
};

pub(super) async fn publish_all(
    conn: &mut PgConnection,
    catalog: &Catalog,
    messages: &[Fields],
) -> Result<(), Error> {
    fn column<T>(messages: &[Fields], get: impl Fn(&Fields) -> T) -> Vec<T> {
        messages.iter().map(get).collect()
    }
    let m = messages;
    query::<Postgres>(&catalog.sql.outbox.publish_all)
        .for_caller()
        .bind(column(m, |f| f.id.clone()))
        .bind(column(m, |f| f.event_type.clone()))
        .bind(column(m, |f| i64::from(f.version)))
        .bind(column(m, |f| f.key.clone()))
        .bind(column(m, |f| f.subject.clone()))
        .bind(column(m, |f| f.time.map(Micros)))
        .bind(column(m, |f| f.correlation_id.clone()))
        .bind(column(m, |f| f.causation_id.clone()))
        .bind(column(m, |f| f.traceparent.clone()))
        .bind(column(m, |f| f.content_type.clone()))
        .bind(column(m, |f| text::headers(&f.headers)))
        .bind(column(m, |f| f.payload.to_vec()))
        .execute(conn)
        .await?;
    Ok(())
}
