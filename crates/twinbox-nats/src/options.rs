//! The servers, the login, and the use of the stream.
mod endpoints;

use crate::{
    error::{Error, ErrorKind},
    stream_options::StreamOptions,
    subject,
};
use percent_encoding::percent_decode_str;
use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};
use twinbox_core::limits;

/// The longest time-out that an option accepts.
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Where requests to the JetStream of the own account and server go.
pub(crate) const API: &str = "$JS.API";
/// What a prefix must be.
const WORDS: &str = "must be words of letters, digits, `-` and `_` joined by dots, at most 120 bytes";
/// The most partitions that the option accepts.
const PARTITIONS_MAX: u32 = 4096;
/// The most streams that the option accepts.
const STREAMS_MAX: u32 = 64;

/// The options of NATS: the servers, the login, and the stream that is used.
///
/// Relays and consumers of one stream must agree on [`stream`](Self::stream), [`prefix`](Self::prefix) and
/// [`partitions`](Self::partitions). Processes of one consumer must agree on [`ack_wait`](Self::ack_wait) and
/// [`max_ack_pending`](Self::max_ack_pending).
#[derive(Clone)]
#[must_use]
pub struct NatsOptions {
    pub(crate) urls: Vec<String>,
    pub(crate) url_file: Option<PathBuf>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) credentials_file: Option<PathBuf>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    allow_plain: bool,
    pub(crate) inbox_prefix: String,
    domain: Option<String>,
    api_prefix: Option<String>,
    pub(crate) id: String,
    pub(crate) stream: String,
    pub(crate) prefix: String,
    pub(crate) partitions: u32,
    pub(crate) streams: u32,
    /// Which one of several streams these options are for.
    number: Option<u32>,
    pub(crate) publish_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) ping_interval: Duration,
    pub(crate) ack_wait: Duration,
    pub(crate) max_ack_pending: u32,
    pub(crate) create_stream: Option<StreamOptions>,
}

impl NatsOptions {
    /// Creates options for the server at `url`, `tls://` or `nats://`. The URL may hold a percent-encoded
    /// user and password, or a token in place of the user. Commas separate the URLs of several servers of a
    /// cluster: a connection takes one that can be reached, and none that only a server names. For which
    /// URLs a connection uses TLS, see [`allow_plain`](Self::allow_plain).
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            url_file: None,
            token: None,
            token_file: None,
            credentials_file: None,
            ca_file: None,
            client_certificate: None,
            allow_plain: false,
            inbox_prefix: "_INBOX".to_owned(),
            domain: None,
            api_prefix: None,
            id: "nats".to_owned(),
            stream: "EVENTS".to_owned(),
            prefix: "events".to_owned(),
            partitions: 16,
            streams: 1,
            number: None,
            publish_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(10),
            ack_wait: Duration::from_secs(30),
            max_ack_pending: 4096,
            create_stream: None,
        }
    }

    /// Adds a server of the same cluster, for when the first cannot be reached.
    pub fn server(mut self, url: impl Into<String>) -> Self {
        self.urls.push(url.into());
        self
    }

    /// Authenticates with a token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Reads the URLs from a file, in place of those that are set. Each new connection reads the file again.
    pub fn url_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.url_file = Some(path.into());
        self
    }

    /// Authenticates with a token in a file. Each new connection reads the file again, so that a token may
    /// change while the process runs.
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Authenticates with a `.creds` file. Each new connection reads the file again.
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials_file = Some(path.into());
        self
    }

    /// Trusts the certificates in this PEM file instead of the certificates of the system.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Authenticates with a client certificate. Both files are PEM.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the first words of the subjects on which the connection gets its answers, for a user that may not
    /// subscribe to all of `_INBOX.>`: words of letters, digits, `-` and `_`, joined by dots. Default
    /// `_INBOX`.
    pub fn inbox_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.inbox_prefix = prefix.into();
        self
    }

    /// Sets the domain of JetStream that has the stream, for a connection to a server of another one, such as
    /// a leaf node: letters, digits, `-` and `_`. Requests then go to `$JS.<domain>.API`. Default: the domain
    /// of the server.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets where requests to JetStream go, in place of `$JS.API`: for an account that imports the API of
    /// another one under these words. It has to import the subjects of acks, `$JS.ACK.>`, unchanged. Excludes
    /// [`domain`](Self::domain).
    pub fn api_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.api_prefix = Some(prefix.into());
        self
    }

    /// Sets the id of the destination. A relay stores its cursor under this id. Default `nats`.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the name of the stream: letters, digits, `-` and `_`. Default `EVENTS`.
    pub fn stream(mut self, name: impl Into<String>) -> Self {
        self.stream = name.into();
        self
    }

    /// Sets the prefix of every subject: words of letters, digits, `-` and `_`, joined by dots.
    /// Default `events`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the number of partitions over which keys are spread. A change for a stream in use moves keys
    /// between partitions and so breaks their order. Default 16, at most 4096.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.partitions = partitions;
        self
    }

    /// Spreads the partitions over so many streams, with the names `<stream>-0`, `<stream>-1` and so on: in a
    /// cluster their leaders and their disks share the work. Stream `n` has the partitions that leave the
    /// rest `n`. A change for streams in use is refused. Default 1, at most as many as partitions, and 64.
    pub fn streams(mut self, streams: u32) -> Self {
        self.streams = streams;
        self
    }

    /// Returns the options for each of the streams.
    pub(crate) fn each_stream(&self) -> Vec<Self> {
        if self.streams == 1 || self.number.is_some() {
            return vec![self.clone()];
        }
        let of = |n| Self { stream: format!("{}-{n}", self.stream), number: Some(n), ..self.clone() };
        (0..self.streams).map(of).collect()
    }

    /// Returns the subjects of the stream.
    pub(crate) fn subjects(&self) -> Vec<String> {
        let Some(number) = self.number else { return vec![subject::all(&self.prefix)] };
        let partitions = (number..self.partitions).step_by(self.streams as usize);
        partitions.map(|partition| subject::all(&format!("{}.{partition}", self.prefix))).collect()
    }

    /// Sets how long the relay waits for the acknowledgement of a message. An unacknowledged message may have
    /// arrived; a relay sends it again. Default 2 s.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// Sets the time-out of a request about a stream or a consumer, and of the confirmation of an ack.
    /// Default 5 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Sets the interval of pings over an idle connection. The client detects a dead connection after three
    /// intervals. Default 10 s.
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.ping_interval = interval;
        self
    }

    /// Sets how long after a delivery, or after its last sign of progress, the server redelivers it.
    /// Default 30 s.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait;
        self
    }

    /// Sets how many deliveries of one consumer may be unacknowledged at a time, in all its processes
    /// together. Default 4096.
    pub fn max_ack_pending(mut self, deliveries: u32) -> Self {
        self.max_ack_pending = deliveries;
        self
    }

    /// Makes each connection create a missing stream, also after the server lost it, and refuse a stream that
    /// is configured differently. Default: the stream must exist, see
    /// [`Nats::provision`](crate::Nats::provision).
    pub fn create_stream(mut self, stream: StreamOptions) -> Self {
        self.create_stream = Some(stream);
        self
    }

    /// Returns the subject of a request to JetStream, such as `STREAM.INFO.EVENTS`.
    pub(crate) fn api_subject(&self, api: &str) -> String {
        format!("{}.{api}", self.api())
    }

    pub(crate) fn api(&self) -> String {
        match (&self.domain, &self.api_prefix) {
            (Some(domain), _) => format!("$JS.{domain}.API"),
            (None, Some(prefix)) => prefix.clone(),
            (None, None) => API.to_owned(),
        }
    }

    /// Returns the same with what the files of URL and token hold now.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`]: a file cannot be read. It may be replaced at this moment.
    pub(crate) async fn with_files(&self) -> Result<Self, Error> {
        let mut options = self.clone();
        if let Some(file) = &self.url_file {
            options.urls = vec![read_secret("url", file).await?];
        }
        if let Some(file) = &self.token_file {
            options.token = Some(read_secret("token", file).await?);
        }
        Ok(options)
    }

    /// Returns user and password, or a token alone, from the first URL that holds a login.
    pub(crate) fn login(&self) -> Result<Option<(String, Option<String>)>, Error> {
        let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(decoded) => Ok(decoded.into_owned()),
            Err(_) => Err(Error::invalid("url", "has a user or a password that is not UTF-8")),
        };
        for server in self.servers()? {
            if let Some(user) = server.username() {
                return Ok(Some((decode(user)?, server.password().map(decode).transpose()?)));
            }
        }
        Ok(None)
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.login()?;
        if self.id.is_empty() || self.id.len() > limits::NAME_BYTES_MAX {
            return Err(Error::invalid("id", "must have 1 to 120 bytes"));
        }
        if !subject::is_name(&self.stream) {
            return Err(Error::invalid("stream", "must be 1 to 120 letters, digits, `-` and `_`"));
        }
        for (option, prefix) in [("prefix", &self.prefix), ("inbox_prefix", &self.inbox_prefix)] {
            if !subject::is_prefix(prefix) {
                return Err(Error::invalid(option, WORDS));
            }
        }
        if self.domain.as_ref().is_some_and(|domain| !subject::is_name(domain)) {
            return Err(Error::invalid("domain", "must be 1 to 120 letters, digits, `-` and `_`"));
        }
        if self.api_prefix.as_ref().is_some_and(|prefix| !subject::is_api_prefix(prefix)) {
            let problem = "must be words of letters, digits, `$`, `-` and `_` joined by dots";
            return Err(Error::invalid("api_prefix", problem));
        }
        if self.domain.is_some() && self.api_prefix.is_some() {
            return Err(Error::invalid("api_prefix", "excludes the option `domain`"));
        }
        if !(1..=PARTITIONS_MAX).contains(&self.partitions) {
            return Err(Error::invalid("partitions", "must be 1 to 4096"));
        }
        if !(1..=self.partitions.min(STREAMS_MAX)).contains(&self.streams) {
            return Err(Error::invalid("streams", "must be 1 to 64, and at most the number of partitions"));
        }
        if self.max_ack_pending == 0 {
            return Err(Error::invalid("max_ack_pending", "must be at least 1"));
        }
        let durations = [
            ("publish_timeout", self.publish_timeout),
            ("request_timeout", self.request_timeout),
            ("ping_interval", self.ping_interval),
            ("ack_wait", self.ack_wait),
        ];
        for (option, duration) in durations {
            if !(Duration::from_millis(10)..=TIMEOUT_MAX).contains(&duration) {
                return Err(Error::invalid(option, "must be 10 ms to 10 min"));
            }
        }
        Ok(())
    }
}

async fn read_secret(option: &str, file: &Path) -> Result<String, Error> {
    let text = tokio::fs::read_to_string(file).await.map_err(|error| {
        let text = format!("the file of the option `{option}` cannot be read: {}", file.display());
        Error::new(ErrorKind::Unavailable, "nats.credentials", text).with_source(error)
    })?;
    Ok(text.trim().to_owned())
}

/// Prints no URL and no secret.
impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("id", &self.id)
            .field("stream", &self.stream)
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
