//! Parking deliveries, all in one statement.
use super::super::portable;
use crate::{
    Error,
    catalog::Catalog,
    micros::{Micros, micros},
    statement::query,
    text::{self, text},
    texts::Deliveries,
};
use sqlx::{PgConnection, Postgres};
use std::time::Duration;
use twinbox_core::Message;

pub(super) const DELIVERIES: Deliveries = Deliveries {
    insert: "
        INSERT INTO {parked_deliveries} (consumer, partition, next_attempt_at, {stored_message})
        SELECT $1, $2, clock_timestamp() + delay::float8 * interval '1 microsecond', {stored_message}
        FROM unnest($3::bigint[], $4::uuid[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::bigint[],
                $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::text[], $15::text[],
                $16::text[], $17::text[], $18::bytea[]) WITH ORDINALITY
            AS m (delay, {stored_message}, nth)
        ORDER BY nth
        ON CONFLICT DO NOTHING",
    ..portable::DELIVERIES
};

pub(super) async fn park_deliveries(
    conn: &mut PgConnection,
    catalog: &Catalog,
    consumer: &str,
    partition: u32,
    deliveries: &[(&Message, Duration)],
) -> Result<(), Error> {
    fn column<T>(deliveries: &[(&Message, Duration)], get: impl Fn(&Message) -> T) -> Vec<T> {
        deliveries.iter().map(|(message, _)| get(message)).collect()
    }
    let plain = |s: &str| text(s).into_owned();
    let optional = |s: &Option<String>| s.as_deref().map(|s| text(s).into_owned());
    let d = deliveries;
    query::<Postgres>(&catalog.sql.deliveries.insert)
        .bind(consumer)
        .bind(i64::from(partition))
        .bind(d.iter().map(|(_, delay)| micros(*delay)).collect::<Vec<_>>())
        .bind(column(d, |m| m.message_id().as_uuid()))
        .bind(column(d, |m| m.sequence.and_then(|n| i64::try_from(n).ok())))
        .bind(column(d, |m| plain(&m.id)))
        .bind(column(d, |m| plain(&m.source)))
        .bind(column(d, |m| plain(&m.event_type)))
        .bind(column(d, |m| i64::from(m.version)))
        .bind(column(d, |m| optional(&m.key)))
        .bind(column(d, |m| optional(&m.subject)))
        .bind(column(d, |m| Micros(m.time)))
        .bind(column(d, |m| optional(&m.correlation_id)))
        .bind(column(d, |m| optional(&m.causation_id)))
        .bind(column(d, |m| optional(&m.traceparent)))
        .bind(column(d, |m| plain(&m.content_type)))
        .bind(column(d, |m| text::headers(&m.headers)))
        .bind(column(d, |m| m.payload.to_vec()))
        .execute(conn)
        .await?;
    Ok(())
}
