//! Patterns of event types.
use crate::message::is_type_name;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A pattern of event types, as in NATS: words joined by dots.
///
/// `*` stands for any one word, and a last `>` for one word or more. `>` alone matches every type.
///
/// ```
/// use twinbox_core::TypePattern;
///
/// let pattern: TypePattern = "orders.*".parse()?;
/// assert!(pattern.matches("orders.placed"));
/// assert!(!pattern.matches("orders.placed.eu"));
/// # Ok::<(), twinbox_core::InvalidPattern>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TypePattern(String);

impl TypePattern {
    /// Returns whether the event type matches this pattern.
    pub fn matches(&self, event_type: &str) -> bool {
        let mut words = event_type.split('.');
        for token in self.0.split('.') {
            match (token, words.next()) {
                (">", Some(_)) => return true,
                ("*", Some(_)) => {}
                (token, Some(word)) if token == word => {}
                _ => return false,
            }
        }
        words.next().is_none()
    }
}

impl FromStr for TypePattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let (head, tail) = text.rsplit_once('.').map_or((None, text), |(head, tail)| (Some(head), tail));
        let word = |word: &str| word == "*" || (is_type_name(word) && !word.contains('.'));
        let valid = head.is_none_or(|head| head.split('.').all(word)) && (tail == ">" || word(tail));
        if valid { Ok(Self(text.to_owned())) } else { Err(InvalidPattern(text.to_owned())) }
    }
}

impl TryFrom<String> for TypePattern {
    type Error = InvalidPattern;

    fn try_from(text: String) -> Result<Self, InvalidPattern> {
        text.parse()
    }
}

impl From<TypePattern> for String {
    fn from(pattern: TypePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for a text that is not a pattern of event types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPattern(String);

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a pattern of event types: write words joined by dots, `*` for any word, \
             a last `>` for the rest, like `orders.*` or `>`",
            self.0
        )
    }
}

impl std::error::Error for InvalidPattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_words() {
        let table = [
            (">", "orders", true),
            (">", "orders.placed", true),
            ("orders.*", "orders.placed", true),
            ("orders.*", "orders", false),
            ("orders.*", "orders.placed.eu", false),
            ("orders.>", "orders.placed.eu", true),
            ("orders.>", "orders", false),
            ("*.placed", "orders.placed", true),
            ("*.placed", "orders.paid", false),
            ("orders.placed", "orders.placed", true),
            ("orders", "orders.placed", false),
        ];
        for (pattern, event_type, matches) in table {
            let pattern: TypePattern = pattern.parse().unwrap();
            assert_eq!(pattern.matches(event_type), matches, "{pattern} {event_type}");
        }
    }

    #[test]
    fn texts_that_are_not_patterns() {
        for bad in ["", ".", "a.", ".a", "a..b", "a.>.b", ">.a", "a*", "a b", "a.\n"] {
            assert!(bad.parse::<TypePattern>().is_err(), "{bad:?}");
        }
    }
}
