//! Values of the configuration file that have a notation of their own.
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use twinbox_core::{RetryPolicy, Timestamp};
use twinbox_log::StartPosition;
use twinbox_ops::parse_duration;

/// A duration as text: `500ms`, `30s`, `1h 30m`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(pub std::time::Duration);

impl TryFrom<String> for Duration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_duration(text).map(Self)
    }
}

impl From<Duration> for String {
    fn from(duration: Duration) -> Self {
        humantime::format_duration(duration.0).to_string()
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number of bytes as text: `256KiB`, `1MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub usize);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<ByteSize>().ok().and_then(|size| usize::try_from(size.as_u64()).ok());
        parsed.map(Self).ok_or_else(|| format!("{text:?} is not a size: write it like 256KiB or 1MiB"))
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        ByteSize(size.0 as u64).to_string()
    }
}

/// Where a new destination starts in the log: `beginning`, `now` or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Start(pub StartPosition);

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match (text.as_str(), Timestamp::parse(&text)) {
            ("beginning", _) => Ok(Self(StartPosition::Beginning)),
            ("now", _) => Ok(Self(StartPosition::Now)),
            (_, Some(time)) => Ok(Self(StartPosition::At(time))),
            _ => Err(format!(
                "{text:?} is not a start: write beginning, now, or a time like 2026-01-31T12:00:00Z"
            )),
        }
    }
}

impl From<Start> for String {
    fn from(start: Start) -> Self {
        match start.0 {
            StartPosition::Now => "now".to_owned(),
            StartPosition::At(time) => time.to_string(),
            _ => "beginning".to_owned(),
        }
    }
}

/// A retry policy whose delays double.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The delay after the first failed attempt.
    pub base: Duration,
    /// The longest delay between two attempts.
    pub max: Duration,
    /// The number of attempts after which a message is given up.
    pub attempts: u32,
    /// The share of a delay that may be added to it at random. Default 0.5.
    #[serde(default = "default_jitter")]
    pub jitter: f64,
}

fn default_jitter() -> f64 {
    0.5
}

impl From<Retry> for RetryPolicy {
    fn from(retry: Retry) -> Self {
        Self::exponential(retry.base.0, retry.max.0).jitter(retry.jitter).max_attempts(retry.attempts)
    }
}
