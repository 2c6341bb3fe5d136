//! Points in time.
use std::fmt;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A point in time in UTC, with microseconds.
///
/// Timestamps come from databases and brokers. Twinbox never orders or expires messages by the clock of the
/// application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// The years 0 to 9999 in microseconds: RFC 3339, and so CloudEvents, can write no others.
const WRITABLE: std::ops::Range<i64> = -62_167_219_200_000_000..253_402_300_800_000_000;

impl Timestamp {
    /// The time of a row whose time no program can read. It is earlier than all others.
    pub const UNREADABLE: Self = Self(i64::MIN);

    /// Returns the timestamp that many microseconds after 1970-01-01T00:00:00Z.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns whether RFC 3339 can write the time: in UTC its year is 0 to 9999.
    pub fn fits_rfc3339(self) -> bool {
        WRITABLE.contains(&self.0)
    }

    /// Reads a time in the form of RFC 3339, as in CloudEvents. Returns `None` for any other text, and for a
    /// time whose offset moves it out of the years 0 to 9999.
    pub fn parse(text: &str) -> Option<Self> {
        let nanos = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos();
        i64::try_from(nanos.div_euclid(1000)).ok().map(Self).filter(|time| time.fits_rfc3339())
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

    #[test]
    fn the_years_that_can_be_written_can_be_read_and_no_others() {
        let first = Timestamp::parse("0000-01-01T00:00:00Z").unwrap();
        let last = Timestamp::parse("9999-12-31T23:59:59.999999999Z").unwrap();
        assert_eq!((first.as_micros(), last.as_micros()), (WRITABLE.start, WRITABLE.end - 1));
        for at in [first, last] {
            assert_eq!(Timestamp::parse(&at.to_string()), Some(at));
        }
        for micros in [i64::MIN, i64::MIN + 1, WRITABLE.start - 1, WRITABLE.end, i64::MAX - 1, i64::MAX] {
            let at = Timestamp::from_micros(micros);
            assert!(!at.fits_rfc3339() && at.to_string() == format!("{micros}us"), "{at}");
            assert_eq!(Timestamp::parse(&at.to_string()), None, "{at}");
        }
        for text in [
            "0000-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59-23:59",
            "9999-12-31T23:59:60-00:01",
            "292277-01-01T00:00:00Z",
            "+292277-01-01T00:00:00Z",
            "-0001-01-01T00:00:00Z",
            "9223372036854775807us",
            "-9223372036854775808us",
            "9223372036854775807",
            "2026-02-30T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T12:00:60Z",
            "infinity",
            "-infinity",
            "0000-00-00T00:00:00Z",
            "0000-00-00 00:00:00",
            "",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    /// Its second has no number of its own.
    #[test]
    fn a_leap_second_is_the_end_of_the_second_before_it() {
        let at = |text| Timestamp::parse(text).unwrap();
        assert_eq!(at("2016-12-31T23:59:60Z"), at("2016-12-31T23:59:59.999999Z"));
        assert_eq!(at("2017-01-01T00:59:60+01:00"), at("2016-12-31T23:59:60Z"));
    }
}
