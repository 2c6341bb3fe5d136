//! Writing several rows where the database binds no arrays.
use crate::{Dialect, Error, catalog::Catalog, micros::micros, row::bind_message, statement::query};
use std::time::Duration;
use twinbox_core::Message;

/// The statement that publishes so many messages, with a row of binds for each.
pub(in crate::dialect) fn publish_all<DB: Dialect>(catalog: &Catalog, count: usize) -> String {
    let row = format!("(?, ?, ?, ?, ?, COALESCE(?, {}), ?, ?, ?, ?, ?, ?)", DB::FRAGMENTS.now);
    format!("{}{}", catalog.sql.outbox.publish_all.as_str(), vec![row; count].join(", "))
}

/// Parks deliveries with a statement each.
pub(in crate::dialect) async fn park_one_by_one<DB: Dialect>(
    conn: &mut DB::Connection,
    catalog: &Catalog,
    consumer: &str,
    partition: u32,
    deliveries: &[(&Message, Duration)],
) -> Result<(), Error> {
    for (message, delay) in deliveries {
        let park = query::<DB>(&catalog.sql.deliveries.insert)
            .bind(consumer.to_owned())
            .bind(i64::from(partition))
            .bind(micros(*delay));
        bind_message(park, message).execute(&mut *conn).await?;
    }
    Ok(())
}
