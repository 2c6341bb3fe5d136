//! Numbers, durations and payloads as people read them: the same words in the tool and in the console.
use crate::BACKLOG_MAX;
use std::time::Duration;

/// The longest payload that is shown, in characters.
const PAYLOAD_MAX: usize = 4000;

/// The two largest units of a duration.
pub fn duration(duration: Duration) -> String {
    let whole = if duration < Duration::from_secs(1) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    } else {
        Duration::from_secs(duration.as_secs())
    };
    let text = humantime::format_duration(whole).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// `1,234`.
pub fn number(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group));
    groups.collect::<Vec<_>>().join(",")
}

/// `1 message`, `2 messages`.
pub fn counted(count: u64, one: &str) -> String {
    let number = number(count);
    if count == 1 { format!("{number} {one}") } else { format!("{number} {one}s") }
}

/// `1,234`, or `1,234+` if there may be more.
pub fn number_or_more(count: u64, has_more: bool) -> String {
    number(count) + if has_more { "+" } else { "" }
}

/// `1,234 messages`, or `1,234+ messages` if there may be more.
pub fn counted_or_more(count: u64, has_more: bool, one: &str) -> String {
    if has_more { format!("{}+ {one}s", number(count)) } else { counted(count, one) }
}

/// `10,000+` for a count that ends at [`BACKLOG_MAX`].
pub fn bounded_number(count: u64) -> String {
    let max = u64::from(BACKLOG_MAX);
    number_or_more(count.min(max), count >= max)
}

/// `10,000+ effects` for a count that ends at [`BACKLOG_MAX`].
pub fn bounded(count: u64, one: &str) -> String {
    let max = u64::from(BACKLOG_MAX);
    counted_or_more(count.min(max), count >= max, one)
}

/// Escapes control characters, and those that reverse the order of a text.
pub fn plain(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control() && c != '\n' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if hidden(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A payload for a person: JSON with a line for each field, cut to 4,000 characters.
pub fn payload(payload: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(payload).ok();
    let payload = match (json, std::str::from_utf8(payload)) {
        (Some(json), _) => serde_json::to_string_pretty(&json).unwrap_or_default(),
        (None, Ok(text)) => text.to_owned(),
        (None, Err(_)) => format!("({} bytes of binary data)", payload.len()),
    };
    let cut: String = payload.chars().take(PAYLOAD_MAX).collect();
    let more = if cut.len() < payload.len() { "\n…" } else { "" };
    plain(&cut) + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_commands() {
        assert_eq!(plain("a\u{1b}[31mb\u{7}\r\nc\u{202e}d"), "a\\u{1b}[31mb\\u{7}\\r\nc\\u{202e}d");
    }

    #[test]
    fn numbers_and_durations_are_written_for_people() {
        assert_eq!(
            ["1 message", "0 messages", "1,234,567 messages"],
            [1, 0, 1_234_567].map(|n| counted(n, "message"))
        );
        assert_eq!(["9,999", "10,000+"], [9_999, 10_000].map(bounded_number));
        assert_eq!(["1 message", "10,000+ messages"], [1, 10_001].map(|n| bounded(n, "message")));
        let durations = [0, 250, 61_000, 90_061_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(durations, ["0s", "250ms", "1m 1s", "1day 1h"]);
    }

    #[test]
    fn a_payload_is_shown_as_far_as_a_person_reads() {
        assert_eq!(payload(br#"{"a":1}"#), "{\n  \"a\": 1\n}");
        assert_eq!(payload(&[0xff, 0]), "(2 bytes of binary data)");
        assert_eq!(payload("é".repeat(PAYLOAD_MAX + 1).as_bytes()), "é".repeat(PAYLOAD_MAX) + "\n…");
    }
}
