//! Provisioning and checking of the stream.
use crate::{
    broker::Nats,
    connect::{Connection, Purpose},
    denied::DENIED,
    error::{Error, ErrorKind},
    facts,
    options::{API, NatsOptions},
    stream_options::StreamOptions,
    subject,
    trust::Trust,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, PeerInfo, RetentionPolicy, StorageType};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use twinbox_core::MaxAge;

/// A copy that its leader has heard nothing of for this long is away. It is heard of each second.
pub(crate) const PEER_SILENCE_MAX: Duration = Duration::from_secs(4);
/// How often, and after which pause, is looked again for copies that seem to be away.
const QUORUM_LOOKS: u32 = 2;
const QUORUM_PAUSE: Duration = Duration::from_secs(1);

/// The code of JetStream's error "subjects overlap with an existing stream".
const SUBJECTS_OVERLAP: &str = "nats.10065";
/// What to do instead of setting another number of streams.
const STREAMS_STAY: &str = "The number of streams of a destination stays as it is. For another number drain \
    the destination, and start one with another id and another prefix, from now on; then let its consumers \
    read that one";

/// The fields of a stream that are compared, under the server's names. An operator may set the others:
/// placement, compression, description, metadata, direct access.
const COMPARED_FIELDS: [&str; 15] = [
    "subjects",
    "retention",
    "storage",
    "discard",
    "max_age",
    "duplicate_window",
    "max_msg_size",
    "max_bytes",
    "max_msgs",
    "max_msgs_per_subject",
    "num_replicas",
    "no_ack",
    "sealed",
    "mirror",
    "subject_transform",
];

/// The first 1024 names.
#[derive(Deserialize)]
struct StreamNames {
    streams: Option<Vec<String>>,
}

impl Nats {
    /// Creates each stream that is missing, with the subjects `<prefix>.>`, and checks its configuration.
    /// Several streams have the subjects of their partitions.
    ///
    /// An existing stream is never changed. Safe to repeat, and to run in several processes at once.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`]: the text names the field, the expected value and the server's value; or an
    /// option with which the permissions of publishers do not hold, and how to turn it off. After
    /// [`ErrorKind::Unavailable`] the stream may or may not exist; call this again.
    pub async fn provision(&self, stream: &StreamOptions) -> Result<(), Error> {
        let connection = Connection::open(&self.options, Purpose::Administer).await?;
        let mut found = Vec::new();
        for of_stream in connection.each_stream() {
            let info = provision(&of_stream, stream).await?;
            let trust = Trust::of(&info.config);
            trust.log(&info.config.name);
            found.push((info.config.name, trust));
        }
        // A fault of one stream keeps no other from being created.
        found.iter().try_for_each(|(name, trust)| trust.check(name))
    }
}

async fn provision(connection: &Connection, stream: &StreamOptions) -> Result<Info, Error> {
    let expected = config(stream, connection);
    if let Some(found) = existing(connection, &expected).await? {
        return Ok(found);
    }
    let (about, api) = (about(&expected.name), format!("STREAM.CREATE.{}", expected.name));
    let created = connection.request_with(&about, api, &expected).await;
    let created: Info = created.map_err(|error: Error| match error.code() {
        SUBJECTS_OVERLAP => overlap(&expected.name, &expected.subjects, "another stream").with_source(error),
        _ => error,
    })?;
    tracing::info!(stream = expected.name, "created the stream");
    compare(&about, &COMPARED_FIELDS, &expected, &created.config)?;
    Ok(created)
}

/// Returns the stream if it exists. Fails if it is not as expected.
async fn existing(connection: &Connection, expected: &Config) -> Result<Option<Info>, Error> {
    match info(connection, &expected.name).await {
        Err(error) if error.kind() == ErrorKind::Missing => Ok(None),
        found => {
            let found = found?;
            compare(&about(&expected.name), &COMPARED_FIELDS, expected, &found.config)?;
            Ok(Some(found))
        }
    }
}

/// Does what [`prepare`] does, and creates nothing. None: the stream is missing, and [`prepare`] creates it.
pub(crate) async fn look(connection: &Connection) -> Result<Option<Info>, Error> {
    let Some(stream) = &connection.options.create_stream else { return check(connection).await.map(Some) };
    let expected = config(stream, connection);
    let found = existing(connection, &expected).await?;
    if found.is_none() {
        check_can_be_created(connection, &expected).await?;
    }
    Ok(found)
}

/// Fails if another stream has the subjects, or if the server has not enough others for copies.
async fn check_can_be_created(connection: &Connection, expected: &Config) -> Result<(), Error> {
    let (name, replicas) = (&expected.name, expected.num_replicas);
    let server = connection.client.server_info();
    // A server without JetStream, or with another one, says nothing about the one that is asked.
    let is_asked = server.jetstream && connection.options.api() == API;
    if replicas > 1 && is_asked && server.cluster.is_none() {
        let text = format!("{} cannot have {replicas} copies: the server is in no cluster", about(name));
        return Err(Error::mismatch(text));
    }
    // Another stream has all of its subjects or none.
    let subject = &expected.subjects[0];
    let about = format!("the streams with the subjects `{subject}`");
    let asked = serde_json::json!({ "subject": subject });
    let asked = connection.request_with(&about, "STREAM.NAMES".to_owned(), &asked).await;
    match asked {
        Ok(StreamNames { streams: Some(others) }) if !others.is_empty() => {
            Err(overlap(name, &expected.subjects, &format!("the stream `{}`", others[0])))
        }
        // To create a stream needs no right to ask that.
        Err(error) if error.code() != DENIED => Err(error),
        _ => Ok(()),
    }
}

fn overlap(name: &str, subjects: &[String], other: &str) -> Error {
    Error::mismatch(format!(
        "the stream `{name}` cannot have the subjects {subjects:?}: {other} already has some of them. Choose \
         another prefix, or that stream. {STREAMS_STAY}"
    ))
}

fn about(stream: &str) -> String {
    format!("the stream `{stream}`")
}

fn config(stream: &StreamOptions, connection: &Connection) -> Config {
    let options = &connection.options;
    let limit = |n: Option<u64>| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
    Config {
        name: options.stream.clone(),
        subjects: options.subjects(),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        max_age: stream.max_age,
        duplicate_window: stream.duplicate_window,
        max_message_size: i32::try_from(stream.max_message_bytes).unwrap_or(i32::MAX),
        max_bytes: limit(stream.max_bytes),
        max_messages: limit(stream.max_messages),
        max_messages_per_subject: -1,
        max_consumers: -1,
        num_replicas: usize::from(stream.replicas),
        // Older servers do not know the field.
        allow_batch_publish: stream.batches && has_batches(connection),
        metadata: facts::of_new_stream(options),
        ..Config::default()
    }
}

/// Returns the configuration and the state of a stream.
///
/// A member of a cluster answers without a leader too. Such a stream takes no message: it is unavailable.
pub(crate) async fn info(connection: &Connection, name: &str) -> Result<Info, Error> {
    let info = found(connection, name).await?;
    let has_leader = |leader: &Option<String>| leader.as_ref().is_some_and(|leader| !leader.is_empty());
    match &info.cluster {
        Some(cluster) if is_replicated(&info) && !has_leader(&cluster.leader) => {
            let text = format!("{} has no leader: more than half of its servers have to run", about(name));
            Err(Error::new(ErrorKind::Unavailable, "nats.no_leader", text))
        }
        _ => Ok(info),
    }
}

/// Returns what a server knows of a stream, also of one without a leader.
pub(crate) async fn found(connection: &Connection, name: &str) -> Result<Info, Error> {
    connection.request(&about(name), format!("STREAM.INFO.{name}")).await
}

/// Checks that most copies of the stream are there, so that a message can be stored. A leader that has lost
/// the others believes for up to 20 s that it leads.
pub(crate) async fn with_quorum(connection: &Connection, mut info: Info) -> Result<Info, Error> {
    let mut looks = 0;
    while !has_quorum(&info) {
        if looks == QUORUM_LOOKS {
            let text = format!("most copies of the stream `{}` are away", info.config.name);
            return Err(Error::new(ErrorKind::Unavailable, "nats.no_quorum", text));
        }
        looks += 1;
        tokio::time::sleep(QUORUM_PAUSE).await;
        info = check(connection).await?;
    }
    Ok(info)
}

/// Whether several servers have a copy of the stream.
pub(crate) fn is_replicated(info: &Info) -> bool {
    info.config.num_replicas > 1
}

fn has_quorum(info: &Info) -> bool {
    let Some(cluster) = info.cluster.as_ref().filter(|_| is_replicated(info)) else { return true };
    let is_there = |peer: &&PeerInfo| !peer.offline && peer.active < PEER_SILENCE_MAX;
    1 + cluster.replicas.iter().filter(is_there).count() > info.config.num_replicas / 2
}

/// Fails if the stream does not exist or does not accept its subjects: a subject below the prefix, or all of
/// each partition that it has.
pub(crate) async fn check(connection: &Connection) -> Result<Info, Error> {
    check_subjects(&connection.options, info(connection, &connection.options.stream).await?)
}

fn check_subjects(options: &NatsOptions, info: Info) -> Result<Info, Error> {
    let (name, subjects) = (&info.config.name, &info.config.subjects);
    let accepts = |wanted: &str| {
        let wanted = wanted.trim_end_matches(".>");
        subjects.iter().any(|pattern| subject::overlaps(pattern, wanted))
    };
    match options.subjects().into_iter().find(|wanted| !accepts(wanted)) {
        None => Ok(info),
        Some(wanted) => Err(Error::mismatch(format!(
            "the stream `{name}` accepts {subjects:?} and no subject of `{wanted}`: set the option `prefix` \
             to the first words of its subjects, or the option `stream` to another stream{}",
            if options.streams > 1 { format!(". {STREAMS_STAY}") } else { String::new() }
        ))),
    }
}

/// Fails if the stream does not exist or can hold no subject below the prefix.
pub(crate) async fn check_for_consumer(connection: &Connection) -> Result<Info, Error> {
    check_subjects_held(&connection.options, info(connection, &connection.options.stream).await?)
}

/// A copy of other streams has their subjects, and a stream that transforms its subjects has others than it
/// accepts.
pub(crate) fn check_subjects_held(options: &NatsOptions, info: Info) -> Result<Info, Error> {
    let Config { mirror, sources, subject_transform, .. } = &info.config;
    let has_sources = sources.as_ref().is_some_and(|sources| !sources.is_empty());
    if mirror.is_some() || has_sources || subject_transform.is_some() {
        return Ok(info);
    }
    check_subjects(options, info)
}

/// Checks the stream. Creates it first if the option `create_stream` is set and it is missing.
pub(crate) async fn prepare(connection: &Connection) -> Result<Info, Error> {
    match &connection.options.create_stream {
        Some(stream) => provision(connection, stream).await,
        None => check(connection).await,
    }
}

/// Returns whether the server has [batches](crate::ordered).
pub(crate) fn has_batches(connection: &Connection) -> bool {
    connection.client.is_server_compatible(2, 14, 0)
}

/// Returns how old a message of the stream can be when it is delivered.
pub(crate) fn delivery_age(info: &Info) -> MaxAge {
    let Config { name, max_age, duplicate_window, .. } = &info.config;
    if max_age.is_zero() {
        let reason = format!("the stream `{name}` keeps messages for ever (it has no max_age)");
        return MaxAge::Unlimited { reason };
    }
    let reason = format!(
        "the stream `{name}` keeps messages for {max_age:?} (max_age), and drops copies for \
         {duplicate_window:?} (duplicate_window)"
    );
    // Servers refuse a duplicate window that is longer than max_age.
    MaxAge::Within { age: *max_age, reason }
}

/// Compares the server's configuration with the expected one: a server silently ignores fields that it does
/// not know.
pub(crate) fn compare(
    about: &str,
    fields: &[&str],
    expected: &impl Serialize,
    found: &impl Serialize,
) -> Result<(), Error> {
    let json = |config: Result<Value, _>| {
        config.map_err(|e| {
            Error::mismatch(format!("{about} has a configuration that cannot be read")).with_source(e)
        })
    };
    let (expected, found) = (json(serde_json::to_value(expected))?, json(serde_json::to_value(found))?);
    for field in fields {
        let (expected, found) = (field_of(&expected, field), field_of(&found, field));
        if expected != found {
            return Err(Error::mismatch(format!(
                "{about} has {field} = {found} on the server and {expected} was asked for; change one of them"
            )));
        }
    }
    Ok(())
}

/// Returns the value of a field. An omitted field has its default.
fn field_of(config: &Value, field: &str) -> Value {
    config.get(field).cloned().unwrap_or_default()
}
