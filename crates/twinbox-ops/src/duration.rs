//! Durations as operators type them.
use std::time::Duration;

/// Parses a duration such as `500ms`, `90s`, `30m`, `2h 30m`, `7d` or `2w`.
///
/// # Errors
/// The text is not a duration, or has the unit `M`: months, which people write for minutes.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: &str = "`s` is seconds, `m` minutes, `h` hours, `d` days, `w` weeks";
    let has_months = text.as_bytes().windows(2).any(|pair| pair[1] == b'M' && !pair[0].is_ascii_alphabetic());
    if has_months {
        return Err(format!("{text:?}: the unit `M` is ambiguous: {UNITS}; write `months` for months"));
    }
    let problem = |_| format!("{text:?} is not a duration: write it like 500ms, 30s or 5m; {UNITS}");
    humantime::parse_duration(text).map_err(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_are_never_taken_for_minutes() {
        for bad in ["30M", "30 M", "1h 30M"] {
            let error = parse_duration(bad).unwrap_err();
            assert!(error.contains("`M` is ambiguous") && error.contains("`m` minutes"), "{bad}: {error}");
        }
        assert_eq!(parse_duration("30m"), Ok(Duration::from_secs(1800)));
        assert!(parse_duration("1month").is_ok());
    }
}
