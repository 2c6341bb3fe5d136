//! Claims of messages and of idempotency keys.
use super::waits::{bound_lock_wait, unbound, unbound_lock_wait};
use crate::{
    Error,
    catalog::Catalog,
    change::inserted,
    dialect::{
        claim::{Claim, Claims, OperationClaim, OperationClaimed, OperationRow},
        fence::ClaimTerms,
    },
    micros::Micros,
    statement::{STATEMENT_MAX, Statement, query, query_of, raw},
    text::hex,
};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row as _};
use std::collections::HashSet;
use uuid::Uuid;

/// Returns the statement that ends claims, with its values in it: it is run with others.
pub(super) fn end(catalog: &Catalog, consumer: &str, claims: &[Uuid]) -> String {
    let ids: Vec<_> = claims.iter().map(|id| format!("0x{}", id.simple())).collect();
    let end = with_consumer(&catalog.sql.inbox.end_claims, consumer);
    format!("{end} ({})", ids.join(", "))
}

fn with_consumer(statement: &Statement, consumer: &str) -> String {
    statement.as_str().replacen('?', &format!("0x{}", hex(consumer.as_bytes())), 1)
}

/// Claims messages behind their fence. The bound of the wait holds for both, and not for the handler.
pub(super) async fn claim(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    consumer: &str,
    terms: ClaimTerms,
    claims: &[Claim<'_>],
) -> Result<Claims<Uuid>, Error> {
    if let Some(fence) = terms.fence {
        fence.check::<MySql>(conn, catalog, consumer).await?;
    }
    let known = match claims {
        [_] => HashSet::new(),
        many => known(conn, catalog, consumer, many).await?,
    };
    let mut found = Claims { new: Vec::with_capacity(claims.len()), purge_mark: None };
    for claim in claims.iter().filter(|claim| !known.contains(&claim.message_id)) {
        let insert = query::<MySql>(&catalog.sql.inbox.claim)
            .bind(consumer)
            .bind(claim.message_id)
            .bind(&*claim.source)
            .bind(&*claim.event_id)
            .bind(&*claim.payload_hash)
            .bind(claim.time)
            .bind(claim.time);
        if inserted::<MySql>(conn, insert).await? {
            found.new.push(claim.message_id);
        }
    }
    if !found.new.is_empty() {
        let mark = with_consumer(&catalog.sql.inbox.purge_mark, consumer);
        let both = format!("{}; {mark}", unbound(terms.handler_timeout()));
        let rows = raw::<MySql>(AssertSqlSafe(both)).fetch_all(conn).await?;
        let mark = rows.first().map(|row| row.try_get::<Micros, _>("time")).transpose()?;
        found.purge_mark = mark.map(|mark| mark.0);
    }
    Ok(found)
}

/// The messages that were claimed before.
async fn known(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    consumer: &str,
    claims: &[Claim<'_>],
) -> Result<HashSet<Uuid>, Error> {
    let places = vec!["?"; claims.len()].join(", ");
    let sql = format!("{} ({places})", catalog.sql.inbox.known_claims.as_str());
    let known = query_of::<MySql>(AssertSqlSafe(sql), false).scalar().bind(consumer);
    let known = claims.iter().fold(known, |known, claim| known.bind(claim.message_id));
    Ok(known.fetch_all(conn).await?.into_iter().collect())
}

/// Takes an idempotency key. The row is locked first: then nobody else changes it.
pub(super) async fn claim_operation(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    claim: &OperationClaim<'_>,
) -> Result<OperationClaimed<String>, Error> {
    bound_lock_wait(conn, claim.wait).await?;
    let claimed = claim_operation_bounded(conn, catalog, claim).await?;
    unbound_lock_wait(conn, Some(claim.idle_max)).await?;
    Ok(claimed)
}

async fn claim_operation_bounded(
    conn: &mut MySqlConnection,
    catalog: &Catalog,
    claim: &OperationClaim<'_>,
) -> Result<OperationClaimed<String>, Error> {
    let sql = &catalog.sql.operations;
    let limit = claim.wait.saturating_add(STATEMENT_MAX);
    let lock = query::<MySql>(&sql.lock).within(limit).bind(claim.slot.to_vec());
    let taken = match lock.fetch_optional(&mut *conn).await? {
        Some(_) => {
            let take = claim.bind(query::<MySql>(&sql.take_again).within(limit));
            take.bind(claim.slot.to_vec()).execute(&mut *conn).await?.rows_affected() > 0
        }
        None => inserted::<MySql>(conn, claim.bind(query::<MySql>(&sql.claim).within(limit))).await?,
    };
    if !taken {
        return Ok(OperationClaimed::Taken);
    }
    let row = query::<MySql>(&sql.claimed).bind(claim.slot.to_vec()).fetch_one(conn).await?;
    Ok(OperationClaimed::Open(OperationRow::read::<MySql>(&row)?, String::new()))
}
