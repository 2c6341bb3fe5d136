//! EventBridge on loopback that answers as a test says.
//!
//! It speaks the protocol of the AWS SDKs over plain HTTP and knows two calls, `DescribeEventBus` and
//! `PutEvents`. Point a client at [`FakeEventBridge::endpoint_url`]; any region and any credentials do.
//!
//! Without a script it behaves as the service does, its surprises included: an event for a bus that does not
//! exist, and one whose type is too long, are acknowledged and dropped. What it cannot read, which is a
//! `Detail` nested deeper than 128 too, is malformed to it.
//!
//! ```no_run
//! # async fn run() -> std::io::Result<()> {
//! use twinbox_testkit::eventbridge::{Answer, FakeEventBridge};
//!
//! let fake = FakeEventBridge::start("orders").await?;
//! fake.answer_next([Answer::Throttle(Some(3)), Answer::Truncated]);
//! // … publish to `fake.endpoint_url()` …
//! assert_eq!(fake.requests().len(), 2);
//! assert!(fake.taken()[0]["DetailType"] == "orders.placed");
//! # Ok(())
//! # }
//! ```
mod http;

use serde_json::{Value, json};
use std::{
    collections::{BTreeSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// How one call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// As the service would.
    Ok,
    /// `PutEvents` fails for each event that has a code here, and takes the others.
    Entries(Vec<Option<&'static str>>),
    /// Throttled, with the seconds of `Retry-After` if there are any. Nothing is taken.
    Throttle(Option<u64>),
    /// This status with an empty body. Nothing is taken.
    Status(u16),
    /// This status and this error code. Nothing is taken.
    Error(u16, &'static str),
    /// The signature is refused by a service whose clock shows another year. Nothing is taken.
    OtherClock,
    /// No answer, until the client gives up. Nothing is taken.
    Hang,
    /// The connection is closed without an answer. Everything is taken.
    Cut,
    /// Half an answer, and then the connection is closed. Everything is taken.
    Truncated,
    /// An answer that comes byte by byte and takes minutes. Everything is taken.
    Drip,
    /// One result less than there were events. Everything is taken.
    WrongCount,
    /// Success, with a body that is no JSON. Everything is taken.
    Malformed,
}

/// One call of `PutEvents`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PutEvents {
    /// The events as they came: `Source`, `DetailType`, `Detail`, …
    pub entries: Vec<Value>,
    /// It had a signature of the version 4.
    pub signed: bool,
}

/// Events that the service takes at a time.
const ENTRIES_MAX: usize = 10;
/// Bytes of a type, beyond which the service drops an event.
const DETAIL_TYPE_BYTES_MAX: usize = 128;

/// A server on loopback. Dropped, it cuts every connection.
#[derive(Debug)]
pub struct FakeEventBridge {
    address: SocketAddr,
    service: Arc<Service>,
    _accepting: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Service {
    state: Mutex<State>,
    calls: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    buses: BTreeSet<String>,
    puts: VecDeque<Answer>,
    looks: VecDeque<Answer>,
    requests: Vec<PutEvents>,
    taken: Vec<Value>,
    looked: usize,
}

impl FakeEventBridge {
    /// Listens on a free port of loopback, with this one bus.
    ///
    /// # Errors
    /// No port can be had.
    pub async fn start(bus: impl Into<String>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let service = Arc::new(Service::default());
        service.state().buses.insert(bus.into());
        let mut accepting = JoinSet::new();
        let serving = service.clone();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let service = serving.clone();
                connections.spawn(async move {
                    let _ = http::serve(client, |call| service.answer(&call)).await;
                });
            }
        });
        Ok(Self { address, service, _accepting: accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    pub fn endpoint_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How the next calls of `PutEvents` are answered, one after another.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.service.state().puts.extend(answers);
    }

    /// How the next calls of `DescribeEventBus` are answered, one after another.
    pub fn answer_next_look(&self, answers: impl IntoIterator<Item = Answer>) {
        self.service.state().looks.extend(answers);
    }

    /// From now on there is a bus of this name.
    pub fn create_bus(&self, name: impl Into<String>) {
        self.service.state().buses.insert(name.into());
    }

    /// From now on there is no bus of this name.
    pub fn delete_bus(&self, name: &str) {
        self.service.state().buses.remove(name);
    }

    /// Every call of `PutEvents` that was read, answered or not.
    pub fn requests(&self) -> Vec<PutEvents> {
        self.service.state().requests.clone()
    }

    /// The events that a rule could match: acknowledged, or taken although the client was not told.
    pub fn taken(&self) -> Vec<Value> {
        self.service.state().taken.clone()
    }

    /// How many calls of `DescribeEventBus` were read.
    pub fn looks(&self) -> usize {
        self.service.state().looked
    }

    /// Waits until that many calls of `PutEvents` were read.
    pub async fn wait_for_requests(&self, count: usize) {
        let mut calls = self.service.calls.subscribe();
        let _ = calls.wait_for(|calls| *calls >= count).await;
    }
}

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn answer(&self, call: &http::Call) -> http::Reply {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        match call.target.as_str() {
            "AWSEvents.DescribeEventBus" => self.look(&body),
            "AWSEvents.PutEvents" => self.put(call.signed, &body),
            _ => http::Reply::error(400, "UnknownOperationException"),
        }
    }

    fn look(&self, body: &Value) -> http::Reply {
        let mut state = self.state();
        state.looked += 1;
        let answer = state.looks.pop_front().unwrap_or(Answer::Ok);
        let name = bus_name(&body["Name"]);
        if !state.buses.contains(name) {
            return reply(&answer, http::Reply::error(400, "ResourceNotFoundException"));
        }
        let arn = format!("arn:aws:events:us-east-1:123456789012:event-bus/{name}");
        reply(&answer, http::Reply::ok(&json!({"Name": name, "Arn": arn})))
    }

    fn put(&self, signed: bool, body: &Value) -> http::Reply {
        let mut state = self.state();
        let entries = body["Entries"].as_array().cloned().unwrap_or_default();
        state.requests.push(PutEvents { entries: entries.clone(), signed });
        self.calls.send_modify(|calls| *calls += 1);
        let answer = state.puts.pop_front().unwrap_or(Answer::Ok);
        if !(1..=ENTRIES_MAX).contains(&entries.len()) {
            return reply(&answer, http::Reply::error(400, "ValidationException"));
        }
        if !answer.takes() {
            return reply(&answer, http::Reply::ok(&Value::Null));
        }
        let mut results = Vec::with_capacity(entries.len());
        for (at, entry) in entries.into_iter().enumerate() {
            results.push(match answer.code(at).or_else(|| refusal(&entry)) {
                Some(code) => json!({"ErrorCode": code, "ErrorMessage": "as the test says"}),
                None => {
                    let is_kept = state.buses.contains(bus_name(&entry["EventBusName"]))
                        && text(&entry["DetailType"]).len() <= DETAIL_TYPE_BYTES_MAX;
                    if is_kept {
                        state.taken.push(entry);
                    }
                    json!({"EventId": format!("event-{}-{at}", state.requests.len())})
                }
            });
        }
        if answer == Answer::WrongCount {
            results.pop();
        }
        let failed = results.iter().filter(|result| result["ErrorCode"].is_string()).count();
        reply(&answer, http::Reply::ok(&json!({"FailedEntryCount": failed, "Entries": results})))
    }
}

impl Answer {
    fn takes(&self) -> bool {
        match self {
            Self::Throttle(_) | Self::Status(_) | Self::Error(..) | Self::OtherClock | Self::Hang => false,
            Self::Ok | Self::Entries(_) | Self::WrongCount | Self::Malformed => true,
            Self::Cut | Self::Truncated | Self::Drip => true,
        }
    }

    fn code(&self, at: usize) -> Option<&'static str> {
        match self {
            Self::Entries(codes) => codes.get(at).copied().flatten(),
            _ => None,
        }
    }
}

/// The answer to a call that would have been answered with `usual`.
fn reply(answer: &Answer, usual: http::Reply) -> http::Reply {
    match answer {
        Answer::Ok | Answer::Entries(_) | Answer::WrongCount => usual,
        Answer::Throttle(None) => http::Reply::error(400, "ThrottlingException"),
        Answer::Throttle(Some(seconds)) => {
            http::Reply::error(400, "ThrottlingException").header("Retry-After", seconds)
        }
        Answer::Status(status) => http::Reply::empty(*status),
        Answer::Error(status, code) => http::Reply::error(*status, code),
        Answer::OtherClock => http::Reply::error(403, "InvalidSignatureException")
            .header("Date", &"Thu, 01 Jan 2015 00:00:00 GMT"),
        Answer::Hang => usual.sent(http::Manner::Never),
        Answer::Cut => usual.sent(http::Manner::Cut),
        Answer::Truncated => usual.sent(http::Manner::Half),
        Answer::Drip => usual.sent(http::Manner::Drip),
        Answer::Malformed => usual.body("<html>this is no JSON</html>"),
    }
}

/// Why the service would refuse this event.
fn refusal(entry: &Value) -> Option<&'static str> {
    let source = text(&entry["Source"]);
    if source.is_empty() || text(&entry["DetailType"]).is_empty() {
        return Some("InvalidArgument");
    }
    if source.starts_with("aws.") {
        return Some("NotAuthorizedForSourceException");
    }
    let detail = serde_json::from_str::<Value>(text(&entry["Detail"]));
    if detail.is_ok_and(|detail| detail.is_object()) { None } else { Some("MalformedDetail") }
}

fn bus_name(name_or_arn: &Value) -> &str {
    let text = name_or_arn.as_str().unwrap_or("default");
    text.split_once("event-bus/").map_or(text, |(_, name)| name)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
