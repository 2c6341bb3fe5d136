//! Time zones: the wall clock of an instant, and the instants of a wall clock.
use croner::{CivilDate, CivilDateTime, CivilTime, CronDateTime, Resolution, Weekday, errors::CronError};
use jiff::{
    Timestamp as Instant,
    civil::DateTime,
    tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase},
};
use std::cmp::Ordering;
use twinbox_core::Timestamp;

/// A time zone by its IANA name. Its rules come with this program, and not from the machine.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    pub(super) name: String,
    rules: TimeZone,
}

impl Zone {
    pub(super) fn utc() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let rules = TimeZoneDatabase::bundled().get(name).ok()?;
        Some(Self { name: rules.iana_name().unwrap_or(name).to_owned(), rules })
    }

    /// Returns the wall clock at an instant.
    pub(super) fn wall_clock(&self, at: Timestamp) -> Option<WallClock> {
        Some(WallClock(self.rules.to_datetime(instant(at)?)))
    }

    /// Returns the instant at which the wall clock first shows this time. In a gap: the end of the gap.
    pub(super) fn first_instant(&self, clock: WallClock) -> Option<Timestamp> {
        let offset = match self.rules.to_ambiguous_timestamp(clock.0).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Fold { before, .. } => before,
            AmbiguousOffset::Gap { after, .. } => {
                // Read with the later offset, a time in the gap is an instant before the gap.
                let before_gap = after.to_timestamp(clock.0).ok()?;
                return self.next_change(timestamp(before_gap));
            }
        };
        Some(timestamp(offset.to_timestamp(clock.0).ok()?))
    }

    /// Returns the instant of a wall clock, with the offset from UTC that holds at the instant `at`.
    pub(super) fn instant_with_offset_at(&self, clock: WallClock, at: Timestamp) -> Option<Timestamp> {
        let offset: Offset = self.rules.to_offset(instant(at)?);
        Some(timestamp(offset.to_timestamp(clock.0).ok()?))
    }

    /// Returns the first instant after `at` with other rules. None: there is none.
    pub(super) fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        self.rules.following(instant(at)?).next().map(|change| timestamp(change.timestamp()))
    }
}

fn instant(at: Timestamp) -> Option<Instant> {
    Instant::from_microsecond(at.as_micros()).ok()
}

fn timestamp(at: Instant) -> Timestamp {
    Timestamp::from_micros(at.as_microsecond())
}

/// A date and time of day without a zone. To croner it is a time in a zone that never changes: this module
/// decides what a gap and a fold mean, because croner takes a list of hours for an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WallClock(DateTime);

impl CronDateTime for WallClock {
    fn to_civil(&self) -> CivilDateTime {
        let part = |part: i8| u32::try_from(part).unwrap_or_default();
        let (year, month, day) = (i32::from(self.0.year()), part(self.0.month()), part(self.0.day()));
        let (hour, minute, second) = (part(self.0.hour()), part(self.0.minute()), part(self.0.second()));
        CivilDateTime::new(
            CivilDate::from_parts_unchecked(year, month, day),
            CivilTime::from_parts_unchecked(hour, minute, second),
        )
    }

    fn civil_weekday(&self) -> Weekday {
        Weekday::from_days_from_sunday(u32::try_from(self.0.weekday().to_sunday_zero_offset()).unwrap_or(0))
    }

    fn resolve_civil(&self, civil: CivilDateTime) -> Result<Resolution<Self>, CronError> {
        let part = |part: u32| i8::try_from(part).map_err(|_| CronError::InvalidDate);
        let year = i16::try_from(civil.year()).map_err(|_| CronError::InvalidDate)?;
        let (month, day) = (part(civil.month())?, part(civil.day())?);
        let (hour, minute, second) = (part(civil.hour())?, part(civil.minute())?, part(civil.second())?);
        let clock = DateTime::new(year, month, day, hour, minute, second, 0);
        Ok(Resolution::Single(Self(clock.map_err(|_| CronError::InvalidDate)?)))
    }

    fn checked_add_seconds(&self, seconds: i64) -> Option<Self> {
        self.0.checked_add(jiff::SignedDuration::from_secs(seconds)).ok().map(Self)
    }

    fn cmp_instant(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}
