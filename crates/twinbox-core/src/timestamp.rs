//! Points in time.
use std::fmt;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A point in time in UTC, with microseconds.
///
/// Timestamps come from databases and brokers. Twinbox never orders or expires messages by the clock of the
/// application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Returns the timestamp that many microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Reads a time in the form of RFC 3339, as in CloudEvents. Returns `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let nanos = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos();
        i64::try_from(nanos.div_euclid(1000)).ok().map(Self)
    }
}

/// RFC 3339 in UTC, or a number of microseconds for a year that RFC 3339 cannot write.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1000)
            .ok()
            .and_then(|at| at.format(&Rfc3339).ok());
        match text {
            Some(text) => f.write_str(&text),
            None => write!(f, "{}us", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_timestamp_can_be_read() {
        for micros in [0, 1, -1, 1_789_000_000_123_456, 999_999] {
            let at = Timestamp::from_micros(micros);
            assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        }
        assert_eq!(Timestamp::parse("2026-01-02T03:04:05+02:00"), Timestamp::parse("2026-01-02T01:04:05Z"));
        assert_eq!(Timestamp::parse("yesterday"), None);
        assert_eq!(Timestamp::from_micros(i64::MAX).to_string(), format!("{}us", i64::MAX));
    }
}
