//! A message that ends every process that handles it.
use super::*;
use crate::support::wait::{self, Pause};

const ORDERS: i64 = 40;
/// The consumer aborts.
const POISON: i64 = -1;
/// On its first delivery, on its second beside others, and five times alone.
const DEATHS: u32 = 7;

/// Fault 23
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_ends_its_process_is_given_up_and_takes_no_other_with_it() {
    let database = database::postgres().await;
    let invoices = "CREATE TABLE invoices (order_id bigint NOT NULL, attempt bigint NOT NULL)";
    sqlx::raw_sql(invoices).execute(database.pool()).await.unwrap();
    let mut tx = database.begin().await.unwrap();
    let orders = (1..=ORDERS / 2).chain([POISON]).chain(ORDERS / 2 + 1..=ORDERS);
    let drafts = orders.map(|order_id| Draft::of(&OrderPlaced { order_id, customer: order_id }).unwrap());
    database.outbox().publish_all(&mut tx, drafts.collect()).await.unwrap();
    tx.commit().await.unwrap();

    let programs = Programs::at(database.url().to_owned());
    let mut relay = programs.start(Program::Relay, None);
    let (mut consumer, mut deaths) = (programs.start(Program::Consumer, None), 0);
    let inbox = "SELECT count(*) FROM twinbox.inbox";
    timeout(PATIENCE, async {
        while count(&database, inbox).await <= ORDERS {
            if let Some(ended) = consumer.try_wait().unwrap() {
                assert_eq!(ended.signal(), Some(6), "aborted");
                deaths += 1;
                consumer = programs.start(Program::Consumer, None);
            }
            wait::pause(Pause::Look, Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("all are done with in time");
    relay.kill().await.unwrap();
    assert_eq!(consumer.try_wait().unwrap(), None, "it lives on");
    consumer.kill().await.unwrap();

    assert_eq!(deaths, DEATHS);
    assert_eq!(count(&database, "SELECT count(DISTINCT order_id) FROM invoices").await, ORDERS);
    assert_eq!(count(&database, "SELECT count(*) FROM invoices").await, ORDERS);
    let [dead_letter] = &database.inbox(INVOICING).dead_letters(10).await.unwrap()[..] else {
        panic!("one dead letter")
    };
    assert_eq!((dead_letter.reason.as_str(), dead_letter.message.key.as_deref()), ("crashed", Some("-1")));
    assert_eq!(dead_letter.error, "the process crashed 5 times while the handler ran on this message alone");
    assert_eq!(count(&database, "SELECT count(*) FROM twinbox.attempts").await, 0);
}
