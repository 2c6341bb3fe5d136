//! Faults of the service, of the network and of payloads.
use super::*;
use crate::support::wait::{self, Pause};
use std::time::Instant;
use tokio::net::TcpListener;

/// The publish time-out of these tests.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(500);
/// The time that a slow machine may add.
const GRACE: Duration = Duration::from_secs(10);

/// Sends two messages at once and returns their results within the time-out, which is long where the service
/// answers, so that a slow machine does not miss the answer.
async fn two(
    fake: &FakeEventBridge,
    answers: impl IntoIterator<Item = Answer>,
) -> [Result<Receipt, PublishError>; 2] {
    two_within(options(fake.endpoint_url()), GRACE, fake, answers).await
}

/// The same of a service that does not answer in time.
async fn two_in_vain(fake: &FakeEventBridge, answer: Answer) -> [Result<Receipt, PublishError>; 2] {
    let options = options(fake.endpoint_url()).publish_timeout(PUBLISH_TIMEOUT);
    two_within(options, PUBLISH_TIMEOUT + GRACE, fake, [answer]).await
}

async fn two_within(
    options: EventBridgeOptions,
    limit: Duration,
    fake: &FakeEventBridge,
    answers: impl IntoIterator<Item = Answer>,
) -> [Result<Receipt, PublishError>; 2] {
    let mut publisher = connect(options).await.unwrap();
    fake.answer_next(answers);
    let start = Instant::now();
    let answers = send(&mut *publisher, &[message(1), message(2)]).await;
    assert!(start.elapsed() < limit, "{:?}", start.elapsed());
    answers.try_into().unwrap()
}

async fn both_fail(answer: Answer, kind: K, code: &str) {
    let fake = fake().await;
    let answers = match answer {
        Answer::Hang | Answer::Drip => two_in_vain(&fake, answer).await,
        answer => two(&fake, [answer]).await,
    };
    for answer in answers {
        failed(&answer, kind, code);
    }
    assert_eq!(fake.requests().len(), 1, "the client library repeats no request");
}

/// Fault 29
#[tokio::test]
async fn of_ten_messages_exactly_those_fail_that_eventbridge_refused() {
    const CODES: [(&str, K); 10] = [
        ("InternalFailure", K::RefusedForNow),
        ("ThrottlingException", K::Throttled),
        ("AccessDeniedException", K::Misconfigured),
        ("InvalidAccountIdException", K::Misconfigured),
        ("InvalidArgument", K::RefusedForGood),
        ("MalformedDetail", K::RefusedForGood),
        ("RedactionFailure", K::RefusedForGood),
        ("NotAuthorizedForSourceException", K::Misconfigured),
        ("NotAuthorizedForDetailTypeException", K::Unroutable),
        ("SomethingNewException", K::RefusedForNow),
    ];
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    let messages: Vec<_> = (0..10).map(message).collect();
    for subset in 0_usize..1024 {
        let fails = |at: usize| (subset >> at & 1 == 1).then_some(CODES[at]);
        let codes = (0..10).map(|at| fails(at).map(|(code, _)| code)).collect();
        fake.answer_next([Answer::Entries(codes)]);
        let answers = send(&mut *publisher, &messages).await;
        let kinds: Vec<_> =
            answers.iter().map(|answer| answer.as_ref().err().map(PublishError::kind)).collect();
        let expected: Vec<_> = (0..10).map(|at| fails(at).map(|(_, kind)| kind)).collect();
        assert_eq!(kinds, expected, "subset {subset:#b}");
    }
    assert_eq!((fake.requests().len(), fake.taken().len()), (1024, 1024 * 5));
}

/// Fault 30
#[tokio::test]
async fn throttling_has_the_requested_wait() {
    let fake = fake().await;
    for (seconds, wait) in [(None, None), (Some(3), Some(Duration::from_secs(3)))] {
        for answer in two(&fake, [Answer::Throttle(seconds)]).await {
            failed(&answer, K::Throttled, "eventbridge.throttled");
            assert_eq!(answer.unwrap_err().retry_after(), wait);
        }
    }
    both_fail(Answer::Status(429), K::Throttled, "eventbridge.throttled").await;
}

/// Fault 30
#[tokio::test]
async fn a_service_that_is_down_is_unavailable() {
    both_fail(Answer::Status(500), K::Unavailable, "eventbridge.internal").await;
    both_fail(Answer::Error(500, "InternalException"), K::Unavailable, "eventbridge.internal").await;
    both_fail(Answer::Status(503), K::Unavailable, "eventbridge.unavailable").await;
}

/// Fault 30
#[tokio::test]
async fn a_request_that_is_too_large_is_refused_for_good_message_by_message() {
    let fake = fake().await;
    for answer in two(&fake, vec![Answer::Status(413); 3]).await {
        failed(&answer, K::RefusedForGood, "eventbridge.too_large");
    }
    assert_eq!(fake.requests().len(), 3);
}

/// Fault 30
#[tokio::test]
async fn a_response_that_is_no_json_leaves_all_in_doubt() {
    both_fail(Answer::Malformed, K::Unanswered, "eventbridge.unreadable_answer").await;
}

/// Fault 30
#[tokio::test]
async fn half_a_response_leaves_all_in_doubt() {
    both_fail(Answer::Truncated, K::Unanswered, "eventbridge.unreadable_answer").await;
}

/// Fault 30
#[tokio::test]
async fn a_connection_that_is_cut_leaves_all_in_doubt() {
    both_fail(Answer::Cut, K::InDoubt, "eventbridge.disconnected").await;
}

/// Fault 30
#[tokio::test]
async fn a_wrong_number_of_results_leaves_all_in_doubt() {
    both_fail(Answer::WrongCount, K::Unanswered, "eventbridge.answer_count").await;
}

/// Faults 30, 54
#[tokio::test]
async fn a_service_that_hangs_leaves_all_in_doubt() {
    both_fail(Answer::Hang, K::Unanswered, "eventbridge.timeout").await;
}

/// Fault 30
#[tokio::test]
async fn messages_behind_requests_that_hang_are_not_sent() {
    let fake = fake().await;
    // All of them are under way before the first is given up.
    let publish_timeout = 4 * PUBLISH_TIMEOUT;
    let options = options(fake.endpoint_url()).publish_timeout(publish_timeout);
    let mut publisher = connect(options).await.unwrap();
    fake.answer_next(vec![Answer::Hang; 32]);
    let messages: Vec<_> = (0..330).map(message).collect();
    let start = Instant::now();
    let answers = send(&mut *publisher, &messages).await;
    assert!(start.elapsed() < publish_timeout + GRACE);
    for answer in &answers[..320] {
        failed(answer, K::Unanswered, "eventbridge.timeout");
    }
    for answer in &answers[320..] {
        let kind = answer.as_ref().unwrap_err().kind();
        assert!(matches!(kind, K::Unavailable | K::Throttled), "{kind:?}");
    }
    assert_eq!(fake.requests().len(), 32);
}

/// A slow check of the bus does not delay messages that are published meanwhile.
#[tokio::test]
async fn a_slow_check_of_the_bus_delays_no_message() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).publish_timeout(5 * PUBLISH_TIMEOUT);
    let mut publisher = connect(options.describe_interval(Duration::from_secs(6))).await.unwrap();
    fake.answer_next_look([Answer::Hang]);
    let before = fake.describe_calls();
    // After half of the interval a message starts the next check, which hangs.
    eventually(async || {
        assert!(send(&mut *publisher, &[message(0)]).await[0].is_ok());
        (fake.describe_calls() > before).then_some(())
    })
    .await;
    for n in 1..5 {
        assert!(send(&mut *publisher, &[message(n)]).await[0].is_ok(), "{n}");
    }
}

/// A bus that was not checked for the whole interval may be gone, and would acknowledge and drop events.
#[tokio::test]
async fn a_message_after_a_long_pause_counts_once_the_bus_was_checked() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).publish_timeout(PUBLISH_TIMEOUT);
    let mut publisher = connect(options.describe_interval(Duration::from_millis(10))).await.unwrap();
    // Only time makes the last check of the bus too old to confirm a message.
    wait::pause(Pause::Age, Duration::from_millis(20)).await;
    fake.answer_next_look([Answer::Hang]);
    failed(&send(&mut *publisher, &[message(1)]).await[0], K::Unavailable, "eventbridge.timeout");
    assert_eq!(fake.requests().len(), 1);
}

/// Fault 30
#[tokio::test]
async fn a_response_byte_by_byte_leaves_all_in_doubt() {
    both_fail(Answer::Drip, K::Unanswered, "eventbridge.timeout").await;
}

async fn cannot_connect(url: String, code: &str) {
    let options = options(url).connect_timeout(PUBLISH_TIMEOUT);
    let start = Instant::now();
    let answer = connect(options).await;
    assert!(start.elapsed() < PUBLISH_TIMEOUT + GRACE, "{:?}", start.elapsed());
    let error = answer.err().unwrap();
    assert_eq!((error.kind(), error.code()), (K::Unavailable, code), "{error:?}");
}

/// Fault 30
#[tokio::test]
async fn a_server_without_tls_is_unavailable() {
    let fake = fake().await;
    cannot_connect(format!("https://{}", fake.address()), "eventbridge.connect").await;
}

/// Faults 30, 54
#[tokio::test]
async fn a_tls_handshake_that_hangs_is_unavailable() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    cannot_connect(format!("https://{}", silent.local_addr().unwrap()), "eventbridge.connect").await;
}

/// Fault 30
#[tokio::test]
async fn a_host_without_an_address_is_unavailable() {
    cannot_connect("https://nowhere.invalid".into(), "eventbridge.connect").await;
}

/// Fault 30
#[tokio::test]
async fn a_closed_port_is_unavailable() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    cannot_connect(format!("http://{closed}"), "eventbridge.connect").await;
}

/// Fault 30
#[tokio::test]
async fn a_service_that_goes_away_is_unavailable_and_is_found_when_it_comes_back() {
    let fake = fake().await;
    let proxy = twinbox_testkit::proxy::Proxy::start(fake.address()).await.unwrap();
    let mut publisher = connect(options(format!("http://{}", proxy.address()))).await.unwrap();
    assert!(send(&mut *publisher, &[message(1)]).await[0].is_ok());
    drop(proxy);
    // The lost connection may still look alive to the first request.
    eventually(async || {
        let answer = send(&mut *publisher, &[message(2)]).await.pop().unwrap();
        let error = answer.unwrap_err();
        assert!(matches!(error.kind(), K::Unavailable | K::InDoubt | K::Unanswered), "{error:?}");
        (error.code() == "eventbridge.connect").then_some(())
    })
    .await;
    assert_eq!(publisher.health().await.unwrap_err().kind(), K::Unavailable);
    assert_eq!(fake.taken().len(), 1);
}

async fn refused_at_start(answer: Answer, kind: K, code: &str) {
    let fake = fake().await;
    fake.answer_next_look([answer.clone()]);
    let error = connect(options(fake.endpoint_url())).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (kind, code), "{error:?}");
    both_fail(answer, kind, code).await;
}

/// Fault 31
#[tokio::test]
async fn a_missing_bus_is_a_wrong_configuration() {
    let fake = FakeEventBridge::start("other").await.unwrap();
    let error = connect(options(fake.endpoint_url())).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (K::Misconfigured, "eventbridge.no_bus"));
    assert!(!error.is_transient());
}

/// Fault 31
#[tokio::test]
async fn denied_credentials_are_a_wrong_configuration() {
    let denied = |code| Answer::Error(400, code);
    refused_at_start(denied("AccessDeniedException"), K::Misconfigured, "eventbridge.denied").await;
    refused_at_start(denied("UnrecognizedClientException"), K::Misconfigured, "eventbridge.credentials")
        .await;
    let signature = Answer::Error(403, "SignatureDoesNotMatch");
    refused_at_start(signature, K::Misconfigured, "eventbridge.signature").await;
}

/// New credentials may have been issued already. Fault 31
#[tokio::test]
async fn expired_credentials_are_worth_a_retry() {
    let expired = Answer::Error(400, "ExpiredTokenException");
    refused_at_start(expired, K::Unavailable, "eventbridge.credentials_expired").await;
}

/// Fault 31
#[tokio::test]
async fn a_clock_that_is_wrong_is_named() {
    refused_at_start(Answer::OtherClock, K::Misconfigured, "eventbridge.clock_skew").await;
}

/// Fault 32
#[tokio::test]
async fn a_payload_that_eventbridge_would_refuse_is_never_sent() {
    let deep = |depth| ["[".repeat(depth), "]".repeat(depth)].concat();
    let table: [(Vec<u8>, &str); 7] = [
        (b"{\"a\":NaN}".into(), "eventbridge.json"),
        (b"{\"a\":".into(), "eventbridge.json"),
        (b"\"\\ud800\"".into(), "eventbridge.json_surrogate"),
        (b"\"\xED\xA0\x80\"".into(), "eventbridge.json_utf8"),
        (deep(1000).into(), "eventbridge.json_depth"),
        (deep(100_000).into(), "eventbridge.json_depth"),
        (b"[9223372036854775808]".into(), "eventbridge.json_integer"),
    ];
    let fake = fake().await;
    let mut publisher = publisher(&fake).await;
    for (payload, code) in table {
        let bad = Message { payload: payload.into(), ..message(1) };
        failed(&send(&mut *publisher, &[bad]).await[0], K::RefusedForGood, code);
    }
    assert!(fake.requests().is_empty());
    // A payload that is no object becomes a member of the detail.
    for payload in ["[1,2]", "7", "null"] {
        let good = Message { payload: payload.as_bytes().to_vec().into(), ..message(1) };
        assert!(send(&mut *publisher, &[good]).await[0].is_ok(), "{payload}");
    }
    assert_eq!(detail(&fake.taken()[0])["data"], json!([1, 2]));
}
