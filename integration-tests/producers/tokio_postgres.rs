//! Publishes with another driver than sqlx.
use tokio_postgres::Transaction;
use twinbox::Event;

// docs: this function
pub(crate) async fn publish<E: Event>(
    tx: &Transaction<'_>,
    event: &E,
) -> Result<String, Box<dyn std::error::Error>> {
    let statement = "SELECT twinbox.publish($1, $2, $3, version => $4, subject => $5)";
    let (payload, version) = (serde_json::to_string(event)?, i64::from(E::VERSION));
    let row =
        tx.query_one(statement, &[&E::TYPE, &event.key(), &payload, &version, &event.subject()]).await?;
    Ok(row.try_get(0)?)
}
// docs: end
