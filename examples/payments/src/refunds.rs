//! Refunds payments in full.
use crate::payments::STATE;
use axum::{Extension, Json, http::StatusCode, response::IntoResponse};
use serde::{Deserialize, Serialize};
use twinbox::{
    Dialect, Event,
    http::{Caller, IdemTx, ServerError},
    transition::Transition,
};
use uuid::Uuid;

pub(crate) const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS refunds (refund_id TEXT PRIMARY KEY, payment_id TEXT NOT NULL UNIQUE)";

#[derive(Debug, Deserialize)]
pub(crate) struct NewRefund {
    payment_id: Uuid,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(type = "refunds.made", version = 1, key = payment_id)]
pub(crate) struct RefundMade {
    refund_id: Uuid,
    payment_id: Uuid,
}

pub(crate) async fn create<DB: Dialect>(
    Extension(caller): Extension<Caller>,
    mut idem: IdemTx<DB>,
    Json(NewRefund { payment_id }): Json<NewRefund>,
) -> Result<impl IntoResponse, ServerError> {
    let mut tx = idem.tx();
    // Only the payer gets a refund. Another caller gets the same response as for a payment that does not
    // exist.
    let own = sqlx::query_scalar::<DB, i64>(
        "SELECT count(*) FROM payments WHERE payment_id = $1 AND tenant = $2 AND payer = $3",
    );
    let own = own.bind(payment_id.to_string()).bind(caller.tenant).bind(caller.principal);
    if own.fetch_one(&mut *tx).await? == 0 {
        return Ok(Err((StatusCode::NOT_FOUND, "you have made no such payment")));
    }
    match STATE.transition(&mut tx, payment_id.to_string(), &["captured"], "refunded").await? {
        Transition::Applied { .. } => {}
        Transition::NotFound => return Ok(Err((StatusCode::NOT_FOUND, "you have made no such payment"))),
        // A request with another key has refunded the payment.
        _ => return Ok(Err((StatusCode::CONFLICT, "the payment was given back before"))),
    }
    let made = RefundMade { refund_id: tx.message_id().as_uuid(), payment_id };
    sqlx::query::<DB>("INSERT INTO refunds (refund_id, payment_id) VALUES ($1, $2)")
        .bind(made.refund_id.to_string())
        .bind(made.payment_id.to_string())
        .execute(&mut *tx)
        .await?;
    tx.publish(&made).await?;
    Ok(Ok((StatusCode::CREATED, Json(made))))
}
