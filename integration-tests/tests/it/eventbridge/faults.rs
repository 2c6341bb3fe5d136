//! What the service, the network and the payload can do wrong.
use super::*;
use std::time::Instant;
use tokio::net::TcpListener;

/// How long a message may stay without an answer here.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(500);
/// For the machine to be slow.
const GRACE: Duration = Duration::from_secs(10);

/// Sends two messages at once and says what became of them within the time-out.
async fn two(
    fake: &FakeEventBridge,
    answers: impl IntoIterator<Item = Answer>,
) -> [Result<Receipt, PublishError>; 2] {
    let options = options(fake.endpoint_url()).publish_timeout(PUBLISH_TIMEOUT);
    let mut publisher = connect(options).await.unwrap();
    fake.answer_next(answers);
    let start = Instant::now();
    let answers = send(&mut *publisher, &[message(1), message(2)]).await;
    assert!(start.elapsed() < PUBLISH_TIMEOUT + GRACE, "{:?}", start.elapsed());
    answers.try_into().unwrap()
}

async fn both_fail(answer: Answer, kind: K, code: &str) {
    let fake = fake().await;
    for answer in two(&fake, [answer]).await {
        failed(&answer, kind, code);
    }
    assert_eq!(fake.requests().len(), 1, "the client library sends nothing again");
}

/// PITFALLS row 29
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
        ("NotAuthorizedForDetailTypeException", K::NoHome),
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

/// PITFALLS row 30
#[tokio::test]
async fn throttling_says_when_to_come_back() {
    let fake = fake().await;
    for (seconds, wait) in [(None, None), (Some(3), Some(Duration::from_secs(3)))] {
        for answer in two(&fake, [Answer::Throttle(seconds)]).await {
            failed(&answer, K::Throttled, "eventbridge.throttled");
            assert_eq!(answer.unwrap_err().retry_after(), wait);
        }
    }
    both_fail(Answer::Status(429), K::Throttled, "eventbridge.throttled").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_service_that_is_down_is_unavailable() {
    both_fail(Answer::Status(500), K::Unavailable, "eventbridge.internal").await;
    both_fail(Answer::Error(500, "InternalException"), K::Unavailable, "eventbridge.internal").await;
    both_fail(Answer::Status(503), K::Unavailable, "eventbridge.unavailable").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_request_that_is_too_large_is_refused_for_good_message_by_message() {
    let fake = fake().await;
    for answer in two(&fake, vec![Answer::Status(413); 3]).await {
        failed(&answer, K::RefusedForGood, "eventbridge.too_large");
    }
    assert_eq!(fake.requests().len(), 3);
}

/// PITFALLS row 30
#[tokio::test]
async fn an_answer_that_is_no_json_leaves_all_in_doubt() {
    both_fail(Answer::Malformed, K::Unanswered, "eventbridge.unreadable_answer").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn half_an_answer_leaves_all_in_doubt() {
    both_fail(Answer::Truncated, K::Unanswered, "eventbridge.unreadable_answer").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_connection_that_is_cut_leaves_all_in_doubt() {
    both_fail(Answer::Cut, K::InDoubt, "eventbridge.disconnected").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_wrong_number_of_results_leaves_all_in_doubt() {
    both_fail(Answer::WrongCount, K::Unanswered, "eventbridge.answer_count").await;
}

/// PITFALLS rows 30, 54
#[tokio::test]
async fn a_service_that_hangs_leaves_all_in_doubt() {
    both_fail(Answer::Hang, K::Unanswered, "eventbridge.timeout").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn what_waits_behind_requests_that_hang_is_not_sent() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).publish_timeout(PUBLISH_TIMEOUT);
    let mut publisher = connect(options).await.unwrap();
    fake.answer_next(vec![Answer::Hang; 32]);
    let messages: Vec<_> = (0..330).map(message).collect();
    let start = Instant::now();
    let answers = send(&mut *publisher, &messages).await;
    assert!(start.elapsed() < PUBLISH_TIMEOUT + GRACE);
    for answer in &answers[..320] {
        failed(answer, K::Unanswered, "eventbridge.timeout");
    }
    for answer in &answers[320..] {
        let kind = answer.as_ref().unwrap_err().kind();
        assert!(matches!(kind, K::Unavailable | K::Throttled), "{kind:?}");
    }
    assert_eq!(fake.requests().len(), 32);
}

/// What was published meanwhile is not torn down with it.
#[tokio::test]
async fn a_look_at_the_bus_that_is_slow_takes_no_time_of_what_is_published() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).publish_timeout(PUBLISH_TIMEOUT);
    let interval = Duration::from_secs(6);
    let mut publisher = connect(options.describe_interval(interval)).await.unwrap();
    // By then it is time for another look, and not too late.
    tokio::time::sleep(interval / 2).await;
    fake.answer_next_look([Answer::Hang]);
    let looks = fake.looks();
    for n in 0..5 {
        assert!(send(&mut *publisher, &[message(n)]).await[0].is_ok(), "{n}");
    }
    eventually(async || (fake.looks() > looks).then_some(())).await;
}

/// A bus that was not seen for the whole interval may be gone, and would take everything and keep nothing.
#[tokio::test]
async fn what_is_published_after_a_long_rest_counts_once_the_bus_was_seen() {
    let fake = fake().await;
    let options = options(fake.endpoint_url()).publish_timeout(PUBLISH_TIMEOUT);
    let mut publisher = connect(options.describe_interval(Duration::from_millis(10))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    fake.answer_next_look([Answer::Hang]);
    failed(&send(&mut *publisher, &[message(1)]).await[0], K::Unavailable, "eventbridge.timeout");
    assert_eq!(fake.requests().len(), 1);
}

/// PITFALLS row 30
#[tokio::test]
async fn an_answer_byte_by_byte_leaves_all_in_doubt() {
    both_fail(Answer::Drip, K::Unanswered, "eventbridge.timeout").await;
}

async fn cannot_connect(url: String, code: &str) {
    let options = options(url).connect_timeout(PUBLISH_TIMEOUT).request_timeout(2 * PUBLISH_TIMEOUT);
    let start = Instant::now();
    let answer = connect(options).await;
    assert!(start.elapsed() < 2 * PUBLISH_TIMEOUT + GRACE, "{:?}", start.elapsed());
    let error = answer.err().unwrap();
    assert_eq!((error.kind(), error.code()), (K::Unavailable, code), "{error:?}");
}

/// PITFALLS row 30
#[tokio::test]
async fn a_server_without_tls_is_unavailable() {
    let fake = fake().await;
    cannot_connect(format!("https://{}", fake.address()), "eventbridge.connect").await;
}

/// PITFALLS rows 30, 54
#[tokio::test]
async fn a_tls_handshake_that_hangs_is_unavailable() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    cannot_connect(format!("https://{}", silent.local_addr().unwrap()), "eventbridge.connect").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_host_without_an_address_is_unavailable() {
    cannot_connect("http://nowhere.invalid".into(), "eventbridge.connect").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_port_that_nobody_listens_on_is_unavailable() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    cannot_connect(format!("http://{closed}"), "eventbridge.connect").await;
}

/// PITFALLS row 30
#[tokio::test]
async fn a_service_that_goes_away_is_unavailable_and_is_found_when_it_comes_back() {
    let fake = fake().await;
    let proxy = twinbox_testkit::proxy::Proxy::start(fake.address()).await.unwrap();
    let mut publisher = connect(options(format!("http://{}", proxy.address()))).await.unwrap();
    assert!(send(&mut *publisher, &[message(1)]).await[0].is_ok());
    drop(proxy);
    // The connection that was lost may still look alive to the first request.
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

/// PITFALLS row 31
#[tokio::test]
async fn a_missing_bus_is_a_wrong_setup() {
    let fake = FakeEventBridge::start("other").await.unwrap();
    let error = connect(options(fake.endpoint_url())).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (K::Misconfigured, "eventbridge.no_bus"));
    assert!(!error.is_transient());
}

/// PITFALLS row 31
#[tokio::test]
async fn denied_credentials_are_a_wrong_setup() {
    let denied = |code| Answer::Error(400, code);
    refused_at_start(denied("AccessDeniedException"), K::Misconfigured, "eventbridge.denied").await;
    refused_at_start(denied("UnrecognizedClientException"), K::Misconfigured, "eventbridge.credentials")
        .await;
    let signature = Answer::Error(403, "SignatureDoesNotMatch");
    refused_at_start(signature, K::Misconfigured, "eventbridge.signature").await;
}

/// Others may have been issued already. PITFALLS row 31
#[tokio::test]
async fn expired_credentials_are_worth_another_try() {
    let expired = Answer::Error(400, "ExpiredTokenException");
    refused_at_start(expired, K::Unavailable, "eventbridge.credentials_expired").await;
}

/// PITFALLS row 31
#[tokio::test]
async fn a_clock_that_is_wrong_is_named() {
    refused_at_start(Answer::OtherClock, K::Misconfigured, "eventbridge.clock_skew").await;
}

/// PITFALLS row 32
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
    // What is no object itself becomes a member of one.
    for payload in ["[1,2]", "7", "null"] {
        let good = Message { payload: payload.as_bytes().to_vec().into(), ..message(1) };
        assert!(send(&mut *publisher, &[good]).await[0].is_ok(), "{payload}");
    }
    assert_eq!(detail(&fake.taken()[0])["data"], json!([1, 2]));
}
