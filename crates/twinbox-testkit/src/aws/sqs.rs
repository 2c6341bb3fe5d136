//! A fake of SQS.
use super::answer::Answer;
use crate::http;
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{sync::watch, time::Instant};

/// Entries of one call, and messages of one response.
const BATCH_MAX: usize = 10;
/// The longest time for which a delivery can be hidden, with all changes together.
const HIDDEN_MAX: Duration = Duration::from_secs(12 * 3600);
/// The retention that a queue reports: four days, the default of the service.
const RETENTION_SECONDS: &str = "345600";

/// A fake of SQS with standard queues on loopback. The test can advance its clock. Dropping it cuts every
/// connection.
///
/// It knows `GetQueueAttributes`, `ReceiveMessage`, `DeleteMessageBatch` and `ChangeMessageVisibilityBatch`.
/// A receipt is valid until the message is delivered again.
#[derive(Debug)]
pub struct FakeSqs {
    server: http::Server,
    service: Arc<Service>,
}

#[derive(Debug, Default)]
struct Service {
    state: Mutex<State>,
    /// Wakes calls that wait for a change.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<String, VecDeque<Stored>>,
    /// The chosen responses, by the name of the call.
    answers: HashMap<String, VecDeque<Answer>>,
    calls: Vec<(String, Value)>,
    /// The time by which the clock was advanced.
    ahead: Duration,
    messages: u64,
    receipts: u64,
}

#[derive(Debug)]
struct Stored {
    id: String,
    body: String,
    delivered: u32,
    receipt: String,
    hidden_until: Instant,
    delivered_at: Instant,
}

impl FakeSqs {
    /// Starts a fake on a free port of loopback.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> io::Result<Self> {
        let service = Arc::new(Service::default());
        let serving = service.clone();
        let answer = move |call: http::Call| {
            let service = serving.clone();
            async move { service.answer(&call).await }
        };
        Ok(Self { server: http::Server::start(answer).await?, service })
    }

    /// Returns the URL for clients.
    pub fn endpoint_url(&self) -> String {
        self.server.url()
    }

    /// Creates the queue if it does not exist. Returns its URL.
    pub fn queue(&self, name: &str) -> String {
        self.service.state().queues.entry(name.to_owned()).or_default();
        format!("{}/123456789012/{name}", self.endpoint_url())
    }

    /// Deletes a queue.
    pub fn delete_queue(&self, name: &str) {
        self.service.state().queues.remove(name);
        self.service.changed.send_replace(());
    }

    /// Puts a message with this body into every queue, as if a rule of EventBridge had sent it there.
    pub fn send(&self, body: impl Into<String>) {
        self.queues().send(body.into());
    }

    pub(super) fn queues(&self) -> Queues {
        Queues(self.service.clone())
    }

    /// Chooses the responses to the next calls of this name, such as `DeleteMessageBatch`, one after another.
    pub fn answer_next(&self, call: &str, answers: impl IntoIterator<Item = Answer>) {
        self.service.state().answers.entry(call.to_owned()).or_default().extend(answers);
    }

    /// Advances the clock of the queues, which ends the time for which deliveries are hidden.
    pub fn advance(&self, by: Duration) {
        self.service.state().ahead += by;
        self.service.changed.send_replace(());
    }

    /// Returns the number of messages in a queue, with the hidden ones.
    pub fn len(&self, queue: &str) -> usize {
        self.service.state().queues.get(queue).map_or(0, VecDeque::len)
    }

    /// Returns the number of deliveries, with redeliveries.
    pub fn deliveries(&self) -> u64 {
        self.service.state().receipts
    }

    /// Returns the bodies of all calls of an action such as `ReceiveMessage`, in order.
    pub fn calls(&self, call: &str) -> Vec<Value> {
        let state = self.service.state();
        state.calls.iter().filter(|(name, _)| name == call).map(|(_, body)| body.clone()).collect()
    }

    /// Waits until there were `count` calls of this name.
    pub async fn wait_for_calls(&self, call: &str, count: usize) {
        let mut changed = self.service.changed.subscribe();
        while self.calls(call).len() < count {
            let _ = changed.changed().await;
        }
    }
}

/// The queues to which rules send.
#[derive(Debug)]
pub(super) struct Queues(Arc<Service>);

impl Queues {
    pub(super) fn send(&self, body: String) {
        let mut state = self.0.state();
        let now = state.now();
        let State { queues, messages, .. } = &mut *state;
        for queue in queues.values_mut() {
            *messages += 1;
            queue.push_back(Stored {
                id: format!("message-{messages}"),
                body: body.clone(),
                delivered: 0,
                receipt: String::new(),
                hidden_until: now,
                delivered_at: now,
            });
        }
        drop(state);
        self.0.changed.send_replace(());
    }
}

impl State {
    fn now(&self) -> Instant {
        Instant::now() + self.ahead
    }
}

impl Service {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    async fn answer(&self, call: &http::Call) -> http::Reply {
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let name = call.header(super::TARGET).strip_prefix("AmazonSQS.").unwrap_or_default();
        let answer = {
            let mut state = self.state();
            state.calls.push((name.to_owned(), body.clone()));
            state.answers.get_mut(name).and_then(VecDeque::pop_front).unwrap_or(Answer::Ok)
        };
        self.changed.send_replace(());
        let queue = body["QueueUrl"].as_str().and_then(|url| url.rsplit('/').next()).unwrap_or_default();
        if !answer.takes() {
            return answer.reply(http::Reply::ok(&Value::Null));
        }
        if !self.state().queues.contains_key(queue) {
            return http::Reply::error(400, "QueueDoesNotExist");
        }
        answer.reply(match name {
            "GetQueueAttributes" => {
                http::Reply::ok(&json!({"Attributes": {"MessageRetentionPeriod": RETENTION_SECONDS}}))
            }
            "ReceiveMessage" => self.receive(queue, &body).await,
            "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => self.settle(queue, &body, &answer),
            _ => http::Reply::error(400, "InvalidAction"),
        })
    }

    async fn receive(&self, queue: &str, body: &Value) -> http::Reply {
        let seconds = |name: &str| Duration::from_secs(body[name].as_u64().unwrap_or_default());
        let max = usize::try_from(body["MaxNumberOfMessages"].as_u64().unwrap_or(1)).unwrap_or(usize::MAX);
        if !(1..=BATCH_MAX).contains(&max) {
            return http::Reply::error(400, "InvalidParameterValue");
        }
        let give_up = Instant::now() + seconds("WaitTimeSeconds");
        let mut changed = self.changed.subscribe();
        loop {
            let (messages, next) = self.visible(queue, max, seconds("VisibilityTimeout"));
            if !messages.is_empty() || Instant::now() >= give_up {
                return http::Reply::ok(&json!({"Messages": messages}));
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(next.map_or(give_up, |next| next.min(give_up))) => {}
            }
        }
    }

    /// Delivers visible messages and hides them. Also returns when the next message becomes visible.
    fn visible(&self, queue: &str, max: usize, hidden_for: Duration) -> (Vec<Value>, Option<Instant>) {
        let mut state = self.state();
        let now = state.now();
        let State { queues, receipts, ahead, .. } = &mut *state;
        let Some(queue) = queues.get_mut(queue) else { return (Vec::new(), None) };
        let mut messages = Vec::new();
        for stored in queue.iter_mut().filter(|stored| stored.hidden_until <= now).take(max) {
            *receipts += 1;
            stored.delivered += 1;
            stored.receipt = format!("receipt-{receipts}");
            stored.hidden_until = now + hidden_for;
            stored.delivered_at = now;
            messages.push(json!({
                "MessageId": stored.id,
                "ReceiptHandle": stored.receipt,
                "Body": stored.body,
                "Attributes": {
                    "ApproximateReceiveCount": stored.delivered.to_string(),
                    "SentTimestamp": "1789000000000",
                },
            }));
        }
        let seen_at = |stored: &Stored| stored.hidden_until.checked_sub(*ahead).unwrap_or(now);
        (messages, queue.iter().map(seen_at).min())
    }

    fn settle(&self, queue: &str, body: &Value, answer: &Answer) -> http::Reply {
        let entries = body["Entries"].as_array().cloned().unwrap_or_default();
        if !(1..=BATCH_MAX).contains(&entries.len()) {
            return http::Reply::error(400, "TooManyEntriesInBatchRequest");
        }
        let (mut successful, mut failed) = (Vec::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            match answer.code(at).or_else(|| self.settle_one(queue, entry)) {
                Some(code) => failed.push(json!({"Id": entry["Id"], "Code": code, "SenderFault": true})),
                None => successful.push(json!({"Id": entry["Id"]})),
            }
        }
        if *answer == Answer::WrongCount {
            successful.pop();
        }
        self.changed.send_replace(());
        http::Reply::ok(&json!({"Successful": successful, "Failed": failed}))
    }

    /// Deletes one message or changes its visibility. Returns the error code if it cannot.
    fn settle_one(&self, queue: &str, entry: &Value) -> Option<&'static str> {
        let mut state = self.state();
        let now = state.now();
        let queue = state.queues.get_mut(queue)?;
        let receipt = entry["ReceiptHandle"].as_str().unwrap_or_default();
        let Some(at) = queue.iter().position(|stored| stored.receipt == receipt) else {
            return Some("ReceiptHandleIsInvalid");
        };
        match entry["VisibilityTimeout"].as_u64() {
            None => drop(queue.remove(at)),
            Some(_) if queue[at].hidden_until <= now => return Some("MessageNotInflight"),
            Some(seconds) => {
                let until = now + Duration::from_secs(seconds);
                if until > queue[at].delivered_at + HIDDEN_MAX {
                    return Some("InvalidParameterValue");
                }
                queue[at].hidden_until = until;
            }
        }
        None
    }
}
