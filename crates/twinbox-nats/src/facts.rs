//! What there is at the server, for whoever has to judge it.
use crate::{
    Error, ErrorKind, Nats,
    connect::{Link, Use},
    consumer::durable,
};
use async_nats::jetstream::stream::{DiscardPolicy, RetentionPolicy, StorageType};
use futures::StreamExt as _;
use serde::Deserialize;
use std::time::Duration;

/// What a stream is like, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamFacts {
    /// Its name.
    pub name: String,
    /// The version of the server that was asked.
    pub server_version: String,
    /// Whether it is kept in files; a stream in memory is gone with its server.
    pub in_files: bool,
    /// How many servers keep a copy.
    pub replicas: usize,
    /// How long messages are kept. None: for ever.
    pub max_age: Option<Duration>,
    /// Whether it, or a subject of it, is bounded and drops the oldest message when it is full, handled or not.
    pub drops_oldest: bool,
    /// Whether a message is kept until it is too old, also when consumers have acknowledged it.
    pub keeps_acknowledged: bool,
    /// Messages that it holds.
    pub messages: u64,
    durables: Vec<String>,
}

impl StreamFacts {
    /// Whether a consumer reads from it without an order: it then has its place there. One that keeps the order of keys
    /// has it in its own store.
    pub fn is_read_by(&self, consumer: &str) -> bool {
        self.durables.contains(&durable(consumer))
    }
}

/// How soon what a server has acknowledged is on its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncFacts {
    /// The server.
    pub server: String,
    /// Whether it syncs before it acknowledges.
    pub always: bool,
    /// How long it waits otherwise.
    pub interval: Duration,
}

/// Up to when answers of servers are waited for.
const SERVERS_WAIT: Duration = Duration::from_secs(1);
/// Where each server tells of its JetStream.
const JETSTREAM_OF_EACH: &str = "$SYS.REQ.SERVER.PING.JSZ";
/// What a server waits for before it syncs if nobody says.
const SYNC_INTERVAL: Duration = Duration::from_secs(120);

/// The first 1024 of them.
#[derive(Deserialize)]
struct Names {
    consumers: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Told {
    server: Server,
    data: Data,
}

#[derive(Deserialize)]
struct Server {
    name: String,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    config: Config,
}

#[derive(Default, Deserialize)]
struct Config {
    /// Nanoseconds.
    #[serde(default)]
    sync_interval: u64,
    #[serde(default)]
    sync_always: bool,
}

impl Nats {
    /// What the stream is like.
    ///
    /// # Errors
    /// The server is away or refuses, or there is no such stream, or it takes none of our subjects.
    pub async fn stream_facts(&self) -> Result<StreamFacts, Error> {
        let link = Link::open(&self.options, Use::Provision).await?;
        let info = link.check_stream().await?;
        let names = format!("CONSUMER.NAMES.{}", info.config.name);
        let Names { consumers } = link.ask("the names of its consumers", names).await?;
        let config = info.config;
        let drops = config.discard == DiscardPolicy::Old;
        let drops_all = (config.max_bytes > 0 || config.max_messages > 0) && drops;
        let drops_of_subject =
            config.max_messages_per_subject > 0 && (drops || !config.discard_new_per_subject);
        Ok(StreamFacts {
            name: config.name,
            server_version: link.client.server_info().version,
            in_files: config.storage == StorageType::File,
            replicas: config.num_replicas,
            max_age: Some(config.max_age).filter(|age| !age.is_zero()),
            drops_oldest: drops_all || drops_of_subject,
            keeps_acknowledged: config.retention == RetentionPolicy::Limits,
            messages: info.state.messages,
            durables: consumers.unwrap_or_default(),
        })
    }

    /// How soon each server with JetStream that answers within a second syncs. Only the system account is told, so the
    /// URL has to be one of its users.
    ///
    /// # Errors
    /// The server is away or refuses, or nobody answers: it is no user of the system account.
    pub async fn sync_facts(&self) -> Result<Vec<SyncFacts>, Error> {
        let link = Link::open(&self.options, Use::Provision).await?;
        let failed = |error: async_nats::Error| {
            Error::new(ErrorKind::Unavailable, "nats.request", "the servers cannot be asked")
                .with_source(error)
        };
        let inbox = link.client.new_inbox();
        let mut answers = link.client.subscribe(inbox.clone()).await.map_err(|error| failed(error.into()))?;
        let asked =
            link.client.publish_with_reply(JETSTREAM_OF_EACH, inbox, "{\"config\":true}".into()).await;
        asked.map_err(|error| failed(error.into()))?;
        let (mut facts, mut is_told) = (Vec::new(), false);
        let deadline = tokio::time::Instant::now() + SERVERS_WAIT;
        while let Ok(Some(answer)) = tokio::time::timeout_at(deadline, answers.next()).await {
            let Ok(Told { server, data }) = serde_json::from_slice(&answer.payload) else { continue };
            is_told = true;
            if data.disabled {
                continue;
            }
            let interval =
                Some(Duration::from_nanos(data.config.sync_interval)).filter(|time| !time.is_zero());
            facts.push(SyncFacts {
                server: server.name,
                always: data.config.sync_always,
                interval: interval.unwrap_or(SYNC_INTERVAL),
            });
        }
        if !is_told {
            let what = "no server tells how it syncs: this is no user of the system account";
            return Err(Error::new(ErrorKind::Refused, "nats.no_system_account", what));
        }
        facts.sort_by(|a, b| a.server.cmp(&b.server));
        Ok(facts)
    }
}
