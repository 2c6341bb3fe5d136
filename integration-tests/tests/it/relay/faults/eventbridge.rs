//! EventBridge responds partly, with errors, wrongly, slowly, or not at all.
use super::*;
use crate::support::wait::{self, Pause};
use std::collections::{HashMap, HashSet};
use tokio::net::TcpListener;
use twinbox::{
    RetryPolicy,
    aws::{EventBridge, EventBridgeOptions},
    ops::Ops,
    relay::{CircuitBreakerState, Error},
};
use twinbox_testkit::aws::{Answer, FakeEventBridge};

fn options(url: String) -> EventBridgeOptions {
    EventBridgeOptions::new("orders")
        .id("bus")
        .region("eu-west-1")
        .endpoint_url(url)
        .credentials("AKIDTEST", "secret", None)
        .publish_timeout(PUBLISH_TIMEOUT)
        .connect_timeout(PUBLISH_TIMEOUT)
        .request_timeout(PUBLISH_TIMEOUT)
}

/// Retries soon and without end.
fn relay(store: &Store<Postgres>, options: EventBridgeOptions, lease: Duration) -> Relay<Postgres> {
    let retry = RetryPolicy::exponential(Duration::from_millis(10), Duration::from_millis(50));
    let relay = RelayOptions::new().lease(lease).retry(retry);
    Relay::with_options(store.clone(), EventBridge::with_options(options).unwrap(), relay)
}

async fn fake() -> FakeEventBridge {
    FakeEventBridge::start("orders").await.unwrap()
}

fn attribute(entry: &serde_json::Value, name: &str) -> String {
    let detail: serde_json::Value = serde_json::from_str(entry["Detail"].as_str().unwrap()).unwrap();
    detail[name].as_str().unwrap().to_owned()
}

/// Waits until the bus has accepted that many messages, and asserts that the first copies of a key came in
/// order.
async fn whole(fake: &FakeEventBridge, count: usize) {
    let distinct = || fake.taken().iter().map(|entry| attribute(entry, "id")).collect::<HashSet<_>>().len();
    let waited = timeout(PATIENCE, async {
        while distinct() < count {
            wait::pause(Pause::Look, Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{} of {count} arrived", distinct());
    let mut seen = HashSet::new();
    let mut last: HashMap<String, String> = HashMap::new();
    for entry in fake.taken() {
        if seen.insert(attribute(&entry, "id")) {
            let sequence = attribute(&entry, "sequence");
            let before = last.insert(attribute(&entry, "partitionkey"), sequence.clone());
            assert!(before.is_none_or(|before| before < sequence), "{entry}");
        }
    }
    assert_eq!(seen.len(), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_29_every_subset_of_ten_fails() {
    // 1,024 full requests deliver half of their entries: more messages than that need every answer.
    const MESSAGES: usize = 5_500;
    let (store, fake) = (postgres().await, fake().await);
    let fails = |subset: usize, at: usize| subset >> at & 1 == 1;
    let codes = |subset| (0..10).map(|at| fails(subset, at).then_some("InternalFailure")).collect();
    fake.answer_next((0..1024).map(|subset| Answer::Entries(codes(subset))));
    let insert = "INSERT INTO twinbox.outbox (type, key, payload)
        SELECT 'orders.placed', 'k-' || n % 400, '{}' FROM generate_series(1, $1) n";
    sqlx::query(insert).bind(MESSAGES as i64).execute(store.pool()).await.unwrap();
    // Long, so that no message is in doubt on a slow machine.
    let options = options(fake.endpoint_url()).publish_timeout(PATIENCE / 2).request_timeout(PATIENCE / 2);
    let running = Running::run(relay(&store, options, PATIENCE));
    running.published(MESSAGES as u64).await;
    let counters = running.stop().await;
    assert_eq!((counters.parked(), counters.dead_letters()), (0, 0));

    let (mut sent, mut failed) = (HashMap::new(), HashMap::new());
    for (number, request) in fake.requests().iter().enumerate() {
        for (at, entry) in request.entries.iter().enumerate() {
            *sent.entry(attribute(entry, "id")).or_insert(0) += 1;
            *failed.entry(attribute(entry, "id")).or_insert(1) +=
                i32::from(number < 1024 && fails(number, at));
        }
    }
    assert!(sent == failed, "only failed messages are sent again");
    assert!(fake.requests().len() > 1024);
    assert_eq!(fake.taken().len(), MESSAGES);
    whole(&fake, MESSAGES).await;
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_30_wrong_slow_and_missing_answers() {
    let (store, fake) = (postgres().await, fake().await);
    let (ill, slow) = (Some("InternalFailure"), Some("ThrottlingException"));
    let some = |codes: [Option<&'static str>; 10]| Answer::Entries(codes.to_vec());
    let answers = [
        some([None, ill, None, None, ill, None, None, None, None, None]),
        Answer::Throttle(None),
        Answer::Status(500),
        Answer::Hang,
        some([ill, ill, ill, None, None, None, slow, slow, slow, slow]),
        Answer::Truncated,
        Answer::WrongCount,
        Answer::Cut,
        Answer::Malformed,
        Answer::Throttle(Some(1)),
        Answer::Drip,
        Answer::Status(429),
        Answer::Status(503),
        Answer::Status(413),
    ];
    for (n, answer) in (0..).zip(answers) {
        // One fault at a time, with later messages of the key behind it.
        fake.answer_next([answer]);
        publish(&store, n * 20..(n + 1) * 20).await;
    }
    let running = Running::run(relay(&store, options(fake.endpoint_url()), LEASE));
    whole(&fake, 280).await;
    let counters = running.stop().await;
    assert_eq!((counters.parked(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
}

async fn waited_out(fake: &FakeEventBridge, url: String) {
    let store = postgres().await;
    publish(&store, 0..10).await;
    let running = Running::run(relay(&store, options(url), LEASE));
    eventually(async || {
        assert!(!running.task.is_finished(), "the relay ended in an outage");
        (running.breaker.state() == CircuitBreakerState::Open).then_some(())
    })
    .await;
    running.stop().await;
    nothing_is_parked(&store).await;
    let running = Running::run(relay(&store, options(fake.endpoint_url()), LEASE));
    running.published(10).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_30_no_tls_no_address_and_nobody_there() {
    let fake = fake().await;
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let urls = [
        format!("https://{}", fake.address()),
        format!("https://{}", silent.local_addr().unwrap()),
        "https://nowhere.invalid".to_owned(),
        format!("http://{closed}"),
    ];
    futures::future::join_all(urls.map(|url| waited_out(&fake, url))).await;
    assert_eq!(fake.taken().len(), 40);
}

/// Runs a relay that must end, and returns the code of its error.
async fn refused(relay: Relay<Postgres>) -> String {
    let ended = timeout(PATIENCE, relay.run(CancellationToken::new())).await.expect("the relay ends");
    let Err(Error::Destination(error)) = ended else { panic!("{ended:?}") };
    error.code().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn row_31_the_bus_or_the_credentials_are_wrong() {
    let (store, fake) = (postgres().await, fake().await);
    publish(&store, 0..50).await;
    fake.delete_bus("orders");
    assert_eq!(refused(relay(&store, options(fake.endpoint_url()), LEASE)).await, "eventbridge.no_bus");
    fake.create_bus("orders");
    for (answer, code) in [
        (Answer::Error(400, "AccessDeniedException"), "eventbridge.denied"),
        (Answer::Error(400, "UnrecognizedClientException"), "eventbridge.credentials"),
        (Answer::OtherClock, "eventbridge.clock_skew"),
    ] {
        fake.answer_next_look([answer]);
        assert_eq!(refused(relay(&store, options(fake.endpoint_url()), LEASE)).await, code);
    }
    assert_eq!(fake.requests().len(), 0);

    // New credentials may have been issued: the relay waits while the old ones are expired.
    fake.answer_next_look(vec![Answer::Error(400, "ExpiredTokenException"); 2]);
    let describe_interval = Duration::from_millis(100);
    let options = options(fake.endpoint_url()).describe_interval(describe_interval);
    let running = Running::run(relay(&store, options, LEASE));
    running.published(50).await;
    // In a running relay each of these errors opens the circuit breaker, and no message fails.
    fake.answer_next(vec![Answer::Error(400, "ExpiredTokenException"); 3]);
    publish(&store, 50..100).await;
    running.published(100).await;
    // Only time makes the last check of the bus too old to confirm a message; a longer sleep changes nothing.
    wait::pause(Pause::Age, describe_interval).await;
    fake.delete_bus("orders");
    publish(&store, 100..150).await;
    eventually(async || (running.breaker.state() == CircuitBreakerState::Open).then_some(())).await;
    nothing_is_parked(&store).await;
    fake.create_bus("orders");
    whole(&fake, 150).await;
    running.stop().await;
    nothing_is_parked(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_32_details_that_no_bus_takes() {
    let (store, fake) = (postgres().await, fake().await);
    let deep = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
    let bad: [(Vec<u8>, &str); 7] = [
        (b"{\"a\":NaN}".into(), "eventbridge.json"),
        (b"{\"a\":".into(), "eventbridge.json"),
        (b"\"\\ud800\"".into(), "eventbridge.json_surrogate"),
        (b"\"\xED\xA0\x80\"".into(), "eventbridge.json_utf8"),
        (deep(1001).into(), "eventbridge.json_depth"),
        (b"[9223372036854775808]".into(), "eventbridge.json_integer"),
        (b"{\"n\": 99999999999999999999}".into(), "eventbridge.json_integer"),
    ];
    let mut drafts = Vec::new();
    for (n, (payload, _)) in bad.iter().enumerate() {
        let draft = |payload: Vec<u8>, id: String| Draft::raw("orders.placed", 1, payload).id(id).key("k-1");
        drafts.push(draft(payload.clone(), format!("bad-{n}")));
        drafts.push(draft(format!("[{n}]").into_bytes(), format!("good-{n}")));
    }
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let running = Running::run(relay(&store, options(fake.endpoint_url()), LEASE));
    running.published(bad.len() as u64).await;
    let parked = eventually(async || {
        let parked = Ops::new(&store).parked_messages("bus", 100).await.unwrap();
        (parked.len() == bad.len()).then_some(parked)
    })
    .await;
    for (n, (parked, (_, code))) in parked.iter().zip(&bad).enumerate() {
        let found = (parked.message.id.as_str(), parked.state.as_str(), parked.first_error.as_str());
        assert_eq!((found, parked.attempts), ((format!("bad-{n}").as_str(), "dead", *code), 1));
    }
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.dead_letters()), (bad.len() as u64, bad.len() as u64));
    whole(&fake, bad.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_54_half_open_connection_to_the_bus() {
    let (store, fake) = (postgres().await, fake().await);
    let proxy = Proxy::start(fake.address()).await.unwrap();
    let running = Running::run(relay(&store, options(format!("http://{}", proxy.address())), LEASE));
    publish(&store, 0..50).await;
    running.published(50).await;
    proxy.freeze_open();
    let frozen = Instant::now();
    publish(&store, 50..100).await;
    running.published(100).await;
    assert!(frozen.elapsed() < 4 * PUBLISH_TIMEOUT + BUSY, "{:?}", frozen.elapsed());
    let counters = running.stop().await;
    assert_eq!((counters.parked(), counters.dead_letters()), (0, 0));
    nothing_is_parked(&store).await;
    whole(&fake, 100).await;
}
