//! Hints of an error in the configuration: the line, and a similar name.

/// The similarity, from 0 to 1, from which on a known name is suggested for a wrong one.
const SIMILARITY_MIN: f64 = 0.75;

/// Asks whether a similar name was meant. Empty: no known name is similar.
pub(super) fn did_you_mean<'a>(wrong: &str, known: impl Iterator<Item = &'a str>) -> String {
    let similar = known.map(|known| (strsim::jaro_winkler(wrong, known), known));
    let best =
        similar.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(similarity, _)| *similarity >= SIMILARITY_MIN);
    best.map_or(String::new(), |(_, known)| format!("\ndid you mean `{known}`?"))
}

/// Names the line in `table` that sets `key` to `value`, else the head of the table. Empty: the table is not
/// in the text.
pub(super) fn line_of(text: &str, table: &str, key: &str, value: &str) -> String {
    let head = format!("[{table}]");
    let Some(start) = text.lines().position(|line| line.trim_start().starts_with(&head)) else {
        return String::new();
    };
    let below = text.lines().skip(start + 1).take_while(|line| !line.trim_start().starts_with('['));
    let sets =
        |line: &str| line.split('=').next().is_some_and(|name| name.trim() == key) && mentions(line, value);
    let line = below.map(sets).position(|sets| sets).map_or(start, |below| start + 1 + below);
    format!(" line {}:", line + 1)
}

/// Whether a line sets the key `text`, or sets a key to the value `text`.
pub(super) fn mentions(line: &str, text: &str) -> bool {
    let Some((key, value)) = line.split_once('=') else { return false };
    key.trim() == text || value.split(['"', '\'']).any(|value| value == text)
}
