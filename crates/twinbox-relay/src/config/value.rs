//! Values with a notation of their own.
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use std::fmt;
use twinbox_core::{RetryPolicy, Timestamp};
use twinbox_sql::log;

use crate::OnExhausted;

/// A duration as people write it: `500ms`, `30s`, `1h 30m`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(pub std::time::Duration);

impl TryFrom<String> for Duration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = humantime::parse_duration(&text);
        parsed.map(Self).map_err(|_| format!("{text:?} is no duration: write it like 500ms, 30s or 5m"))
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

/// A number of bytes as people write it: `256KiB`, `1MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub usize);

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = text.parse::<ByteSize>().ok().and_then(|size| usize::try_from(size.as_u64()).ok());
        parsed.map(Self).ok_or_else(|| format!("{text:?} is no size: write it like 256KiB or 1MiB"))
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        ByteSize(size.0 as u64).to_string()
    }
}

/// Where a destination starts that was never published to: `beginning`, `now` or a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Start(pub log::Start);

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match (text.as_str(), Timestamp::parse(&text)) {
            ("beginning", _) => Ok(Self(log::Start::Beginning)),
            ("now", _) => Ok(Self(log::Start::Now)),
            (_, Some(time)) => Ok(Self(log::Start::At(time))),
            _ => Err(format!(
                "{text:?} is no start: write beginning, now, or a time like 2026-01-31T12:00:00Z"
            )),
        }
    }
}

impl From<Start> for String {
    fn from(start: Start) -> Self {
        match start.0 {
            log::Start::Now => "now".to_owned(),
            log::Start::At(time) => time.to_string(),
            _ => "beginning".to_owned(),
        }
    }
}

/// What becomes of a message that is given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// It stays in the log as a dead letter.
    #[default]
    DeadLetter,
    /// Its key waits as well.
    ParkKey,
    /// The whole destination waits.
    Block,
}

impl From<Exhausted> for OnExhausted {
    fn from(exhausted: Exhausted) -> Self {
        match exhausted {
            Exhausted::DeadLetter => Self::DeadLetter,
            Exhausted::ParkKey => Self::ParkKey,
            Exhausted::Block => Self::Block,
        }
    }
}

/// When a message is tried again: doubling delays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// The first delay.
    pub base: Duration,
    /// The longest.
    pub max: Duration,
    /// After how many attempts a message is given up.
    pub attempts: u32,
    /// The share of a delay that may be added to it. Default 0.5.
    #[serde(default = "jitter")]
    pub jitter: f64,
}

fn jitter() -> f64 {
    0.5
}

impl From<Retry> for RetryPolicy {
    fn from(retry: Retry) -> Self {
        Self::exponential(retry.base.0, retry.max.0).jitter(retry.jitter).max_attempts(retry.attempts)
    }
}
