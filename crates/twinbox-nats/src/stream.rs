//! Provisioning of the stream.
use crate::{
    Error, ErrorKind, Nats, NatsOptions,
    connect::{Link, Use},
    subject,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use twinbox_core::Horizon;

/// What the stream has to be like.
///
/// It stores in files, keeps messages until they are too old, and refuses new messages when it is full
/// rather than drop old ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct StreamOptions {
    max_age: Duration,
    duplicate_window: Duration,
    max_message_bytes: u32,
    max_bytes: Option<u64>,
    max_messages: Option<u64>,
    replicas: u8,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(7 * 24 * 3600),
            duplicate_window: Duration::from_secs(120),
            max_message_bytes: 1024 * 1024,
            max_bytes: None,
            max_messages: None,
            replicas: 1,
        }
    }
}

impl StreamOptions {
    /// How long messages are kept. An inbox has to remember its messages for longer. Default 7 days.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = age;
        self
    }

    /// For how long the server remembers message ids and drops duplicates, in memory. At most the age.
    /// Default 2 min.
    pub fn duplicate_window(mut self, window: Duration) -> Self {
        self.duplicate_window = window;
        self
    }

    /// The largest message in bytes, with its headers. Default 1 MiB, which is also a server's own default.
    pub fn max_message_bytes(mut self, bytes: u32) -> Self {
        self.max_message_bytes = bytes;
        self
    }

    /// How many bytes it holds before it refuses more. Default: no bound of its own.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// How many messages it holds before it refuses more. Default: no bound of its own.
    pub fn max_messages(mut self, messages: u64) -> Self {
        self.max_messages = Some(messages);
        self
    }

    /// How many servers keep a copy, 1 to 5. Default 1.
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.replicas = replicas;
        self
    }

    fn config(&self, options: &NatsOptions) -> Config {
        let limit = |n: Option<u64>| n.map_or(-1, |n| i64::try_from(n).unwrap_or(i64::MAX));
        Config {
            name: options.stream.clone(),
            subjects: vec![subject::all(&options.prefix)],
            retention: RetentionPolicy::Limits,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            max_age: self.max_age,
            duplicate_window: self.duplicate_window,
            max_message_size: i32::try_from(self.max_message_bytes).unwrap_or(i32::MAX),
            max_bytes: limit(self.max_bytes),
            max_messages: limit(self.max_messages),
            max_messages_per_subject: -1,
            max_consumers: -1,
            num_replicas: usize::from(self.replicas),
            ..Config::default()
        }
    }
}

/// What has to agree, under the server's names. An operator may set the rest: placement, compression,
/// description, metadata, direct access.
const FIELDS: [&str; 15] = [
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

impl Nats {
    /// Creates the stream if it is missing, with the subjects `<prefix>.>`, and checks that it is as asked
    /// for. A stream that exists is never changed. Safe to repeat, and to run in several processes.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] names the field, what was asked for and what the server has. After
    /// [`ErrorKind::Unavailable`] the stream may or may not exist; run it again.
    pub async fn provision(&self, stream: &StreamOptions) -> Result<(), Error> {
        let link = Link::open(&self.options, Use::Provision).await?;
        provision(&link, &self.options, stream).await
    }
}

pub(crate) async fn provision(
    link: &Link,
    options: &NatsOptions,
    stream: &StreamOptions,
) -> Result<(), Error> {
    let asked = stream.config(options);
    let what = format!("the stream `{}`", asked.name);
    let found = match info(link, &asked.name).await {
        Err(error) if error.kind() == ErrorKind::Missing => {
            let info: Info = link.order(&what, format!("STREAM.CREATE.{}", asked.name), &asked).await?;
            tracing::info!(stream = asked.name, "created the stream");
            info
        }
        found => found?,
    };
    compare(&what, &FIELDS, &asked, &found.config)
}

pub(crate) async fn info(link: &Link, name: &str) -> Result<Info, Error> {
    link.ask(&format!("the stream `{name}`"), format!("STREAM.INFO.{name}")).await
}

pub(crate) fn check_subjects(info: &Info, options: &NatsOptions) -> Result<(), Error> {
    let (name, subjects) = (&info.config.name, &info.config.subjects);
    if subjects.iter().any(|pattern| subject::overlaps(pattern, &options.prefix)) {
        return Ok(());
    }
    let all = subject::all(&options.prefix);
    Err(Error::mismatch(format!("the stream `{name}` takes {subjects:?} and nothing of `{all}`")))
}

/// How old the messages of a stream can be when they are delivered.
pub(crate) fn horizon(info: &Info) -> Horizon {
    let Config { name, max_age, duplicate_window, .. } = &info.config;
    if max_age.is_zero() {
        let because = format!("the stream `{name}` keeps messages for ever (it has no max_age)");
        return Horizon::Unlimited { because };
    }
    let because = format!(
        "the stream `{name}` keeps messages for {max_age:?} (max_age), and drops copies for {duplicate_window:?} \
         (duplicate_window)"
    );
    // No duplicate window is longer: servers refuse it.
    Horizon::Within { age: *max_age, because }
}

/// Compares what the server says with what was asked for: servers ignore silently what they do not know.
pub(crate) fn compare(
    what: &str,
    fields: &[&str],
    asked: &impl Serialize,
    found: &impl Serialize,
) -> Result<(), Error> {
    let json = |config: Result<Value, _>| {
        config.map_err(|e| {
            Error::mismatch(format!("{what} has a configuration that cannot be read")).with_source(e)
        })
    };
    let (asked, found) = (json(serde_json::to_value(asked))?, json(serde_json::to_value(found))?);
    for field in fields {
        let (asked, found) = (field_of(&asked, field), field_of(&found, field));
        if asked != found {
            return Err(Error::mismatch(format!(
                "{what} has {field} = {found} on the server and {asked} was asked for; change one of them"
            )));
        }
    }
    Ok(())
}

/// A field that is left out has its default.
fn field_of(config: &Value, field: &str) -> Value {
    config.get(field).cloned().unwrap_or_default()
}
