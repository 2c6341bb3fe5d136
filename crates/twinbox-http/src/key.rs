//! What callers may choose as an `Idempotency-Key`.
use std::{borrow::Cow, fmt};

/// Whatever a service allows, keys are no longer.
const BYTES_MAX: usize = 255;

/// Which keys a route takes: by default 1 to 128 visible ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    min: usize,
    max: usize,
    any_text: bool,
    only_uuids: bool,
}

/// The key is not one that the route takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKey(Cow<'static, str>);

impl Default for KeyRule {
    fn default() -> Self {
        Self { min: 1, max: 128, any_text: false, only_uuids: false }
    }
}

impl KeyRule {
    /// Bytes of a key. At least 1, at most 255.
    #[must_use]
    pub fn length(self, bytes: std::ops::RangeInclusive<usize>) -> Self {
        let min = (*bytes.start()).clamp(1, BYTES_MAX);
        Self { min, max: (*bytes.end()).clamp(min, BYTES_MAX), ..self }
    }

    /// Spaces inside and UTF-8 are taken too; control characters never are.
    #[must_use]
    pub fn any_text(self) -> Self {
        Self { any_text: true, ..self }
    }

    /// Nothing but UUIDs, in their usual spelling.
    #[must_use]
    pub fn only_uuids(self) -> Self {
        Self { only_uuids: true, ..self }
    }

    /// The key that the values of the header spell. `"k"`, a string of RFC 9651, and `k` are one key.
    ///
    /// # Errors
    /// There are several, or it is not one that is taken.
    pub fn read(&self, values: &[&[u8]]) -> Result<String, InvalidKey> {
        let &[value] = values else { return Err(InvalidKey("give one Idempotency-Key".into())) };
        if value.len() > 2 * BYTES_MAX + 2 {
            return Err(self.wrong_length());
        }
        let value = std::str::from_utf8(value).map_err(|_| InvalidKey("it is not UTF-8".into()))?;
        let value = value.trim_matches(' ');
        let key = match value.strip_prefix('"') {
            Some(quoted) => unquoted(quoted).ok_or(InvalidKey("its quotes do not match".into()))?,
            None => value.to_owned(),
        };
        self.check(&key)?;
        Ok(key)
    }

    fn check(&self, key: &str) -> Result<(), InvalidKey> {
        if !(self.min..=self.max).contains(&key.len()) {
            return Err(self.wrong_length());
        }
        let taken = |c: char| c.is_ascii_graphic() || self.any_text && !c.is_control();
        if !key.chars().all(taken) {
            return Err(InvalidKey("it has a character that is not taken".into()));
        }
        if self.only_uuids && !is_uuid(key) {
            return Err(InvalidKey("it is not a UUID".into()));
        }
        Ok(())
    }

    fn wrong_length(&self) -> InvalidKey {
        InvalidKey(format!("it must have {} to {} bytes", self.min, self.max).into())
    }
}

/// Behind the first quote of a string of RFC 9651 §3.3.3.
fn unquoted(quoted: &str) -> Option<String> {
    let mut key = String::new();
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(key),
            '\\' => key.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => key.push(c),
        }
    }
}

fn is_uuid(key: &str) -> bool {
    key.len() == 36
        && key.bytes().enumerate().all(|(n, byte)| match n {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

impl InvalidKey {
    pub(crate) fn reason(self) -> String {
        self.0.into_owned()
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the Idempotency-Key is not taken: {}", self.0)
    }
}

impl std::error::Error for InvalidKey {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(value: &str) -> Option<String> {
        KeyRule::default().read(&[value.as_bytes()]).ok()
    }

    /// R3, D16, REQUIREMENTS §5, 6
    #[test]
    fn quoted_and_plain_are_one_key() {
        for key in ["a", "refund:ch_9ab:1000:6f6c", "8a7c1f30-5b62-4e19-9f4d-2f9d4ecf3a11", &"k".repeat(128)]
        {
            assert_eq!(read(key).as_deref(), Some(key));
            assert_eq!(read(&format!(" \"{key}\" ")).as_deref(), Some(key));
        }
        assert_eq!(read(r#""a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        assert_eq!(read(r#"a"b\c"#).as_deref(), Some(r#"a"b\c"#));
    }

    /// R3, D16, REQUIREMENTS §5, 6
    #[test]
    fn what_is_no_key_is_refused() {
        for value in [
            "",
            " ",
            "\"\"",
            "\"",
            "\"a",
            "\"a\"b",
            "\"a\";b=1",
            "\"a\\n\"",
            "a\0b",
            "a\tb",
            "a b",
            "é",
            "a\u{7f}",
            &"k".repeat(129),
            &"k".repeat(1_000_000),
            &format!("\"{}\"", "k".repeat(129)),
        ] {
            assert_eq!(read(value), None, "{:?}", &value[..value.len().min(20)]);
        }
        let rule = KeyRule::default();
        assert!(
            rule.read(&[]).is_err() && rule.read(&[b"a", b"a"]).is_err() && rule.read(&[b"\xff"]).is_err()
        );
    }

    #[test]
    fn a_route_may_take_more_or_less() {
        let any = KeyRule::default().any_text().length(3..=1000);
        assert_eq!(any.read(&["é ü".as_bytes()]).as_deref(), Ok("é ü"));
        assert!(any.read(&[&[b'k'; 255]]).is_ok() && any.read(&[&[b'k'; 256]]).is_err());
        assert_eq!(
            any.read(&[b"ab"]).unwrap_err().to_string(),
            "the Idempotency-Key is not taken: it must have 3 to 255 bytes"
        );
        assert!(any.read(&["a\u{85}b".as_bytes()]).is_err() && any.read(&[b"a\r\nb"]).is_err());
        let uuids = KeyRule::default().only_uuids();
        assert!(uuids.read(&[b"8a7c1f30-5b62-4e19-9f4d-2f9d4ecf3a11"]).is_ok());
        assert!(uuids.read(&[b"8a7c1f305b624e199f4d2f9d4ecf3a11"]).is_err());
    }

    proptest! {
        /// REQUIREMENTS §5, 32
        #[test]
        fn no_value_makes_it_panic(value in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = KeyRule::default().any_text().read(&[&value]);
        }
    }
}
