//! Which keys callers may choose.
use std::{borrow::Cow, fmt, ops::RangeInclusive};

/// The database stores no longer key.
const BYTES_MAX: usize = 255;

/// Describes which keys a route accepts. The default is 1 to 128 visible ASCII characters.
///
/// ```
/// use twinbox_http::KeySyntax;
///
/// let syntax = KeySyntax::default().length(8..=64);
/// assert_eq!(syntax.parse(&[b"order-000-7"]).as_deref(), Ok("order-000-7"));
/// assert!(syntax.parse(&[b"order-7"]).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySyntax {
    bytes_min: usize,
    bytes_max: usize,
    accepts_any_text: bool,
    accepts_only_uuids: bool,
}

/// The error for a request whose `Idempotency-Key` has no value that the route accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidKey(Cow<'static, str>);

impl Default for KeySyntax {
    fn default() -> Self {
        Self { bytes_min: 1, bytes_max: 128, accepts_any_text: false, accepts_only_uuids: false }
    }
}

impl KeySyntax {
    /// Sets how many bytes a key has: at least 1, at most 255.
    #[must_use]
    pub fn length(self, bytes: RangeInclusive<usize>) -> Self {
        let bytes_min = (*bytes.start()).clamp(1, BYTES_MAX);
        Self { bytes_min, bytes_max: (*bytes.end()).clamp(bytes_min, BYTES_MAX), ..self }
    }

    /// Accepts spaces inside a key and any UTF-8 except control characters.
    #[must_use]
    pub fn any_text(self) -> Self {
        Self { accepts_any_text: true, ..self }
    }

    /// Accepts only UUIDs, spelled with hyphens.
    #[must_use]
    pub fn only_uuids(self) -> Self {
        Self { accepts_only_uuids: true, ..self }
    }

    /// Reads the key from all values of the header. `"k"`, a string of RFC 9651, and `k` are the same key.
    ///
    /// # Errors
    /// The header has several values or none, or the syntax does not accept its value.
    pub fn parse(&self, values: &[&[u8]]) -> Result<String, InvalidKey> {
        let &[value] = values else { return Err(InvalidKey("give one Idempotency-Key".into())) };
        // Quotes, and a backslash before each byte.
        if value.len() > 2 * BYTES_MAX + 2 {
            return Err(self.wrong_length());
        }
        let value = std::str::from_utf8(value).map_err(|_| InvalidKey("it is not UTF-8".into()))?;
        let value = value.trim_matches(' ');
        let key = match value.strip_prefix('"') {
            Some(quoted) => unquote(quoted).ok_or(InvalidKey("its quotes do not match".into()))?,
            None => value.to_owned(),
        };
        self.check(&key)?;
        Ok(key)
    }

    fn check(&self, key: &str) -> Result<(), InvalidKey> {
        if !(self.bytes_min..=self.bytes_max).contains(&key.len()) {
            return Err(self.wrong_length());
        }
        let is_accepted = |c: char| c.is_ascii_graphic() || self.accepts_any_text && !c.is_control();
        if !key.chars().all(is_accepted) {
            return Err(InvalidKey("it has a character that is not taken".into()));
        }
        if self.accepts_only_uuids && !is_uuid(key) {
            return Err(InvalidKey("it is not a UUID".into()));
        }
        Ok(())
    }

    fn wrong_length(&self) -> InvalidKey {
        InvalidKey(format!("it must have {} to {} bytes", self.bytes_min, self.bytes_max).into())
    }
}

/// Decodes a string of RFC 9651 §3.3.3 from the character after its first quote.
fn unquote(quoted: &str) -> Option<String> {
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
    pub(crate) fn into_reason(self) -> String {
        self.0.into_owned()
    }
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid Idempotency-Key: {}", self.0)
    }
}

impl std::error::Error for InvalidKey {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(value: &str) -> Option<String> {
        KeySyntax::default().parse(&[value.as_bytes()]).ok()
    }

    /// R3, D16, t06
    #[test]
    fn quoted_and_plain_are_one_key() {
        for key in ["a", "refund:ch_9ab:1000:6f6c", "8a7c1f30-5b62-4e19-9f4d-2f9d4ecf3a11", &"k".repeat(128)]
        {
            assert_eq!(parse(key).as_deref(), Some(key));
            assert_eq!(parse(&format!(" \"{key}\" ")).as_deref(), Some(key));
        }
        assert_eq!(parse(r#""a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        assert_eq!(parse(r#"a"b\c"#).as_deref(), Some(r#"a"b\c"#));
    }

    /// R3, D16, t06
    #[test]
    fn an_invalid_key_is_refused() {
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
            assert_eq!(parse(value), None, "{:?}", &value[..value.len().min(20)]);
        }
        let syntax = KeySyntax::default();
        assert!(
            syntax.parse(&[]).is_err()
                && syntax.parse(&[b"a", b"a"]).is_err()
                && syntax.parse(&[b"\xff"]).is_err()
        );
    }

    #[test]
    fn a_route_may_accept_more_or_fewer_keys() {
        let any = KeySyntax::default().any_text().length(3..=1000);
        assert_eq!(any.parse(&["é ü".as_bytes()]).as_deref(), Ok("é ü"));
        assert!(any.parse(&[&[b'k'; 255]]).is_ok() && any.parse(&[&[b'k'; 256]]).is_err());
        assert_eq!(
            any.parse(&[b"ab"]).unwrap_err().to_string(),
            "invalid Idempotency-Key: it must have 3 to 255 bytes"
        );
        assert!(any.parse(&["a\u{85}b".as_bytes()]).is_err() && any.parse(&[b"a\r\nb"]).is_err());
        let uuids = KeySyntax::default().only_uuids();
        assert!(uuids.parse(&[b"8a7c1f30-5b62-4e19-9f4d-2f9d4ecf3a11"]).is_ok());
        assert!(uuids.parse(&[b"8a7c1f305b624e199f4d2f9d4ecf3a11"]).is_err());
    }

    proptest! {
        /// t32
        #[test]
        fn no_value_causes_a_panic(value in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = KeySyntax::default().any_text().parse(&[&value]);
        }
    }
}
