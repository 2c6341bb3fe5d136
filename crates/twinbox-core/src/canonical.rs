//! Canonical JSON: the same text for every order of members, every spacing and every spelling of numbers.
//!
//! Members are sorted and strings are written as in RFC 8785 (JCS). Numbers are not: JCS turns them into
//! binary floating point, where 2^53 and 2^53 + 1 are the same number, and both can be amounts. Here a number
//! keeps its exact decimal value: its digits without the zeros around them, and an exponent. `1`, `1.0` and
//! `1e0` become `1`; `1000` becomes `1e3`.
use std::{error::Error, fmt};

/// The bound of nested arrays and objects, so that no request can exhaust the stack.
const DEPTH_MAX: usize = 128;

/// The error for a text without a canonical form.
///
/// The text is not JSON, repeats a member, holds half of a surrogate pair, or has too many nested values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoCanonicalForm;

impl fmt::Display for NoCanonicalForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the text has no canonical form: it is not JSON, repeats a member, or is nested too deep")
    }
}

impl Error for NoCanonicalForm {}

/// Returns the canonical form of a JSON text, without the members that `excluded` names by JSON pointers
/// (RFC 6901).
///
/// # Errors
/// The text has no canonical form, see [`NoCanonicalForm`].
///
/// ```
/// use twinbox_core::canonical::{NoCanonicalForm, canonical};
///
/// let form = canonical(br#"{ "b": 1.50, "at": "now", "a": 1000 }"#, &["/at".to_owned()])?;
/// assert_eq!(form, br#"{"a":1e3,"b":15e-1}"#);
/// # Ok::<(), NoCanonicalForm>(())
/// ```
pub fn canonical(json: &[u8], excluded: &[String]) -> Result<Vec<u8>, NoCanonicalForm> {
    let text = std::str::from_utf8(json).map_err(|_| NoCanonicalForm)?;
    let mut reader = Reader { rest: text.as_bytes(), excluded, pointer: String::new(), depth: 0 };
    let mut out = Vec::with_capacity(json.len());
    reader.value(&mut out)?;
    reader.skip_spaces();
    if reader.rest.is_empty() { Ok(out) } else { Err(NoCanonicalForm) }
}

/// Reads a JSON text that is known to be UTF-8.
struct Reader<'a> {
    rest: &'a [u8],
    excluded: &'a [String],
    /// The JSON pointer of the value that is read; empty if no member is excluded.
    pointer: String,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut Vec<u8>) -> Result<(), NoCanonicalForm> {
        self.skip_spaces();
        match self.rest.first().ok_or(NoCanonicalForm)? {
            b'{' => self.nested(|reader| reader.object(out)),
            b'[' => self.nested(|reader| reader.array(out)),
            b'"' => {
                let text = self.string()?;
                write_string(&text, out);
                Ok(())
            }
            b't' => self.literal(b"true", out),
            b'f' => self.literal(b"false", out),
            b'n' => self.literal(b"null", out),
            _ => self.number(out),
        }
    }

    fn nested(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<(), NoCanonicalForm>,
    ) -> Result<(), NoCanonicalForm> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(NoCanonicalForm);
        }
        read(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn object(&mut self, out: &mut Vec<u8>) -> Result<(), NoCanonicalForm> {
        self.take(b'{')?;
        let mut members = Vec::new();
        if !self.skip_end(b'}') {
            loop {
                self.skip_spaces();
                let name = self.string()?;
                self.skip_spaces();
                self.take(b':')?;
                let mut value = Vec::new();
                let outer = self.enter(&name);
                self.value(&mut value)?;
                let is_excluded = !self.excluded.is_empty() && self.excluded.contains(&self.pointer);
                self.pointer.truncate(outer);
                members.push((Vec::from_iter(name.encode_utf16()), name, (!is_excluded).then_some(value)));
                if self.skip_end(b'}') {
                    break;
                }
                self.take(b',')?;
            }
        }
        members.sort();
        if members.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(NoCanonicalForm);
        }
        out.push(b'{');
        let kept = members.iter().filter_map(|(_, name, value)| Some((name, value.as_ref()?)));
        for (n, (name, value)) in kept.enumerate() {
            if n > 0 {
                out.push(b',');
            }
            write_string(name, out);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
        Ok(())
    }

    fn array(&mut self, out: &mut Vec<u8>) -> Result<(), NoCanonicalForm> {
        self.take(b'[')?;
        out.push(b'[');
        if !self.skip_end(b']') {
            for n in 0.. {
                let outer = self.enter(&n.to_string());
                self.value(out)?;
                self.pointer.truncate(outer);
                if self.skip_end(b']') {
                    break;
                }
                self.take(b',')?;
                out.push(b',');
            }
        }
        out.push(b']');
        Ok(())
    }

    /// Extends the pointer by a member or an index. Returns its length before.
    fn enter(&mut self, name: &str) -> usize {
        let outer = self.pointer.len();
        if !self.excluded.is_empty() {
            self.pointer.push('/');
            self.pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        }
        outer
    }

    fn string(&mut self) -> Result<String, NoCanonicalForm> {
        self.take(b'"')?;
        let mut text = Vec::new();
        loop {
            let plain = self.rest.iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)).count();
            text.extend_from_slice(&self.rest[..plain]);
            self.rest = &self.rest[plain..];
            match self.next()? {
                b'"' => return String::from_utf8(text).map_err(|_| NoCanonicalForm),
                b'\\' => {
                    let escaped = self.escape()?;
                    text.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => return Err(NoCanonicalForm),
            }
        }
    }

    fn escape(&mut self) -> Result<char, NoCanonicalForm> {
        Ok(match self.next()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.utf16_unit()?;
                if (0xD800..0xDC00).contains(&first) {
                    self.take(b'\\')?;
                    self.take(b'u')?;
                    let second = self.utf16_unit()?;
                    let pair = char::decode_utf16([first, second]).next();
                    return pair.and_then(Result::ok).ok_or(NoCanonicalForm);
                }
                char::from_u32(first.into()).ok_or(NoCanonicalForm)?
            }
            _ => return Err(NoCanonicalForm),
        })
    }

    /// Reads four hexadecimal digits.
    fn utf16_unit(&mut self) -> Result<u16, NoCanonicalForm> {
        let (digits, rest) = self.rest.split_at_checked(4).ok_or(NoCanonicalForm)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(NoCanonicalForm);
        }
        self.rest = rest;
        let digits = std::str::from_utf8(digits).map_err(|_| NoCanonicalForm)?;
        u16::from_str_radix(digits, 16).map_err(|_| NoCanonicalForm)
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Result<(), NoCanonicalForm> {
        let is_negative = self.skip(b'-');
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return Err(NoCanonicalForm);
        }
        let fraction = if self.skip(b'.') { self.digits()? } else { &[] };
        let mut exponent = 0;
        if self.skip(b'e') || self.skip(b'E') {
            let is_negative_exponent = self.skip(b'-');
            if !is_negative_exponent {
                self.skip(b'+');
            }
            let digits = std::str::from_utf8(self.digits()?).map_err(|_| NoCanonicalForm)?;
            let size: i64 = digits.parse().map_err(|_| NoCanonicalForm)?;
            exponent = if is_negative_exponent { -size } else { size };
        }
        let digits = [whole, fraction].concat();
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        let significant = &digits[zeros..];
        let trailing = significant.iter().rev().take_while(|digit| **digit == b'0').count();
        let significant = &significant[..significant.len() - trailing];
        if significant.is_empty() {
            out.push(b'0');
            return Ok(());
        }
        let length = |count: usize| i64::try_from(count).map_err(|_| NoCanonicalForm);
        let exponent = i64::checked_sub(exponent, length(fraction.len())?).ok_or(NoCanonicalForm)?;
        let exponent = exponent.checked_add(length(trailing)?).ok_or(NoCanonicalForm)?;
        if is_negative {
            out.push(b'-');
        }
        out.extend_from_slice(significant);
        if exponent != 0 {
            out.extend_from_slice(format!("e{exponent}").as_bytes());
        }
        Ok(())
    }

    /// Reads one digit or more.
    fn digits(&mut self) -> Result<&'a [u8], NoCanonicalForm> {
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        if digits.is_empty() { Err(NoCanonicalForm) } else { Ok(digits) }
    }

    fn literal(&mut self, literal: &[u8], out: &mut Vec<u8>) -> Result<(), NoCanonicalForm> {
        self.rest = self.rest.strip_prefix(literal).ok_or(NoCanonicalForm)?;
        out.extend_from_slice(literal);
        Ok(())
    }

    fn skip_spaces(&mut self) {
        let count = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
        self.rest = &self.rest[count..];
    }

    /// Skips spaces and the end of an object or array, if it is here.
    fn skip_end(&mut self, end: u8) -> bool {
        self.skip_spaces();
        self.skip(end)
    }

    fn skip(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), NoCanonicalForm> {
        if self.skip(byte) { Ok(()) } else { Err(NoCanonicalForm) }
    }

    fn next(&mut self) -> Result<u8, NoCanonicalForm> {
        let (first, rest) = self.rest.split_first().ok_or(NoCanonicalForm)?;
        self.rest = rest;
        Ok(*first)
    }
}

/// Writes a string as in RFC 8785 §3.2.2.2.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            8 => out.extend_from_slice(b"\\b"),
            9 => out.extend_from_slice(b"\\t"),
            10 => out.extend_from_slice(b"\\n"),
            12 => out.extend_from_slice(b"\\f"),
            13 => out.extend_from_slice(b"\\r"),
            0..0x20 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests;
