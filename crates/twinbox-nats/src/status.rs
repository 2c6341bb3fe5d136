//! The state of the stream and its servers, for an operator's checks.
use crate::{
    broker::Nats,
    connect::{Connection, Purpose},
    consumer::durable_name,
    error::{Error, ErrorKind},
    stream,
};
use async_nats::jetstream::stream::{DiscardPolicy, RetentionPolicy, StorageType};
use futures::StreamExt as _;
use serde::Deserialize;
use std::time::Duration;

/// The configuration and the state of a stream, as the server reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// The name of the stream.
    pub name: String,
    /// The version of the server that responded.
    pub server_version: String,
    /// Whether the stream is stored in files. A restart of the server loses a stream in memory.
    pub in_files: bool,
    /// How many servers keep a copy of the stream.
    pub replicas: usize,
    /// How long the stream keeps messages. None: for ever.
    pub max_age: Option<Duration>,
    /// Whether the stream, or a subject of it, is limited and drops its oldest message when it is full,
    /// handled or not.
    pub drops_oldest: bool,
    /// Whether the stream keeps a message until it is too old, also after consumers have acknowledged it.
    pub keeps_acknowledged: bool,
    /// Whether the stream takes [batches](crate#batches). None: its server has none.
    pub takes_batches: Option<bool>,
    /// How many messages the stream holds.
    pub messages: u64,
    durables: Vec<String>,
}

impl StreamStatus {
    /// Returns whether the stream has a durable consumer for `consumer`. An ordered consumer has none: it
    /// stores its checkpoint in its own database.
    pub fn has_durable(&self, consumer: &str) -> bool {
        self.durables.contains(&durable_name(consumer))
    }
}

/// When a server syncs acknowledged messages to its disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskSync {
    /// The name of the server.
    pub server: String,
    /// Whether the server syncs before it acknowledges.
    pub before_ack: bool,
    /// The interval of syncs if the server does not sync before each acknowledgement.
    pub interval: Duration,
}

/// How long responses of servers are collected.
const COLLECT_TIME: Duration = Duration::from_secs(1);
/// The subject on which each server reports its JetStream.
const JETSTREAM_REPORTS: &str = "$SYS.REQ.SERVER.PING.JSZ";
/// The sync interval of a server that is not configured.
const SYNC_INTERVAL_DEFAULT: Duration = Duration::from_secs(120);

/// The first 1024 names.
#[derive(Deserialize)]
struct ConsumerNames {
    consumers: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct JetStreamReport {
    server: ServerReport,
    data: DataReport,
}

#[derive(Deserialize)]
struct ServerReport {
    name: String,
}

#[derive(Deserialize)]
struct DataReport {
    #[serde(default)]
    disabled: bool,
    #[serde(default)]
    config: SyncConfig,
}

#[derive(Default, Deserialize)]
struct SyncConfig {
    /// In nanoseconds.
    #[serde(default)]
    sync_interval: u64,
    #[serde(default)]
    sync_always: bool,
}

impl Nats {
    /// Returns the configuration and the state of the stream.
    ///
    /// # Errors
    /// The server is unavailable or refuses, the stream does not exist, or it accepts no subject below the
    /// prefix.
    pub async fn stream_status(&self) -> Result<StreamStatus, Error> {
        let connection = Connection::open(&self.options, Purpose::Administer).await?;
        let info = stream::check(&connection).await?;
        let api = format!("CONSUMER.NAMES.{}", info.config.name);
        let about = format!("the consumers of the stream `{}`", info.config.name);
        let ConsumerNames { consumers } = connection.request(&about, api).await?;
        let config = info.config;
        let drops = config.discard == DiscardPolicy::Old;
        let drops_of_stream = (config.max_bytes > 0 || config.max_messages > 0) && drops;
        let drops_of_subject =
            config.max_messages_per_subject > 0 && (drops || !config.discard_new_per_subject);
        Ok(StreamStatus {
            name: config.name,
            server_version: connection.client.server_info().version,
            in_files: config.storage == StorageType::File,
            replicas: config.num_replicas,
            max_age: Some(config.max_age).filter(|age| !age.is_zero()),
            drops_oldest: drops_of_stream || drops_of_subject,
            keeps_acknowledged: config.retention == RetentionPolicy::Limits,
            takes_batches: stream::has_batches(&connection).then_some(config.allow_batch_publish),
            messages: info.state.messages,
            durables: consumers.unwrap_or_default(),
        })
    }

    /// Returns the sync settings of each server with JetStream that responds within a second.
    ///
    /// Servers respond only to the system account, so the login must be one of its users.
    ///
    /// # Errors
    /// The server is unavailable or refuses, or no server responds: the user is not in the system account.
    pub async fn disk_syncs(&self) -> Result<Vec<DiskSync>, Error> {
        let connection = Connection::open(&self.options, Purpose::Administer).await?;
        let client = &connection.client;
        let failed = |error: async_nats::Error| {
            let text = "the servers cannot be asked how they sync";
            Error::new(ErrorKind::Unavailable, "nats.request", text).with_source(error)
        };
        let inbox = client.new_inbox();
        let mut responses = client.subscribe(inbox.clone()).await.map_err(|error| failed(error.into()))?;
        let sent = client.publish_with_reply(JETSTREAM_REPORTS, inbox, "{\"config\":true}".into()).await;
        sent.map_err(|error| failed(error.into()))?;
        let (mut syncs, mut is_system_account) = (Vec::new(), false);
        let deadline = tokio::time::Instant::now() + COLLECT_TIME;
        while let Ok(Some(response)) = tokio::time::timeout_at(deadline, responses.next()).await {
            let Ok(report) = serde_json::from_slice::<JetStreamReport>(&response.payload) else { continue };
            is_system_account = true;
            let DataReport { disabled, config } = report.data;
            if disabled {
                continue;
            }
            let interval = Some(Duration::from_nanos(config.sync_interval)).filter(|time| !time.is_zero());
            syncs.push(DiskSync {
                server: report.server.name,
                before_ack: config.sync_always,
                interval: interval.unwrap_or(SYNC_INTERVAL_DEFAULT),
            });
        }
        if !is_system_account {
            let text = "no server reports how it syncs: this is no user of the system account";
            return Err(Error::new(ErrorKind::Refused, "nats.no_system_account", text));
        }
        syncs.sort_by(|a, b| a.server.cmp(&b.server));
        Ok(syncs)
    }
}
