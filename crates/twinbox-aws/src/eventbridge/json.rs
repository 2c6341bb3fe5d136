//! Whether a payload can stand in the `Detail` of an event.
//!
//! EventBridge refuses JSON that other readers take, and refuses it event by event after it was sent. This
//! reads without recursion, so that no payload is too deep to be looked at.
use std::{error::Error, fmt};

/// Why a payload cannot be sent, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Defect {
    pub(crate) kind: DefectKind,
    /// Bytes of the payload before it.
    pub(crate) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DefectKind {
    NotUtf8,
    /// No JSON: `NaN`, a trailing comma, an unfinished value.
    NotJson,
    TooDeep,
    /// An integer beyond 64 bits with a sign.
    Integer,
    /// An escape that is half of a character.
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
        let what = match self.kind {
            DefectKind::NotUtf8 => "is not UTF-8",
            DefectKind::NotJson => "is not JSON",
            DefectKind::TooDeep => "is nested too deep",
            DefectKind::Integer => "has an integer beyond 64 bits",
            DefectKind::LoneSurrogate => "has half a character",
        };
        write!(f, "the payload {what} at byte {}", self.at)
    }
}

impl Error for Defect {}

/// The payload as text, if it is one JSON value of at most `depth_max` arrays and objects within each other.
pub(crate) fn check(payload: &[u8], depth_max: usize) -> Result<&str, Defect> {
    let text = std::str::from_utf8(payload);
    let text = text.map_err(|e| Defect { kind: DefectKind::NotUtf8, at: e.valid_up_to() })?;
    let mut scan = Scan { bytes: payload, at: 0 };
    scan.value_and_end(depth_max).map_err(|kind| Defect { kind, at: scan.at })?;
    Ok(text)
}

#[derive(Clone, Copy, PartialEq)]
enum Inside {
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
                Some(b'{') => Some(Inside::Object),
                Some(b'[') => Some(Inside::Array),
                _ => None,
            };
            if let Some(inside) = opened {
                if open.len() == depth_max {
                    return Err(DefectKind::TooDeep);
                }
                self.at += 1;
                self.space();
                if !self.eat(end_of(inside)) {
                    open.push(inside);
                    if inside == Inside::Object {
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

    /// Goes on after a value to where the next begins. False: the outermost one has ended.
    fn next_value(&mut self, open: &mut Vec<Inside>) -> Result<bool, DefectKind> {
        loop {
            self.space();
            let Some(&inside) = open.last() else { return Ok(false) };
            if self.eat(b',') {
                if inside == Inside::Object {
                    self.space();
                    self.name()?;
                }
                return Ok(true);
            }
            if !self.eat(end_of(inside)) {
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

    /// The `\uXXXX` that many bytes ahead.
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
        let mut integer = true;
        if self.eat(b'.') {
            integer = false;
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            integer = false;
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        if integer && text.parse::<i64>().is_err() {
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
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn need(&mut self, byte: u8) -> Result<(), DefectKind> {
        if self.eat(byte) { Ok(()) } else { Err(DefectKind::NotJson) }
    }
}

fn end_of(inside: Inside) -> u8 {
    match inside {
        Inside::Array => b']',
        Inside::Object => b'}',
    }
}

#[cfg(test)]
mod tests;
