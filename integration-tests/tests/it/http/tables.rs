//! The tables of the playbook, row by row. t01: R46
use super::both::with_both;
use crate::support::{
    cases::cases,
    refunds::{asked, post},
    stores::{Placed, TestDb, World, effect, placed},
};
use integration_tests::refunds::Does;
use std::convert::identity;
use twinbox::{Delivery, DeliveryOutcome, Dialect, HandlerResult, Tx, event_handler};

/// `200,201` in the third row says the outcome and its code.
const CLIENT_RETRIES: &str = "attempt,delay_ms,status,code,notes
1,0,timeout,,initial timeout
2,137,5xx,502,proxy error
3,281,200,201,success";

const REPLAY_OUTCOMES: &str = "key,payload_hash,status,http_code,result_id,notes
k1,abc,complete,201,rf_123,created
k1,abc,complete,201,rf_123,replayed
k1,xyz,conflict,409,,payload mismatch";

/// The second row is what the log says of the second delivery: the table has one row.
const CONSUMER_INBOX: &str = "event_id,source,first_seen,processed,result
ev_001,payments,2025-09-15T12:00:00Z,2025-09-15T12:00:03Z,ok
ev_001,payments,2025-09-15T12:00:05Z,2025-09-15T12:00:05Z,replayed";

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().skip(1).map(|row| row.split(',').collect())
}

/// A caller that tries again as the table says, past a proxy that fails as the table says, refunds once.
async fn t01_client_retries<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let mut first = None;
        for row in rows(CLIENT_RETRIES) {
            match row[2] {
                // The service has done it, and the caller does not get to know.
                "timeout" => first = Some(app.refund("k1", 1, Does::Answers).await),
                // The service is not reached.
                "5xx" => assert_eq!(row[3], "502"),
                _ => {
                    let got = app.refund("k1", 1, Does::Answers).await;
                    assert_eq!(got.status.as_str(), row[3]);
                    got.is_replayed(first.as_ref().unwrap());
                }
            }
        }
        assert_eq!(app.made().await, 1);
    })
    .await;
}

async fn t01_replay_outcomes<DB: TestDb>() {
    with_both::<DB>(identity, async |app, _| {
        let mut result = None;
        for row in rows(REPLAY_OUTCOMES) {
            let amount = if row[1] == "abc" { 1 } else { 2 };
            let got =
                app.send(post("/refunds", row[0]).body(asked(amount, Does::Answers).into()).unwrap()).await;
            assert_eq!(got.status.as_str(), row[3], "{row:?}");
            match row[5] {
                "created" => {
                    assert_eq!(got.says(), Some("stored"));
                    result = Some(got.json()["id"].clone());
                }
                "replayed" => {
                    assert_eq!(
                        (got.says(), Some(got.json()["id"].clone())),
                        (Some("replayed"), result.clone())
                    );
                }
                _ => assert_eq!(got.problem().1, "CONFLICT.idempotency.payload_mismatch"),
            }
        }
        let status =
            format!("SELECT count(*) FROM {} WHERE status = 'complete'", DB::table_of("idempotency_keys"));
        assert_eq!((app.made().await, app.number(status).await), (1, 1));
    })
    .await;
}

#[event_handler(consumer = "tests.playbook")]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

async fn t01_consumer_inbox<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let message = placed(1);
    for row in rows(CONSUMER_INBOX) {
        let outcome = world.deliver::<note>(&message).await;
        match row[4] {
            "ok" => assert_eq!(outcome, DeliveryOutcome::Handled),
            _ => assert_eq!(outcome, DeliveryOutcome::Duplicate),
        }
    }
    assert_eq!((world.rows("inbox").await, world.effects().await), (1, vec![1]));
}

cases! { all: [t01_client_retries, t01_replay_outcomes, t01_consumer_inbox] }
