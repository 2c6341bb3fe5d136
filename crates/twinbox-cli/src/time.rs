//! Points in time as people type them.
use crate::exit::Exit;
use std::{str::FromStr, time::Duration};
use twinbox_core::Timestamp;
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
        let ago = humantime::parse_duration(text).map(Self::Ago);
        ago.map_err(|_| "write a time like `2026-11-20T03:00:00Z`, or how long ago, like `2h`".to_owned())
    }
}

/// The point in time, by the clock of the database.
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
}
