use super::super::{Claim, Claims};
use crate::{
    Error,
    micros::Micros,
    sql::{Statements, query},
};
use sqlx::{PgConnection, Postgres, Row as _};
use uuid::Uuid;

pub(super) async fn claim(
    conn: &mut PgConnection,
    statements: &Statements,
    consumer: &str,
    claims: &[Claim<'_>],
    guard: &mut Option<String>,
) -> Result<Claims<Uuid>, Error> {
    if let [one] = claims {
        let row = query::<Postgres>(&statements.claim_one)
            .bind(consumer)
            .bind(one.message_id)
            .bind(&*one.source)
            .bind(&*one.event_id)
            .bind(&*one.payload_hash)
            .bind(one.time)
            .fetch_optional(conn)
            .await?;
        let Some(row) = row else { return Ok(Claims { new: Vec::new(), mark: None }) };
        *guard = row.try_get(0)?;
        let mark: Option<Micros> = row.try_get(1)?;
        return Ok(Claims { new: vec![one.message_id], mark: mark.map(|mark| mark.0) });
    }
    let row = query::<Postgres>(&statements.claim)
        .bind(consumer)
        .bind(claims.iter().map(|c| c.message_id).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.source).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.event_id).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| &*c.payload_hash).collect::<Vec<_>>())
        .bind(claims.iter().map(|c| c.time).collect::<Vec<_>>())
        .fetch_one(conn)
        .await?;
    let new: Option<Vec<Uuid>> = row.try_get(0)?;
    if new.is_some() {
        *guard = row.try_get(1)?;
    }
    let mark: Option<Micros> = row.try_get(2)?;
    Ok(Claims { new: new.unwrap_or_default(), mark: mark.map(|mark| mark.0) })
}
