//! A fake of EventBridge.
use super::{
    TARGET,
    answer::Answer,
    sqs::{FakeSqs, Queues},
};
use crate::http;
use serde_json::{Value, json};
use std::time::Duration;
use std::{
    collections::{BTreeSet, VecDeque},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::watch;

/// A call of `PutEvents`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PutEvents {
    /// The entries of the request: `Source`, `DetailType`, `Detail`, …
    pub entries: Vec<Value>,
    /// Whether the request has a signature of version 4.
    pub signed: bool,
}

/// How the header of a signature of version 4 begins.
const SIGNATURE: &str = "AWS4-HMAC-SHA256 ";
/// Entries of one call.
const ENTRIES_MAX: usize = 10;
/// Bytes of a type. The service drops events with longer types.
const DETAIL_TYPE_BYTES_MAX: usize = 128;

/// A fake of EventBridge on loopback. Dropping it cuts every connection.
///
/// It knows the calls `DescribeEventBus` and `PutEvents`. As the service does, it acknowledges and drops
/// events for an unknown bus and events whose type is too long. A `Detail` that it cannot parse is malformed,
/// also one that is nested deeper than 128 levels.
#[derive(Debug)]
pub struct FakeEventBridge {
    server: http::Server,
    service: Arc<Service>,
}

#[derive(Debug, Default)]
struct Service {
    state: Mutex<State>,
    calls: watch::Sender<usize>,
    /// Entries per second, one request after another. `None`: no limit.
    pace: Mutex<Option<f64>>,
    /// How long each call of `PutEvents` takes, beside others.
    delay: Mutex<Duration>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    buses: BTreeSet<String>,
    puts: VecDeque<Answer>,
    looks: VecDeque<Answer>,
    requests: Vec<PutEvents>,
    taken: Vec<Value>,
    looked: usize,
    fed: Option<Queues>,
}

impl FakeEventBridge {
    /// Starts a fake with one bus on a free port of loopback.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(bus: impl Into<String>) -> io::Result<Self> {
        let service = Arc::new(Service::default());
        service.state().buses.insert(bus.into());
        let serving = service.clone();
        let answer = move |call: http::Call| {
            let serving = serving.clone();
            async move {
                serving.take_time(&call).await;
                serving.answer(&call)
            }
        };
        Ok(Self { server: http::Server::start(answer).await?, service })
    }

    /// Returns the address for clients.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Returns the URL for clients.
    pub fn endpoint_url(&self) -> String {
        self.server.url()
    }

    /// Limits the entries per second from now on, one request after another. `None` ends the limit.
    pub fn pace(&self, entries_per_second: Option<f64>) {
        *self.service.pace.lock().expect("no holder panics") = entries_per_second;
    }

    /// Sets how long each call of `PutEvents` takes from now on. Calls at the same time do not wait for each
    /// other.
    pub fn delay(&self, delay: Duration) {
        *self.service.delay.lock().expect("no holder panics") = delay;
    }

    /// Chooses the responses to the next calls of `PutEvents`, one after another.
    pub fn answer_next(&self, answers: impl IntoIterator<Item = Answer>) {
        self.service.state().puts.extend(answers);
    }

    /// Chooses the responses to the next calls of `DescribeEventBus`, one after another.
    pub fn answer_next_look(&self, answers: impl IntoIterator<Item = Answer>) {
        self.service.state().looks.extend(answers);
    }

    /// Creates a bus.
    pub fn create_bus(&self, name: impl Into<String>) {
        self.service.state().buses.insert(name.into());
    }

    /// Deletes a bus.
    pub fn delete_bus(&self, name: &str) {
        self.service.state().buses.remove(name);
    }

    /// Sends every event that is taken from now on to every queue of `sqs`, as a rule does.
    pub fn feed(&self, sqs: &FakeSqs) {
        self.service.state().fed = Some(sqs.queues());
    }

    /// Returns every call of `PutEvents`, also those without a response.
    pub fn requests(&self) -> Vec<PutEvents> {
        self.service.state().requests.clone()
    }

    /// Returns the events that a rule could match, also those that were taken without a response.
    pub fn taken(&self) -> Vec<Value> {
        self.service.state().taken.clone()
    }

    /// Returns the number of calls of `DescribeEventBus`.
    pub fn describe_calls(&self) -> usize {
        self.service.state().looked
    }

    /// Waits until there were `count` calls of `PutEvents`.
    pub async fn wait_for_requests(&self, count: usize) {
        let mut calls = self.service.calls.subscribe();
        let _ = calls.wait_for(|calls| *calls >= count).await;
    }
}

impl Service {
    async fn take_time(&self, call: &http::Call) {
        if call.header(TARGET) != "AWSEvents.PutEvents" {
            return;
        }
        let delay = *self.delay.lock().expect("no holder panics");
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let Some(pace) = *self.pace.lock().expect("no holder panics") else { return };
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let entries = body["Entries"].as_array().map_or(0, Vec::len);
        let _turn = self.turn.lock().await;
        tokio::time::sleep(Duration::from_secs_f64(entries as f64 / pace)).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn answer(&self, call: &http::Call) -> http::Reply {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        match call.header(TARGET) {
            "AWSEvents.DescribeEventBus" => self.look(&body),
            "AWSEvents.PutEvents" => self.put(call.header("authorization").starts_with(SIGNATURE), &body),
            _ => http::Reply::error(400, "UnknownOperationException"),
        }
    }

    fn look(&self, body: &Value) -> http::Reply {
        let mut state = self.state();
        state.looked += 1;
        let answer = state.looks.pop_front().unwrap_or(Answer::Ok);
        let name = bus_name(&body["Name"]);
        if !state.buses.contains(name) {
            return answer.reply(http::Reply::error(400, "ResourceNotFoundException"));
        }
        let arn = format!("arn:aws:events:us-east-1:123456789012:event-bus/{name}");
        answer.reply(http::Reply::ok(&json!({"Name": name, "Arn": arn})))
    }

    fn put(&self, signed: bool, body: &Value) -> http::Reply {
        let mut state = self.state();
        let entries = body["Entries"].as_array().cloned().unwrap_or_default();
        state.requests.push(PutEvents { entries: entries.clone(), signed });
        self.calls.send_modify(|calls| *calls += 1);
        let answer = state.puts.pop_front().unwrap_or(Answer::Ok);
        if !(1..=ENTRIES_MAX).contains(&entries.len()) {
            return answer.reply(http::Reply::error(400, "ValidationException"));
        }
        if !answer.takes() {
            return answer.reply(http::Reply::ok(&Value::Null));
        }
        let mut results = Vec::with_capacity(entries.len());
        for (at, entry) in entries.into_iter().enumerate() {
            results.push(match answer.code(at).or_else(|| refusal(&entry)) {
                Some(code) => json!({"ErrorCode": code, "ErrorMessage": "as the test says"}),
                None => {
                    let is_kept = state.buses.contains(bus_name(&entry["EventBusName"]))
                        && text(&entry["DetailType"]).len() <= DETAIL_TYPE_BYTES_MAX;
                    if is_kept {
                        if let Some(queues) = &state.fed {
                            queues.send(delivered(&entry, state.taken.len()));
                        }
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
        answer.reply(http::Reply::ok(&json!({"FailedEntryCount": failed, "Entries": results})))
    }
}

/// Returns the message that a rule sends for an event.
fn delivered(entry: &Value, n: usize) -> String {
    format!(
        r#"{{"version":"0","id":"event-{n}","detail-type":{},"source":{},"account":"123456789012",
        "time":"2026-01-01T00:00:00Z","region":"us-east-1","resources":[],"detail":{}}}"#,
        entry["DetailType"],
        entry["Source"],
        text(&entry["Detail"])
    )
}

/// Returns the error code with which the service refuses this event, if it does.
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
