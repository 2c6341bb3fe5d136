//! The state of the stream and its servers, for an operator's checks.
mod cluster;

pub use cluster::{StreamCluster, StreamCopy};

use crate::{
    broker::Nats,
    connect::{Connection, Purpose},
    consumer::durable_name,
    error::{Error, ErrorKind},
    stream,
    trust::Trust,
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
    /// Whether the stream is limited and drops its oldest message when it is full, handled or not.
    pub drops_oldest: bool,
    /// The limit of each subject, which is a type in a partition. None: it has none.
    pub subject_limit: Option<SubjectLimit>,
    /// Whether the stream keeps a message until it is too old, also after consumers have acknowledged it.
    pub keeps_acknowledged: bool,
    /// Whether the stream takes [batches](crate#batches). None: its server has none.
    pub takes_batches: Option<bool>,
    /// Texts about options with which the permissions of publishers do not hold, or with which no relay can
    /// publish. Each says what to do.
    pub option_faults: Vec<String>,
    /// Texts about options that change the subjects of messages, which permissions name.
    pub option_warnings: Vec<String>,
    /// How many messages the stream holds.
    pub messages: u64,
    /// The cluster in which the stream is. None: its server is alone.
    pub cluster: Option<StreamCluster>,
    durables: Vec<String>,
}

impl StreamStatus {
    /// Returns whether the stream has a durable consumer for `consumer`. An ordered consumer has none: it
    /// stores its checkpoint in its own database.
    pub fn has_durable(&self, consumer: &str) -> bool {
        self.durables.contains(&durable_name(consumer))
    }
}

/// How many messages of a subject a stream keeps, and what it does with more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubjectLimit {
    /// The most messages of a subject.
    pub messages: u64,
    /// Whether the oldest one is dropped, handled or not. Otherwise the new one is refused.
    pub drops_oldest: bool,
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
    /// Returns the configuration and the state of the stream. Without a leader its state is what one server
    /// remembers.
    ///
    /// # Errors
    /// The server is unavailable or refuses, the stream does not exist, or it can hold no subject below the
    /// prefix.
    pub async fn stream_status(&self) -> Result<StreamStatus, Error> {
        let connection = Connection::open(&self.options, Purpose::Administer).await?;
        let found = stream::found(&connection, &self.options.stream).await?;
        let info = stream::check_subjects_held(&self.options, found)?;
        let cluster = cluster::of(&connection, &info).await?;
        let has_leader = cluster.as_ref().is_none_or(|cluster| cluster.leader.is_some());
        let durables = if has_leader { durables(&connection).await? } else { Vec::new() };
        let config = info.config;
        let Trust { faults: option_faults, warnings: option_warnings } = Trust::of(&config);
        let drops = config.discard == DiscardPolicy::Old;
        let of_subject = u64::try_from(config.max_messages_per_subject).unwrap_or(0);
        let subject_limit =
            SubjectLimit { messages: of_subject, drops_oldest: drops || !config.discard_new_per_subject };
        Ok(StreamStatus {
            name: config.name,
            server_version: connection.client.server_info().version,
            in_files: config.storage == StorageType::File,
            replicas: config.num_replicas,
            max_age: Some(config.max_age).filter(|age| !age.is_zero()),
            drops_oldest: (config.max_bytes > 0 || config.max_messages > 0) && drops,
            subject_limit: Some(subject_limit).filter(|limit| limit.messages > 0),
            keeps_acknowledged: config.retention == RetentionPolicy::Limits,
            takes_batches: stream::has_batches(&connection).then_some(config.allow_batch_publish),
            option_faults,
            option_warnings,
            messages: info.state.messages,
            cluster,
            durables,
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

/// Returns the names of the stream's consumers.
async fn durables(connection: &Connection) -> Result<Vec<String>, Error> {
    let stream = &connection.options.stream;
    let about = format!("the consumers of the stream `{stream}`");
    let names: ConsumerNames = connection.request(&about, format!("CONSUMER.NAMES.{stream}")).await?;
    Ok(names.consumers.unwrap_or_default())
}
