//! The store itself, publishing, and messages that wait for their time.
use super::super::portable;
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
    rights_held: "
        WITH role AS MATERIALIZED (
            SELECT r.rolname AS r, r.rolsuper OR pg_has_role(r.oid, n.nspowner, 'MEMBER') AS is_owner,
                n.oid AS schema
            FROM pg_roles r
            JOIN pg_namespace n ON n.nspname = $2
            WHERE r.rolname = COALESCE(NULLIF($1::text, ''), current_user::text)::name
        ), tables AS MATERIALIZED (
            SELECT c.oid, c.relname, r
            FROM pg_class c
            JOIN role ON c.relnamespace = schema AND NOT is_owner
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
        )
        SELECT object, of_column, privilege
        FROM (
            SELECT '' AS object, '' AS of_column, 'OWNER' AS privilege
            FROM role
            WHERE is_owner
            UNION ALL
            SELECT 'SCHEMA ' || n.nspname::text, '', 'CREATE'
            FROM pg_namespace n
            JOIN role ON NOT is_owner AND (n.oid = schema OR n.nspname = 'public')
            WHERE has_schema_privilege(r, n.oid, 'CREATE')
            UNION ALL
            SELECT relname::text, '', p
            FROM tables
            CROSS JOIN regexp_split_to_table('SELECT INSERT UPDATE DELETE TRUNCATE REFERENCES TRIGGER', ' ') p
            WHERE has_table_privilege(r, oid, p)
            UNION ALL
            SELECT relname::text, attname::text, p
            FROM tables
            CROSS JOIN pg_attribute
            CROSS JOIN regexp_split_to_table('SELECT INSERT UPDATE REFERENCES', ' ') p
            WHERE attrelid = oid AND attnum > 0 AND NOT attisdropped
                AND has_column_privilege(r, oid, attnum, p) AND NOT has_table_privilege(r, oid, p)
        ) held
        ORDER BY object COLLATE \"C\", privilege COLLATE \"C\", of_column COLLATE \"C\"",
    ..portable::SETUP
};

pub(super) const OUTBOX: Outbox = Outbox {
    // NULL without a secret: nothing would be locked.
    lock_key: "SELECT pg_advisory_xact_lock({lock_number}) IS NOT NULL",
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
                    FROM {delayed_messages}
                    WHERE not_before <= (SELECT clock_timestamp())
                    ORDER BY not_before, insert_order
                    LIMIT ?
                    FOR UPDATE SKIP LOCKED))
            RETURNING *
        )
        INSERT INTO {outbox} ({published})
        SELECT id, type, version, key, subject, COALESCE(time, clock_timestamp()), correlation_id,
            causation_id, traceparent, content_type, headers, payload
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
