//! Checks that the `Detail` of an event can hold a payload.
//!
//! EventBridge refuses some JSON that other readers accept, and reports it only after the event was sent.
//! The check works without recursion, so that no nesting overflows the stack.
use std::{error::Error, fmt};

/// The reason why a payload cannot be sent, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) kind: DefectKind,
    /// The bytes of the payload before the defect.
    pub(crate) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefectKind {
    NotUtf8,
    /// Invalid JSON: `NaN`, a trailing comma, an unfinished value.
    NotJson,
    TooDeep,
    /// An integer that a signed 64-bit integer cannot hold.
    Integer,
    /// An escape for half of a surrogate pair.
    LoneSurrogate,
}

impl DefectKind {
    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::NotUtf8 => "eventbridge.json_utf8",
            Self::NotJson => "eventbridge.json",
            Self::TooDeep => "eventbridge.json_depth",
            Self::Integer => "eventbridge.json_integer",
            Self::LoneSurrogate => "eventbridge.json_surrogate",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.kind {
            DefectKind::NotUtf8 => "is not UTF-8",
            DefectKind::NotJson => "is not valid JSON",
            DefectKind::TooDeep => "is nested too deep",
            DefectKind::Integer => "has an integer beyond 64 bits",
            DefectKind::LoneSurrogate => "has half of a surrogate pair",
        };
        write!(f, "the payload {problem} at byte {}", self.at)
    }
}

impl Error for Defect {}

/// Returns the payload as text if it is one JSON value, with at most `depth_max` levels of arrays and
/// objects.
pub(crate) fn check(payload: &[u8], depth_max: usize) -> Result<&str, Defect> {
    let text = std::str::from_utf8(payload);
    let text = text.map_err(|e| Defect { kind: DefectKind::NotUtf8, at: e.valid_up_to() })?;
    let mut scan = Scan { bytes: payload, at: 0 };
    scan.value_and_end(depth_max).map_err(|kind| Defect { kind, at: scan.at })?;
    Ok(text)
}

#[derive(Clone, Copy, PartialEq)]
enum Container {
    Array,
    Object,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn value_and_end(&mut self, depth_max: usize) -> Result<(), DefectKind> {
        let mut open = Vec::new();
        loop {
            self.space();
            let opened = match self.peek() {
                Some(b'{') => Some(Container::Object),
                Some(b'[') => Some(Container::Array),
                _ => None,
            };
            if let Some(container) = opened {
                if open.len() == depth_max {
                    return Err(DefectKind::TooDeep);
                }
                self.at += 1;
                self.space();
                if !self.eat(end_of(container)) {
                    open.push(container);
                    if container == Container::Object {
                        self.name()?;
                    }
                    continue;
                }
            } else {
                self.scalar()?;
            }
            if !self.next_value(&mut open)? {
                return if self.at == self.bytes.len() { Ok(()) } else { Err(DefectKind::NotJson) };
            }
        }
    }

    /// Moves from the end of a value to the start of the next. Returns false if the outermost value has
    /// ended.
    fn next_value(&mut self, open: &mut Vec<Container>) -> Result<bool, DefectKind> {
        loop {
            self.space();
            let Some(&container) = open.last() else { return Ok(false) };
            if self.eat(b',') {
                if container == Container::Object {
                    self.space();
                    self.name()?;
                }
                return Ok(true);
            }
            if !self.eat(end_of(container)) {
                return Err(DefectKind::NotJson);
            }
            open.pop();
        }
    }

    fn name(&mut self) -> Result<(), DefectKind> {
        self.string()?;
        self.space();
        self.need(b':')
    }

    fn scalar(&mut self) -> Result<(), DefectKind> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => match ["true", "false", "null"].iter().find(|w| self.rest().starts_with(w.as_bytes())) {
                Some(word) => {
                    self.at += word.len();
                    Ok(())
                }
                None => Err(DefectKind::NotJson),
            },
        }
    }

    fn string(&mut self) -> Result<(), DefectKind> {
        self.need(b'"')?;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0x20..) => self.at += 1,
                _ => return Err(DefectKind::NotJson),
            }
        }
    }

    fn escape(&mut self) -> Result<(), DefectKind> {
        match self.rest().get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => match self.unit(0)? {
                0xD800..=0xDBFF if matches!(self.unit(6), Ok(0xDC00..=0xDFFF)) => self.at += 12,
                0xD800..=0xDFFF => return Err(DefectKind::LoneSurrogate),
                _ => self.at += 6,
            },
            _ => return Err(DefectKind::NotJson),
        }
        Ok(())
    }

    /// Returns the UTF-16 unit of the escape `\uXXXX` at `ahead` bytes from here.
    fn unit(&self, ahead: usize) -> Result<u16, DefectKind> {
        let escape = self.rest().get(ahead..ahead + 6).filter(|e| e.starts_with(b"\\u"));
        let digits = escape.map(|e| &e[2..]).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|d| std::str::from_utf8(d).ok());
        digits.and_then(|d| u16::from_str_radix(d, 16).ok()).ok_or(DefectKind::NotJson)
    }

    fn number(&mut self) -> Result<(), DefectKind> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        let mut is_integer = true;
        if self.eat(b'.') {
            is_integer = false;
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            is_integer = false;
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        if is_integer && text.parse::<i64>().is_err() {
            self.at = start;
            return Err(DefectKind::Integer);
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), DefectKind> {
        let count = self.rest().iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(DefectKind::NotJson) } else { Ok(()) }
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, byte: u8) -> Result<(), DefectKind> {
        if self.eat(byte) { Ok(()) } else { Err(DefectKind::NotJson) }
    }
}

fn end_of(container: Container) -> u8 {
    match container {
        Container::Array => b']',
        Container::Object => b'}',
    }
}

#[cfg(test)]
mod tests;
