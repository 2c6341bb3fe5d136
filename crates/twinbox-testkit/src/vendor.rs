//! A vendor on loopback, such as a payment provider, whose faults a test chooses.
//!
//! It acts once for each idempotency key, and repeats its response for a key that it knows, with the header
//! `Idempotent-Replayed: true`. Without a key it acts each time. `GET /acts?contains=TEXT` tells whether it
//! has acted upon a call whose body contains the text: 200 or 404.
//!
//! ```no_run
//! # async fn run() -> std::io::Result<()> {
//! use twinbox_testkit::vendor::{FakeVendor, VendorAnswer};
//!
//! let vendor = FakeVendor::start().await?;
//! vendor.answer_next([VendorAnswer::ActThenCut]);
//! // … send an effect to `vendor.url()`, and again, because the connection was cut …
//! assert_eq!((vendor.calls().len(), vendor.acts().len()), (2, 1));
//! # Ok(())
//! # }
//! ```
use crate::http::{Call, Manner, Reply, Server};
use serde_json::{Value, json};
use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The header in which calls carry their key, unless a test says otherwise.
const KEY_HEADER: &str = "idempotency-key";

/// How the vendor deals with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VendorAnswer {
    /// The vendor acts, and says so.
    Act,
    /// The vendor acts. The connection closes without a response.
    ActThenCut,
    /// The vendor acts. No response comes until the client leaves.
    ActThenStall,
    /// The vendor acts. The connection closes after half of the response.
    ActThenTruncate,
    /// The vendor acts. The response comes byte by byte and takes minutes.
    ActThenDrip,
    /// The vendor acts, and responds with this status.
    ActThenStatus(u16),
    /// The connection closes without a response. Nothing is done.
    Cut,
    /// No response comes until the client leaves. Nothing is done.
    Stall,
    /// The vendor responds with this status. Nothing is done.
    Status(u16),
    /// The vendor responds with this status and `Retry-After` in seconds. Nothing is done.
    RetryAfter(u16, u64),
}

impl VendorAnswer {
    fn acts(self) -> bool {
        match self {
            Self::Act | Self::ActThenCut | Self::ActThenStall | Self::ActThenTruncate => true,
            Self::ActThenDrip | Self::ActThenStatus(_) => true,
            Self::Cut | Self::Stall | Self::Status(_) | Self::RetryAfter(..) => false,
        }
    }
}

/// A call that reached the vendor.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VendorRequest {
    /// The method.
    pub method: String,
    /// The path and the query.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The idempotency key, if the call has one.
    pub key: Option<String>,
    /// How the call was answered.
    pub answer: VendorAnswer,
    /// Whether the vendor acted upon this call.
    pub acted: bool,
    /// When the call came.
    pub at: Instant,
}

/// A vendor on loopback. Dropping it cuts every connection.
#[derive(Debug)]
pub struct FakeVendor {
    server: Server,
    service: Arc<Service>,
}

#[derive(Debug, Default)]
struct Service {
    state: Mutex<State>,
    calls: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    script: VecDeque<VendorAnswer>,
    /// How to answer when the script has ended, by the number of the call.
    then: Then,
    requests: Vec<VendorRequest>,
    /// The body of the first call of each key.
    known: HashMap<String, Vec<u8>>,
    key_place: Option<String>,
    known_answer: Option<(u16, String)>,
    delay: Duration,
}

#[derive(Default)]
struct Then(Option<Box<dyn Fn(usize) -> VendorAnswer + Send>>);

impl std::fmt::Debug for Then {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Then").field(&self.0.is_some()).finish()
    }
}

impl FakeVendor {
    /// Starts a vendor on a free port of loopback.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> io::Result<Self> {
        let service = Arc::new(Service::default());
        let serving = service.clone();
        let answer = move |call: Call| {
            let serving = serving.clone();
            async move {
                let delay = serving.state().delay;
                if !delay.is_zero() {
                    // The time that a real vendor takes.
                    tokio::time::sleep(delay).await;
                }
                serving.answer(call)
            }
        };
        Ok(Self { server: Server::start(answer).await?, service })
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// Chooses how the next calls are answered, one after another.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = VendorAnswer>) {
        self.service.state().script.extend(answers);
    }

    /// Chooses how calls are answered for which [`answer_next`](Self::answer_next) chose nothing, by their
    /// number from 0.
    pub fn answer_with(&self, answer: impl Fn(usize) -> VendorAnswer + Send + 'static) {
        self.service.state().then = Then(Some(Box::new(answer)));
    }

    /// Sets where calls carry their key: a header, or a JSON pointer into the body. Empty: the vendor knows
    /// no keys.
    pub fn key_place(&self, place: &str) {
        self.service.state().key_place = Some(place.to_owned());
    }

    /// Sets the status and the body of the response to a key that is known, instead of the first response.
    pub fn answer_known(&self, status: u16, body: &str) {
        self.service.state().known_answer = Some((status, body.to_owned()));
    }

    /// Sets how long each response takes.
    pub fn delay(&self, delay: Duration) {
        self.service.state().delay = delay;
    }

    /// Forgets all keys, as a vendor does when their time is over.
    pub fn forget_keys(&self) {
        self.service.state().known.clear();
    }

    /// Returns the calls, also those without a response.
    pub fn calls(&self) -> Vec<VendorRequest> {
        self.service.state().requests.clone()
    }

    /// Returns the bodies of the calls upon which the vendor acted.
    pub fn acts(&self) -> Vec<Vec<u8>> {
        let state = self.service.state();
        state.requests.iter().filter(|request| request.acted).map(|request| request.body.clone()).collect()
    }

    /// Returns how many calls came while `Retry-After` asked for none, later than `grace` after it was said:
    /// calls that were under way by then do not count.
    pub fn early_calls(&self, grace: Duration) -> usize {
        let state = self.service.state();
        let mut closed: Option<(Instant, Instant)> = None;
        let mut early = 0;
        for request in &state.requests {
            early += usize::from(
                closed.is_some_and(|(said, until)| request.at > said + grace && request.at < until),
            );
            if let VendorAnswer::RetryAfter(_, seconds) = request.answer {
                let until = request.at + Duration::from_secs(seconds);
                closed = Some(closed.filter(|(_, old)| *old > until).unwrap_or((request.at, until)));
            }
        }
        early
    }

    /// Waits until there were `count` calls.
    pub async fn wait_for_calls(&self, count: usize) {
        let mut calls = self.service.calls.subscribe();
        let _ = calls.wait_for(|calls| *calls >= count).await;
    }
}

impl State {
    fn key_of(&self, call: &Call) -> Option<String> {
        let place = self.key_place.as_deref().unwrap_or(KEY_HEADER);
        let key = if place.starts_with('/') {
            let body: Value = serde_json::from_slice(&call.body).ok()?;
            body.pointer(place)?.as_str()?.to_owned()
        } else {
            call.header(&place.to_ascii_lowercase()).to_owned()
        };
        Some(key).filter(|key| !key.is_empty())
    }
}

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, call: Call) -> Reply {
        let mut state = self.state();
        if let ("GET", Some(text)) = (call.method.as_str(), call.path.strip_prefix("/acts?contains=")) {
            let is_in = |body: &[u8]| String::from_utf8_lossy(body).contains(text);
            let has_acted = state.requests.iter().any(|request| request.acted && is_in(&request.body));
            return Reply::empty(if has_acted { 200 } else { 404 });
        }
        let answer = state.script.pop_front().unwrap_or_else(|| {
            let nth = state.requests.len();
            state.then.0.as_ref().map_or(VendorAnswer::Act, |then| then(nth))
        });
        let key = state.key_of(&call);
        let known = key.as_ref().and_then(|key| state.known.get(key)).cloned();
        let acted = answer.acts() && known.is_none();
        if let (true, Some(key)) = (acted, &key) {
            state.known.insert(key.clone(), call.body.clone());
        }
        let nth = state.requests.len();
        let Call { method, path, headers, body } = call;
        let is_other = known.as_ref().is_some_and(|first| *first != body);
        state.requests.push(VendorRequest {
            method,
            path,
            headers,
            body,
            key,
            answer,
            acted,
            at: Instant::now(),
        });
        let count = state.requests.len();
        let known_answer = state.known_answer.clone().filter(|_| known.is_some());
        drop(state);
        self.calls.send_replace(count);
        if is_other && answer.acts() {
            return Reply::empty(400).body(json!({"error": {"type": "idempotency_error"}}).to_string());
        }
        let done = match known_answer {
            Some((status, body)) => Reply::empty(status).body(body),
            None => Reply::ok(&json!({"id": format!("act_{nth}")})),
        };
        let done = if known.is_some() { done.header("Idempotent-Replayed", &true) } else { done };
        match answer {
            VendorAnswer::Act => done,
            VendorAnswer::ActThenCut | VendorAnswer::Cut => done.sent(Manner::Cut),
            VendorAnswer::ActThenStall | VendorAnswer::Stall => done.sent(Manner::Never),
            VendorAnswer::ActThenTruncate => done.sent(Manner::Half),
            VendorAnswer::ActThenDrip => done.sent(Manner::Drip),
            VendorAnswer::ActThenStatus(status) | VendorAnswer::Status(status) => Reply::empty(status),
            VendorAnswer::RetryAfter(status, seconds) => Reply::empty(status).header("Retry-After", &seconds),
        }
    }
}
