//! The configuration of the stream.
use std::time::Duration;
use twinbox_core::limits::bounded;

/// The configuration of the stream that Twinbox creates or checks.
///
/// The stream stores in files and keeps messages until they are too old. When it is full it refuses new
/// messages instead of dropping old ones.
///
/// ```no_run
/// # async fn run() -> Result<(), twinbox_nats::Error> {
/// use std::time::Duration;
/// use twinbox_nats::{Nats, StreamOptions};
///
/// let three_days = Duration::from_secs(3 * 24 * 3600);
/// let stream = StreamOptions::default().replicas(3).max_age(three_days);
/// Nats::new("nats://localhost:4222")?.provision(&stream).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct StreamOptions {
    pub(crate) max_age: Duration,
    pub(crate) duplicate_window: Duration,
    pub(crate) max_message_bytes: u32,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_messages: Option<u64>,
    pub(crate) replicas: u8,
    pub(crate) batches: bool,
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
            batches: true,
        }
    }
}

impl StreamOptions {
    /// Sets how long the stream keeps a message. The retention of each inbox must be longer. Default 7 days.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = bounded(age);
        self
    }

    /// Sets how long the server remembers message ids, in memory, to drop duplicates. At most
    /// [`max_age`](Self::max_age). Default 2 min.
    pub fn duplicate_window(mut self, window: Duration) -> Self {
        self.duplicate_window = bounded(window);
        self
    }

    /// Sets the largest message in bytes, headers included. Default 1 MiB, which is also the server's own
    /// default.
    pub fn max_message_bytes(mut self, bytes: u32) -> Self {
        self.max_message_bytes = bytes;
        self
    }

    /// Sets the bytes at which the stream is full and refuses messages. Default: the stream has no limit of
    /// its own.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Sets the number of messages at which the stream is full and refuses more. Default: the stream has no
    /// limit of its own.
    pub fn max_messages(mut self, messages: u64) -> Self {
        self.max_messages = Some(messages);
        self
    }

    /// Sets how many servers keep a copy of the stream, 1 to 5. Default 1.
    pub fn replicas(mut self, replicas: u8) -> Self {
        self.replicas = replicas;
        self
    }

    /// Sets whether a publisher may send many messages as a batch: the server stores them in order and
    /// acknowledges them together, which is quicker, most of all for many messages of one key. Default: yes.
    /// Servers before NATS 2.14 have no batches. Like every option, it does not change an existing stream.
    pub fn batches(mut self, batches: bool) -> Self {
        self.batches = batches;
        self
    }
}
