//! Claims and partitions.
use super::super::{
    claim::{Claim, Claims},
    fence::{ClaimFence, ClaimTerms, session_bound},
    portable,
};
use crate::{
    Error,
    catalog::Catalog,
    micros::Micros,
    statement::{Query, query},
    texts::{Inbox, Partitions},
};
use sqlx::{PgConnection, Postgres, Row as _};
use uuid::Uuid;

/// A statement that claims behind its fence. The time-out holds for both and not for the handler: it is set
/// before, and put back after the last row. The fence sees what is committed when it has its lock, and comes
/// before the first row. The commit is flushed before the message is acknowledged, unless the handler chose
/// otherwise for its transaction. No CASE on a bind: the server would plan each claim anew.
macro_rules! claims {
    ($rest:literal) => {
        concat!(
            "
        WITH old AS MATERIALIZED (
            SELECT current_setting('lock_timeout') AS lock_timeout, set_config('lock_timeout', '2s', true),
                {flushed}
        ), fenced AS MATERIALIZED (
            SELECT
            FROM old
            WHERE {fence}($1, $7, $8, $9, $10)
        )",
            $rest
        )
    };
}

pub(super) const INBOX: Inbox = Inbox {
    claim: claims! {", claimed AS (
            INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, time,
                claimed_at)
            SELECT $1, message_id, source, event_id, payload_hash, 'processed', time, greatest(now(), time)
            FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::timestamptz[]) WITH ORDINALITY
                AS m (message_id, source, event_id, payload_hash, time, nth), fenced
            ORDER BY nth
            ON CONFLICT DO NOTHING
            RETURNING message_id
        )
        SELECT pg_catalog.array_agg(message_id) AS claimed, pg_current_xact_id_if_assigned()::text AS guard,
            {purge_mark}($1) AS purge_mark, set_config('lock_timeout', (SELECT lock_timeout FROM old), true)
        FROM claimed"},
    // Arrays cost the server a third more.
    claim_one: claims! {"
        INSERT INTO {inbox} (consumer, message_id, source, event_id, payload_hash, state, time, claimed_at)
        SELECT $1, $2, $3, $4, $5, 'processed', $6::timestamptz, greatest(now(), $6)
        FROM fenced
        ON CONFLICT DO NOTHING
        RETURNING pg_current_xact_id_if_assigned()::text AS guard, {purge_mark}($1) AS purge_mark,
            set_config('lock_timeout', (SELECT lock_timeout FROM old), true)"},
    guard: "
        SELECT pg_current_xact_id()::text
        FROM {bound_session}(?)",
    allow_commit: "
        SELECT set_config('twinbox.commit', $1, true)
        WHERE pg_current_xact_id_if_assigned()::text = $1",
    // An error keeps the server from running the COMMIT. The only one that an expression can raise with a
    // text is that of a number that cannot be read; with the id in it, it is not read beforehand.
    commit_at_once: "
        SELECT set_config('twinbox.commit', 'GUARD', true),
            CASE WHEN pg_current_xact_id_if_assigned()::text IS DISTINCT FROM 'GUARD'
                THEN ('twinbox: the handler ended the transaction ' || pg_current_xact_id()::text)
                    ::integer END;
        COMMIT",
    failures: "
        SELECT failures, current_setting('role') AS role
        FROM {attempts}
        WHERE consumer = ? AND message_id = ?",
    set_role: "SELECT current_setting('role'), set_config('role', ?, true)",
    // One process at a time, so that no two wait for each other.
    purge_claims: "
        DELETE FROM {inbox}
        WHERE (
                SELECT consumer
                FROM {purge_marks}
                WHERE consumer = $1 AND time >= $3
                FOR UPDATE SKIP LOCKED
            ) IS NOT NULL
            AND consumer = $1
            AND message_id = ANY(ARRAY(
                SELECT message_id
                FROM {inbox}
                WHERE consumer = $1 AND claimed_at <= $2 AND COALESCE(time, claimed_at) <= $3
                ORDER BY claimed_at
                LIMIT $4))",
    ..portable::INBOX
};

pub(super) const PARTITIONS: Partitions = Partitions {
    fence: "SELECT {fence}(?, ?, ?, ?, ?)",
    wait_for_transactions: "
        SELECT pg_advisory_xact_lock(lock_number)
        FROM {partition_leases}
        WHERE {bounded_wait} AND consumer = ? AND partition = ?",
    ..portable::PARTITIONS
};

pub(super) async fn claim(
    conn: &mut PgConnection,
    catalog: &Catalog,
    consumer: &str,
    terms: ClaimTerms,
    claims: &[Claim<'_>],
    guard: &mut Option<String>,
) -> Result<Claims<Uuid>, Error> {
    let found = match claims {
        [one] => claim_one(conn, catalog, consumer, terms, one, guard).await?,
        many => claim_many(conn, catalog, consumer, terms, many, guard).await?,
    };
    if let (true, Some(fence)) = (found.new.is_empty(), terms.fence) {
        fence.check::<Postgres>(conn, catalog, consumer).await?;
    }
    Ok(found)
}

async fn claim_one(
    conn: &mut PgConnection,
    catalog: &Catalog,
    consumer: &str,
    terms: ClaimTerms,
    one: &Claim<'_>,
    guard: &mut Option<String>,
) -> Result<Claims<Uuid>, Error> {
    let claim = query::<Postgres>(&catalog.sql.inbox.claim_one)
        .bind(consumer)
        .bind(one.message_id)
        .bind(&*one.source)
        .bind(&*one.event_id)
        .bind(&*one.payload_hash)
        .bind(one.time);
    let row = bind_terms(claim, terms).fetch_optional(conn).await?;
    let Some(row) = row else { return Ok(Claims { new: Vec::new(), purge_mark: None }) };
    *guard = row.try_get("guard")?;
    Ok(Claims { new: vec![one.message_id], purge_mark: purge_mark(&row)? })
}

async fn claim_many(
    conn: &mut PgConnection,
    catalog: &Catalog,
    consumer: &str,
    terms: ClaimTerms,
    claims: &[Claim<'_>],
    guard: &mut Option<String>,
) -> Result<Claims<Uuid>, Error> {
    let claim = query::<Postgres>(&catalog.sql.inbox.claim)
        .bind(consumer)
        .bind(claims.iter().map(|c| c.message_id).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.source).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.event_id).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.payload_hash).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| c.time).collect::<Vec<_>>());
    let row = bind_terms(claim, terms).fetch_one(conn).await?;
    let new: Option<Vec<Uuid>> = row.try_get("claimed")?;
    if new.is_some() {
        *guard = row.try_get("guard")?;
    }
    Ok(Claims { new: new.unwrap_or_default(), purge_mark: purge_mark(&row)? })
}

type PgQuery<'q> = Query<'q, Postgres>;

fn bind_terms(query: PgQuery<'_>, terms: ClaimTerms) -> PgQuery<'_> {
    let (partition, server_run) = match terms.fence {
        Some(ClaimFence::Partition(fence)) => (Some(fence), Some(fence.server_run)),
        Some(ClaimFence::ServerRun(run)) => (None, Some(run)),
        None => (None, None),
    };
    query
        .bind(partition.map(|fence| i64::from(fence.partition)))
        .bind(partition.map(|fence| fence.epoch))
        .bind(server_run)
        .bind(terms.handler_timeout().map(session_bound))
}

fn purge_mark(row: &sqlx::postgres::PgRow) -> Result<Option<twinbox_core::Timestamp>, Error> {
    Ok(row.try_get::<Option<Micros>, _>("purge_mark")?.map(|mark| mark.0))
}
