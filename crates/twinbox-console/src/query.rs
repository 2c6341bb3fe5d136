//! What people write into forms.
use crate::failure::Failure;
use std::time::Duration;
use twinbox_ops::{Dialect, Ops, Timestamp, TypePattern, parse_duration, wording::plain};

/// The longest text of a form field, in bytes.
const FIELD_BYTES_MAX: usize = 4096;

/// Returns a field that is not empty.
pub(crate) fn given(field: &Option<String>) -> Result<Option<String>, Failure> {
    bounded(field.as_deref().unwrap_or_default().trim())
}

/// Returns a field that a page has filled in, with the spaces at its ends.
pub(crate) fn exact(field: &Option<String>) -> Result<Option<String>, Failure> {
    bounded(field.as_deref().unwrap_or_default())
}

fn bounded(text: &str) -> Result<Option<String>, Failure> {
    match text.len() {
        0 => Ok(None),
        1..=FIELD_BYTES_MAX => Ok(Some(text.to_owned())),
        _ => Err(Failure::bad_request(format!("a field has more than {FIELD_BYTES_MAX} bytes"))),
    }
}

/// Reads `2026-11-20T03:00:00Z`, or `2h` for two hours ago.
pub(crate) async fn time<DB: Dialect>(
    ops: &Ops<DB>,
    field: &Option<String>,
) -> Result<Option<Timestamp>, Failure> {
    let Some(text) = given(field)? else { return Ok(None) };
    if let Some(time) = Timestamp::parse(&text) {
        return Ok(Some(time));
    }
    let ago = parse_duration(&text).map_err(|_| {
        Failure::bad_request(format!(
            "{text:?} is no time: write it like 2026-11-20T03:00:00Z, or 2h for two hours ago"
        ))
    })?;
    let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
    Ok(Some(Timestamp::from_micros(ops.now().await?.as_micros().saturating_sub(ago))))
}

/// Reads the patterns of types, separated by spaces or commas.
pub(crate) fn types(field: &Option<String>) -> Result<Vec<TypePattern>, Failure> {
    let text = given(field)?.unwrap_or_default();
    let parse = |one: &str| {
        let pattern = one.parse::<TypePattern>();
        pattern.map_err(|error| Failure::bad_request(format!("{one:?} is no type: {error}")))
    };
    text.split([' ', ',']).filter(|one| !one.is_empty()).map(parse).collect()
}

/// Reads how many a second, and returns the time between two.
pub(crate) fn spacing(field: &Option<String>) -> Result<(Option<u32>, Duration), Failure> {
    let Some(text) = given(field)? else { return Ok((None, Duration::ZERO)) };
    match text.parse::<u32>() {
        Ok(rate) if rate > 0 => Ok((Some(rate), Duration::from_secs(1) / rate)),
        _ => Err(Failure::bad_request(format!("{text:?} is no rate: write a number of 1 or more a second"))),
    }
}

/// Reads a number of a thing, such as a replay.
pub(crate) fn number(field: &Option<String>) -> Result<i64, Failure> {
    let text = given(field)?.unwrap_or_default();
    text.parse().map_err(|_| Failure::bad_request(format!("{text:?} is no number")))
}

/// Quotes a word for a shell.
pub(crate) fn shell(word: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '%' | '+');
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false if plain(word) == word && !word.contains('\n') => format!("'{}'", word.replace('\'', r"'\''")),
        false => format!("$'{}'", word.chars().map(escaped).collect::<String>()),
    }
}

/// A character between `$'` and `'`, without one that a terminal would execute.
fn escaped(c: char) -> String {
    match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c == '\n' || plain(&c.to_string()) != c.to_string() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stays_a_word_of_a_shell() {
        for (word, quoted) in [
            ("billing.invoice", "billing.invoice"),
            ("2026-11-20T03:00:00Z", "2026-11-20T03:00:00Z"),
            ("", "''"),
            ("$(rm x)", "'$(rm x)'"),
            ("it's", r"'it'\''s'"),
            ("a\nb", r"$'a\u000ab'"),
            ("\u{1b}'\u{202e}\\", r"$'\u001b\'\u202e\\'"),
        ] {
            assert_eq!(shell(word), quoted);
        }
    }

    #[test]
    fn fields_are_read_with_bounds() {
        let field = |text: &str| Some(text.to_owned());
        assert_eq!(given(&field("  ")).unwrap(), None);
        assert_eq!(given(&field(" a ")).unwrap().as_deref(), Some("a"));
        assert!(given(&Some("a".repeat(FIELD_BYTES_MAX + 1))).is_err());
        assert_eq!(exact(&field(" a ")).unwrap().as_deref(), Some(" a "));
        assert_eq!(exact(&field("  ")).unwrap().as_deref(), Some("  "));
        assert_eq!(exact(&field("")).unwrap(), None);
        assert_eq!(types(&field("orders.*, b")).unwrap().len(), 2);
        assert!(types(&field("a..b")).is_err());
        assert_eq!(spacing(&field("4")).unwrap().1, Duration::from_millis(250));
        assert!(spacing(&field("0")).is_err() && spacing(&field("x")).is_err());
        assert_eq!(number(&field("7")).unwrap(), 7);
        assert!(number(&None).is_err());
    }
}
