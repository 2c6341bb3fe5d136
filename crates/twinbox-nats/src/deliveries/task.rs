//! The task that owns the connection.
use super::{
    frame::{Frame, RawMessage},
    link::{self, Link},
    servers::Servers,
    subscription::{Arrival, Command, Entry, Refused},
};
use crate::denied::DeniedSubjects;
use std::{collections::HashMap, io, ops::ControlFlow, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep},
};

/// Tries to connect again after a loss.
const RECONNECTS_MAX: u32 = 12;
/// The longest pause before a try.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(4);
/// Pings without an answer after which the connection counts as lost.
const PINGS_MAX: u32 = 2;

pub(super) struct Task {
    servers: Servers,
    commands: mpsc::Receiver<Command>,
    denied: Arc<DeniedSubjects>,
    entries: HashMap<u64, Entry>,
}

impl Task {
    pub(super) fn new(
        servers: Servers,
        commands: mpsc::Receiver<Command>,
        denied: Arc<DeniedSubjects>,
    ) -> Self {
        Self { servers, commands, denied, entries: HashMap::new() }
    }

    /// Runs until nobody can send commands, or until the servers cannot be reached any more.
    pub(super) async fn run(mut self, mut link: Link) {
        loop {
            match self.serve(&mut link).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "lost the connection for deliveries"),
            }
            match self.reconnect().await {
                Some(connected) => link = connected,
                None => return,
            }
        }
    }

    /// Serves one connection. `Ok`: nobody can send commands. An error: the connection is lost.
    async fn serve(&mut self, link: &mut Link) -> io::Result<()> {
        let mut pings = interval(self.servers.options().ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unanswered = 0;
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(command) => {
                        let frames = self.apply(command);
                        link.write(frames.as_bytes()).await?;
                    }
                    None => return Ok(()),
                },
                frame = link.read() => match frame? {
                    Frame::Message(message) => {
                        if let Some(ended) = self.deliver(message) {
                            link.write(unsubscribe(ended).as_bytes()).await?;
                        }
                    }
                    Frame::Ping => link.write(b"PONG\r\n").await?,
                    Frame::Pong => unanswered = 0,
                    Frame::Info(json) => link.info = link::read_info(&json)?,
                    Frame::Error(text) => {
                        tracing::warn!(error = text, "NATS reports an error");
                        self.denied.record(&text);
                    }
                    Frame::Ok => {}
                },
                _ = pings.tick() => {
                    if unanswered >= PINGS_MAX {
                        return Err(io::Error::new(io::ErrorKind::TimedOut, "the server answers no ping"));
                    }
                    unanswered += 1;
                    link.write(b"PING\r\n").await?;
                }
            }
        }
    }

    /// Returns the frames to send for a command.
    fn apply(&mut self, command: Command) -> String {
        match command {
            Command::Subscribe(entry) => {
                let frames = subscribe(&entry);
                self.entries.insert(entry.id, entry);
                frames
            }
            Command::Unsubscribe(id) => self.entries.remove(&id).map(|_| unsubscribe(id)).unwrap_or_default(),
            Command::Request { subscription, subject, body } => {
                let Some(entry) = self.entries.get(&subscription) else { return String::new() };
                format!("PUB {subject} {} {}\r\n{body}\r\n", entry.inbox, body.len())
            }
        }
    }

    /// Hands a message to its subscription. Returns a subscription that has ended.
    fn deliver(&mut self, message: RawMessage) -> Option<u64> {
        let id = message.subscription;
        let entry = self.entries.get(&id)?;
        match entry.put(Arrival::read(message)?) {
            Ok(()) => None,
            Err(Refused::Full) => {
                tracing::warn!("dropped a delivery; the server redelivers it");
                None
            }
            Err(Refused::Ended) => self.entries.remove(&id).map(|entry| entry.id),
        }
    }

    /// Connects again, and subscribes again. None: nobody waits for that, or no server could be reached.
    async fn reconnect(&mut self) -> Option<Link> {
        for attempt in 0..RECONNECTS_MAX {
            let pause = Duration::from_millis(2_u64.pow(attempt)).min(RECONNECT_PAUSE_MAX);
            sleep(pause).await;
            if self.skip_commands().is_break() {
                return None;
            }
            let connected = match self.servers.connect().await {
                Ok(link) => self.resume(link).await,
                Err(error) => {
                    tracing::debug!(%error, attempt, "connecting for deliveries failed");
                    None
                }
            };
            if connected.is_some() {
                return connected;
            }
        }
        tracing::warn!("NATS cannot be reached: deliveries end");
        None
    }

    /// Takes the commands that came meanwhile. Requests are left out: subscriptions hear of the new
    /// connection and repeat theirs.
    fn skip_commands(&mut self) -> ControlFlow<()> {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Request { .. }) => {}
                Ok(command) => {
                    self.apply(command);
                }
                Err(mpsc::error::TryRecvError::Empty) => return ControlFlow::Continue(()),
                Err(mpsc::error::TryRecvError::Disconnected) => return ControlFlow::Break(()),
            }
        }
    }

    async fn resume(&mut self, mut link: Link) -> Option<Link> {
        self.entries.retain(|_, entry| !entry.is_ended());
        let mut frames = String::new();
        for entry in self.entries.values() {
            frames += &subscribe(entry);
        }
        link.write(frames.as_bytes()).await.ok()?;
        for entry in self.entries.values() {
            // A full subscription repeats its request when it has taken what waits.
            let _ = entry.put(Arrival::Reconnected);
        }
        tracing::info!(server = link.info.server_name, "deliveries go on");
        Some(link)
    }
}

fn subscribe(entry: &Entry) -> String {
    format!("SUB {} {}\r\n", entry.inbox, entry.id)
}

fn unsubscribe(id: u64) -> String {
    format!("UNSUB {id}\r\n")
}
