//! The relay to EventBridge, through faults of the bus.
use super::*;
use std::collections::HashSet;
use twinbox::aws::{EventBridge, EventBridgeOptions};
use twinbox_testkit::eventbridge::{Answer, FakeEventBridge};

const MESSAGES: u32 = 300;

fn relay(store: &Store<Postgres>, fake: &FakeEventBridge) -> Running {
    let options = EventBridgeOptions::new("orders")
        .id("bus")
        .region("eu-west-1")
        .endpoint_url(fake.endpoint_url())
        .credentials("AKIDTEST", "secret", None);
    let destination = EventBridge::with_options(options).unwrap();
    Running::run(Relay::new(store.clone(), destination))
}

fn failing(codes: [Option<&'static str>; 10]) -> Answer {
    Answer::Entries(codes.to_vec())
}

/// PITFALLS rows 29, 30: everything arrives, first copies of a key in order, whatever the bus answers.
#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_through_the_faults_of_a_bus() {
    let store = database::postgres().await;
    let fake = FakeEventBridge::start("orders").await.unwrap();
    let ill = Some("InternalFailure");
    let slow = Some("ThrottlingException");
    fake.answer_next([
        failing([None, ill, None, None, ill, None, None, None, None, None]),
        Answer::Throttle(None),
        Answer::Status(500),
        failing([ill, ill, ill, None, None, None, slow, slow, slow, slow]),
        Answer::Truncated,
        Answer::WrongCount,
        Answer::Ok,
        Answer::Malformed,
        failing([slow; 10]),
        Answer::Status(503),
    ]);
    publish(&store, 0..MESSAGES).await;
    let running = relay(&store, &fake);
    // What it acknowledged before a fault may be sent again, so that its own count says nothing.
    let arrived = async {
        while ids(&fake).len() < MESSAGES as usize {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, arrived).await.expect("everything arrives");
    let counters = running.stop().await;
    assert_eq!((counters.dead(), store.parked("bus", 10).await.unwrap().len()), (0, 0));

    let mut seen = HashSet::new();
    let mut last: HashMap<String, String> = HashMap::new();
    for detail in details(&fake) {
        let text = |name: &str| detail[name].as_str().unwrap().to_owned();
        if seen.insert(text("id")) {
            let before = last.insert(text("partitionkey"), text("sequence"));
            assert!(before.is_none_or(|before| before < text("sequence")), "{detail}");
        }
    }
}

/// Of all that the bus took, in order.
fn details(fake: &FakeEventBridge) -> Vec<serde_json::Value> {
    let detail = |entry: &serde_json::Value| serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
    fake.taken().iter().map(detail).collect()
}

fn ids(fake: &FakeEventBridge) -> HashSet<String> {
    details(fake).iter().map(|detail| detail["id"].as_str().unwrap().to_owned()).collect()
}

/// PITFALLS row 32: what the bus can never take is dead before it is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_detail_that_no_bus_takes_is_a_dead_letter() {
    let store = database::postgres().await;
    let fake = FakeEventBridge::start("orders").await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let drafts = vec![
        Draft::raw("orders.placed", 1, r#"{"n": 99999999999999999999}"#).id("poison").key("k-1"),
        Draft::raw("orders.placed", 1, r#"{"n": 1}"#).id("next").key("k-1"),
    ];
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let running = relay(&store, &fake);
    running.published(1).await;
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.dead()), (1, 1));
    let parked = store.parked("bus", 10).await.unwrap();
    assert_eq!((parked[0].message.id.as_str(), parked[0].state.as_str()), ("poison", "dead"));
}
