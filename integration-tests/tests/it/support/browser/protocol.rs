//! Commands, answers and events: JSON texts that end with a NUL.
use crate::support::wait::in_time;
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::{Mutex as AsyncMutex, broadcast, oneshot},
};

/// The most events that a reader may be behind.
const EVENTS_MAX: usize = 4096;

/// Who waits for the answer of a command. None: the browser has ended.
type Answers = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>>;

pub(super) struct Protocol {
    commands: AsyncMutex<ChildStdin>,
    answers: Answers,
    events: broadcast::Sender<Arc<Value>>,
    next: AtomicU64,
}

impl Protocol {
    pub(super) fn new(commands: ChildStdin, output: ChildStdout) -> Self {
        let answers: Answers = Arc::new(Mutex::new(Some(HashMap::new())));
        let events = broadcast::Sender::new(EVENTS_MAX);
        let (waiting, sender) = (answers.clone(), events.clone());
        tokio::spawn(async move {
            let (mut output, mut text) = (BufReader::new(output), Vec::new());
            while output.read_until(0, &mut text).await.is_ok_and(|read| read > 0) {
                let message: Value =
                    serde_json::from_slice(text.strip_suffix(&[0]).unwrap_or(&text)).unwrap();
                text.clear();
                match message["id"].as_u64() {
                    Some(id) => {
                        if let Some(answer) = waiting.lock().unwrap().as_mut().unwrap().remove(&id) {
                            let _ = answer.send(message);
                        }
                    }
                    None => {
                        let _ = sender.send(Arc::new(message));
                    }
                }
            }
            // Whoever waits does not wait in vain.
            waiting.lock().unwrap().take();
        });
        Self { commands: AsyncMutex::new(commands), answers, events, next: AtomicU64::new(1) }
    }

    pub(super) fn events(&self) -> broadcast::Receiver<Arc<Value>> {
        self.events.subscribe()
    }

    /// Runs a command. The browser must not refuse it.
    pub(super) async fn call(&self, session: Option<&str>, method: &str, params: Value) -> Value {
        let answer = self.try_call(session, method, params).await;
        answer.unwrap_or_else(|refused| panic!("{method}: {refused}"))
    }

    /// Runs a command that the browser may refuse. One that has ended refuses all.
    pub(super) async fn try_call(
        &self,
        session: Option<&str>,
        method: &str,
        params: Value,
    ) -> Result<Value, Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        let ended = || json!("the browser has ended");
        self.answers.lock().unwrap().as_mut().ok_or_else(ended)?.insert(id, sender);
        let mut command = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            command["sessionId"] = json!(session);
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        // A browser that has ended takes no commands, and its answer does not come.
        let _ = self.commands.lock().await.write_all(&text).await;
        let Ok(mut answer) = in_time(answer).await else { return Err(ended()) };
        match answer["error"].take() {
            Value::Null => Ok(answer["result"].take()),
            refused => Err(refused),
        }
    }
}
