//! Makes payments.
use axum::{Extension, Json, http::StatusCode, response::IntoResponse};
use serde::{Deserialize, Serialize};
use twinbox::{
    Dialect, Event,
    http::{Caller, IdemTx, ServerError},
    transition::{RowInsert, StateColumn, insert_or_existing},
};
use uuid::Uuid;

pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS payments (
    payment_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, payer TEXT NOT NULL,
    cents BIGINT NOT NULL, currency TEXT NOT NULL, state TEXT NOT NULL)";
pub(crate) const STATE: StateColumn = StateColumn::new("payments", "payment_id", "state");

#[derive(Debug, Deserialize)]
pub(crate) struct NewPayment {
    cents: i64,
    currency: String,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "payments.made", version = 1, key = payment_id)]
pub(crate) struct PaymentMade {
    payment_id: Uuid,
    cents: i64,
    currency: String,
}

pub(crate) async fn create<DB: Dialect>(
    Extension(caller): Extension<Caller>,
    mut idem: IdemTx<DB>,
    Json(NewPayment { cents, currency }): Json<NewPayment>,
) -> Result<impl IntoResponse, ServerError> {
    if cents <= 0 {
        return Ok(Err((StatusCode::UNPROCESSABLE_ENTITY, "a payment has a positive number of cents")));
    }
    let mut tx = idem.tx();
    // The id is derived from the key, so the primary key prevents a second payment after the key has expired.
    let made = PaymentMade { payment_id: tx.message_id().as_uuid(), cents, currency };
    let id = made.payment_id.to_string();
    let insert = sqlx::query::<DB>(
        "INSERT INTO payments (payment_id, tenant, payer, cents, currency, state) \
        VALUES ($1, $2, $3, $4, $5, 'captured') ON CONFLICT (payment_id) DO NOTHING",
    );
    let insert = insert
        .bind(id.clone())
        .bind(caller.tenant)
        .bind(caller.principal)
        .bind(made.cents)
        .bind(made.currency.clone());
    let existing =
        sqlx::query_as::<DB, (i64, String)>("SELECT cents, currency FROM payments WHERE payment_id = $1");
    match insert_or_existing(&mut tx, insert, existing.bind(id)).await? {
        RowInsert::Inserted => {
            tx.publish(&made).await?;
        }
        RowInsert::Existing((cents, currency)) if (cents, &currency) == (made.cents, &made.currency) => {}
        RowInsert::Existing(_) => {
            return Ok(Err((StatusCode::CONFLICT, "the key made another payment long ago")));
        }
    }
    let location = [("location", format!("/payments/{}", made.payment_id))];
    Ok(Ok((StatusCode::CREATED, location, Json(made))))
}
