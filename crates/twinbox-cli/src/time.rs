//! Times and durations as people type them.
use crate::exit::Exit;
use std::{fmt, str::FromStr, time::Duration};
use twinbox_core::Timestamp;
use twinbox_ops::parse_duration;
use twinbox_sql::{Dialect, Store};

/// `2026-11-20T03:00:00Z`, or `2h` for two hours ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    At(Timestamp),
    Ago(Duration),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(at) = Timestamp::parse(text) {
            return Ok(Self::At(at));
        }
        let ago = parse_duration(text).map(Self::Ago);
        ago.map_err(|error| format!("write a time like `2026-11-20T03:00:00Z`, or how long ago: {error}"))
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Ago(ago) => write!(f, "{} ago", humantime::format_duration(*ago)),
        }
    }
}

/// The point in time, on the clock of the database.
pub(crate) async fn resolve<DB: Dialect>(
    when: Option<When>,
    store: &Store<DB>,
) -> Result<Option<Timestamp>, Exit> {
    Ok(match when {
        None => None,
        Some(When::At(at)) => Some(at),
        Some(When::Ago(ago)) => {
            let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
            Some(Timestamp::from_micros(store.now().await?.as_micros().saturating_sub(ago)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_absolute_or_ago() {
        assert_eq!("2h 30m".parse(), Ok(When::Ago(Duration::from_secs(9000))));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(When::At(Timestamp::from_micros(1_000_000))));
        for bad in ["", "yesterday", "2026-11-20", "-1h", "'; DROP TABLE x"] {
            assert!(bad.parse::<When>().is_err(), "{bad}");
        }
    }

    #[test]
    fn months_are_never_taken_for_minutes() {
        for bad in ["30M", "30 M", "1h 30M"] {
            let error = bad.parse::<When>().unwrap_err();
            assert!(error.contains("`M` is ambiguous") && error.contains("`m` minutes"), "{bad}: {error}");
        }
    }
}
