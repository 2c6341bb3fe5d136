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
    ..portable::SETUP
};

pub(super) const OUTBOX: Outbox = Outbox {
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
    // One process at a time, so that messages of a key come in the order of their times. A message that
    // somebody is cancelling is skipped.
    move_due: "
        WITH due AS (
            DELETE FROM {delayed_messages}
            WHERE (SELECT pg_try_advisory_xact_lock(hashtextextended('move {delayed_messages}', 0::bigint)))
                AND insert_order = ANY(ARRAY(
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
