use super::{Answer, Call, Client, ClientError, ClientLayer};
use crate::vendor::{Certainty, ErrorCode, Response, SendError, VendorProfile, profiles};
use bytes::Bytes;
use http::{HeaderMap, Request, header::RETRY_AFTER};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tower::{Layer as _, service_fn, util::BoxCloneSyncService};
use twinbox_core::RetryPolicy;
use uuid::Uuid;

/// How the vendor answers a try.
#[derive(Clone)]
enum Reply {
    Status(u16),
    After(u16, String),
    Refused,
    Cut,
    Silent,
}

/// The tries that came: when, the key, the time-out.
type Seen = Vec<(Instant, Option<String>, Option<String>)>;
type Service = BoxCloneSyncService<Request<Bytes>, Response, SendError>;

/// A client whose vendor follows a script, and repeats the last reply.
struct Scripted {
    client: Client<Service>,
    seen: Arc<Mutex<Seen>>,
    started: Instant,
}

impl Scripted {
    fn new(layer: ClientLayer, replies: impl IntoIterator<Item = Reply>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::new()));
        let replies = Arc::new(Mutex::new(VecDeque::from_iter(replies)));
        let noting = seen.clone();
        let service = service_fn(move |request: Request<Bytes>| {
            let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            let what = (Instant::now(), header("idempotency-key"), header("x-request-timeout"));
            noting.lock().unwrap().push(what);
            let mut replies = replies.lock().unwrap();
            let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
            async move {
                let answer = |status, headers| Ok(Response { status, headers, body: Bytes::new() });
                match reply.expect("a script") {
                    Reply::Status(status) => answer(status, HeaderMap::new()),
                    Reply::After(status, after) => {
                        answer(status, HeaderMap::from_iter([(RETRY_AFTER, after.parse().unwrap())]))
                    }
                    Reply::Refused => Err(SendError::not_sent("refused")),
                    Reply::Cut => Err(SendError::maybe_sent("cut")),
                    Reply::Silent => std::future::pending().await,
                }
            }
        });
        let client = layer.layer(BoxCloneSyncService::new(service));
        Self { client, seen, started: Instant::now() }
    }

    async fn call(&self) -> Result<Answer, ClientError> {
        self.client.send(call("charge")).await
    }

    fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// The milliseconds between the tries.
    fn gaps(&self) -> Vec<u128> {
        let times = Vec::from_iter(self.seen().into_iter().map(|(at, ..)| at));
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

fn call(operation: &str) -> Call {
    Call::new(operation, Request::post("https://vendor.example/v1").body(Bytes::new()).unwrap())
}

fn layer(profile: VendorProfile) -> ClientLayer {
    ClientLayer::new(profile)
}

fn assert_within(gaps: &[u128], ranges: &[(u128, u128)]) {
    assert_eq!(gaps.len(), ranges.len(), "{gaps:?}");
    for (gap, (least, most)) in gaps.iter().zip(ranges) {
        assert!(gap >= least && *gap <= most + 1, "{gaps:?}");
    }
}

/// R13, D17, D18, t27
#[tokio::test(start_paused = true)]
async fn the_vendor_schedule_is_kept() {
    let layer = layer(profiles::STRIPE_V2).retries(RetryPolicy::vendor()).budget(Duration::from_secs(60));
    let vendor = Scripted::new(layer, [Reply::Refused]);
    let error = vendor.call().await.unwrap_err();
    assert_within(&vendor.gaps(), &[(500, 625), (2000, 2500), (5000, 6250), (30_000, 37_500)]);
    assert_eq!((error.attempts(), error.code()), (5, ErrorCode::Transient));
    assert_eq!((error.certainty(), error.is_retryable()), (Certainty::NotSent, true));
}

/// R31, D17, D18, t27
#[tokio::test(start_paused = true)]
async fn the_client_schedule_is_kept_and_ends_within_ten_seconds() {
    const RANGES: [(u128, u128); 7] =
        [(100, 200), (200, 400), (400, 800), (800, 1600), (1600, 2000), (2000, 2000), (2000, 2000)];
    let replies = [Reply::Status(500), Reply::Cut, Reply::Status(504)];
    let vendor = Scripted::new(layer(profiles::STRIPE_V2), replies);
    let error = vendor.call().await.unwrap_err();
    // Five failures open the breaker for 1 s, and the sixth and seventh try are its probes.
    assert_within(&vendor.gaps(), &RANGES[..6]);
    assert!(vendor.started.elapsed() <= Duration::from_secs(10));
    assert_eq!((error.code(), error.attempts()), (ErrorCode::CircuitOpen, 7));
    assert_eq!(error.certainty(), Certainty::MaybeApplied, "an earlier try may have acted");
    // A vendor that is only busy opens no breaker.
    let vendor = Scripted::new(layer(profiles::STRIPE_V2), [Reply::Status(429)]);
    let error = vendor.call().await.unwrap_err();
    assert_within(&vendor.gaps(), &RANGES);
    assert_eq!((error.code(), error.attempts()), (ErrorCode::RateLimited, 8));
    assert!(vendor.started.elapsed() <= Duration::from_secs(10), "{error}");
}

/// R13, R31, t27: never early, and a wait that is too long is for the caller.
#[tokio::test(start_paused = true)]
async fn retry_after_is_never_shortened() {
    let date = |ahead| httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(ahead));
    for (status, text, least, most) in [
        (429, "0".to_owned(), 100, 200),
        (429, "5".to_owned(), 5000, 5000),
        (503, "5".to_owned(), 5000, 5000),
        (409, "5".to_owned(), 5000, 5000),
        (429, date(6), 5000, 7000),
        (429, "Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 100, 200),
        (429, "soon".to_owned(), 100, 200),
    ] {
        let replies = [Reply::After(status, text.clone()), Reply::Status(200)];
        let vendor = Scripted::new(layer(profiles::STRIPE_V1), replies);
        assert_eq!(vendor.call().await.unwrap().attempts, 2);
        let [gap] = vendor.gaps()[..] else { panic!("one wait") };
        assert!(gap >= least && gap <= most + 1, "{text}: {gap}");
    }
    for (text, seconds) in [("10", 10), ("86400", 86_400)] {
        let vendor = Scripted::new(layer(profiles::STRIPE_V1), [Reply::After(429, text.to_owned())]);
        let error = vendor.call().await.unwrap_err();
        assert_eq!((error.attempts(), error.is_retryable()), (1, true));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(seconds)));
        assert_eq!(vendor.started.elapsed(), Duration::ZERO, "it does not wait for nothing");
        // The gate is closed for others too.
        let error = vendor.call().await.unwrap_err();
        assert_eq!((error.attempts(), error.code()), (0, ErrorCode::RateLimited));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(seconds)));
        assert_eq!(vendor.seen().len(), 1);
    }
}

/// R13: the gate that another call has closed is waited for, within the budget.
#[tokio::test(start_paused = true)]
async fn a_closed_gate_is_waited_for() {
    let vendor =
        Scripted::new(layer(profiles::STRIPE_V1), [Reply::After(429, "4".into()), Reply::Status(200)]);
    let (first, second) = tokio::join!(vendor.call(), async {
        tokio::task::yield_now().await;
        vendor.call().await
    });
    assert_eq!((first.unwrap().attempts, second.unwrap().attempts), (2, 1));
    assert!(vendor.seen()[1..].iter().all(|(at, ..)| *at - vendor.started >= Duration::from_secs(4)));
}

/// R13, R30, t27
#[tokio::test(start_paused = true)]
async fn a_refusal_is_not_tried_again() {
    let refused =
        [307, 308, 400, 401, 402, 403, 404, 408, 422, 425].map(|status| (status, Certainty::NotApplied));
    // It may have acted before it redirects.
    let redirected = [300, 302, 303].map(|status| (status, Certainty::MaybeApplied));
    for (status, certainty) in refused.into_iter().chain(redirected) {
        let vendor = Scripted::new(layer(profiles::RESEND), [Reply::Status(status)]);
        let error = vendor.call().await.unwrap_err();
        assert_eq!((error.attempts(), error.certainty()), (1, certainty), "{status}");
        assert!(!error.is_retryable() && !error.hint().is_empty());
    }
}

/// R56, R32: all tries have one key, and say how long the client waits.
#[tokio::test(start_paused = true)]
async fn all_tries_have_one_key_and_calls_have_their_own() {
    let layer = layer(profiles::STRIPE_V2).timeout(Duration::from_secs(3)).send_timeout();
    let vendor = Scripted::new(layer, [Reply::Silent, Reply::Silent, Reply::Status(500), Reply::Status(201)]);
    let answer = vendor.call().await.unwrap();
    assert_eq!((answer.attempts, answer.response.status), (4, 201));
    let seen = vendor.seen();
    assert!(seen.iter().all(|(_, key, _)| key.is_some() && *key == seen[0].1));
    let waits = Vec::from_iter(seen.iter().map(|(.., wait)| wait.clone().unwrap()));
    assert_eq!(waits[..2], ["3000ms", "3000ms"]);
    let last: u128 = waits[3].trim_end_matches("ms").parse().unwrap();
    assert!((1000..=3000).contains(&last), "what is left of the budget: {last}");
    vendor.call().await.unwrap();
    assert_ne!(vendor.seen()[4].1, seen[0].1);
    let key = Uuid::now_v7();
    vendor.client.send(call("charge").key(key)).await.unwrap();
    assert_eq!(vendor.seen()[5].1, Some(key.to_string()));
}

/// R12: no second try for a vendor without keys, once it may have acted.
#[tokio::test(start_paused = true)]
async fn a_vendor_without_keys_is_not_asked_twice() {
    for reply in [Reply::Silent, Reply::Cut, Reply::Status(500)] {
        let vendor = Scripted::new(layer(profiles::TWILIO), [Reply::Refused, reply]);
        let error = vendor.call().await.unwrap_err();
        assert_eq!((error.attempts(), error.certainty()), (2, Certainty::MaybeApplied));
        assert!(!error.is_retryable());
        assert_eq!(vendor.seen()[0].1, None);
    }
}

/// A key from an earlier process is sent while the vendor surely knows it.
#[tokio::test(start_paused = true)]
async fn a_key_that_may_be_forgotten_is_not_sent() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    for (age, sends) in [(hours(1), 1), (hours(21), 1), (hours(22), 0), (hours(1000), 0)] {
        let vendor = Scripted::new(layer(profiles::STRIPE_V1), [Reply::Status(402)]);
        let call = call("charge").key(Uuid::now_v7()).key_age(age);
        let error = vendor.client.send(call).await.unwrap_err();
        assert_eq!((vendor.seen().len(), error.attempts()), (sends, sends as u32));
        assert_eq!(error.code() == ErrorCode::KeyExpired, sends == 0);
        assert_eq!(error.certainty(), Certainty::MaybeApplied);
    }
}

/// R12, t27
#[tokio::test(start_paused = true)]
async fn an_open_breaker_lets_one_probe_through() {
    let once = layer(profiles::TWILIO);
    let vendor =
        Scripted::new(once, [const { Reply::Cut }; 5].into_iter().chain([Reply::Silent, Reply::Status(200)]));
    for _ in 0..5 {
        vendor.call().await.unwrap_err();
    }
    let error = vendor.call().await.unwrap_err();
    assert_eq!((error.code(), error.attempts()), (ErrorCode::CircuitOpen, 0));
    assert_eq!((error.certainty(), error.is_retryable()), (Certainty::NotSent, true));
    sleep(error.retry_after().unwrap()).await;
    let (probe, other) = tokio::join!(vendor.call(), vendor.call());
    assert_eq!(probe.unwrap_err().code(), ErrorCode::Timeout);
    assert_eq!(other.unwrap_err().code(), ErrorCode::CircuitOpen);
    assert_eq!(vendor.seen().len(), 6, "one probe at a time");
    sleep(Duration::from_secs(2)).await;
    assert!(vendor.call().await.is_ok() && vendor.call().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_breaker_can_be_opened_and_closed_by_hand() {
    let vendor = Scripted::new(layer(profiles::STRIPE_V1), [Reply::Status(200)]);
    vendor.client.isolate("charge");
    assert_eq!(vendor.call().await.unwrap_err().code(), ErrorCode::CircuitOpen);
    assert!(vendor.client.send(call("refund")).await.is_ok());
    vendor.client.close("charge");
    assert!(vendor.call().await.is_ok());
}

/// Many callers whose vendor is down do not multiply the calls.
#[tokio::test(start_paused = true)]
async fn retries_have_a_budget_of_their_own() {
    let vendor = Scripted::new(layer(profiles::STRIPE_V2), [Reply::Status(429)]);
    let calls = (0..200).map(|_| vendor.call());
    let errors = futures::future::join_all(calls).await;
    assert!(errors.iter().all(|result| result.as_ref().is_err_and(|error| error.attempts() >= 1)));
    let tries = vendor.seen().len();
    assert!(tries < 500, "200 calls made {tries} tries");
}

#[tokio::test(start_paused = true)]
async fn calls_and_retries_are_counted() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let replies = [Reply::Status(500), Reply::Cut, Reply::Status(200), Reply::Status(402)];
    let vendor = Scripted::new(layer(profiles::STRIPE_V2), replies);
    vendor.call().await.unwrap();
    vendor.call().await.unwrap_err();
    let shown = recorder.handle().render();
    let labels = r#"vendor="stripe_v2",kind="charge""#;
    for line in [
        format!("twinbox_effects_client_calls_total{{{labels},code=\"OK\"}} 1"),
        format!("twinbox_effects_client_calls_total{{{labels},code=\"VALIDATION.rejected\"}} 1"),
        format!("twinbox_effects_client_retries_total{{{labels}}} 2"),
        format!("twinbox_effects_client_retry_delay_seconds_count{{{labels}}} 2"),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
}
