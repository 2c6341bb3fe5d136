//! Header blocks, which anybody who may publish can fill with any bytes: the server stores them unread.
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use std::str::FromStr as _;

const VERSION: &str = "NATS/1.0";

/// The headers of a message.
#[derive(Debug, Clone)]
pub(crate) enum Headers {
    Read(HeaderMap),
    /// A header block that cannot be read, and why.
    Unreadable {
        block: Bytes,
        defect: &'static str,
    },
}

impl Headers {
    /// Reads a header block by the rules of the client library. A status in its first line is left out: that
    /// of a stored message comes from its publisher.
    pub(crate) fn read(block: Option<Bytes>) -> Self {
        let Some(block) = block else { return Self::Read(HeaderMap::new()) };
        match read(&block) {
            Ok(headers) => Self::Read(headers),
            Err(defect) => Self::Unreadable { block, defect },
        }
    }
}

fn read(block: &[u8]) -> Result<HeaderMap, &'static str> {
    let text = std::str::from_utf8(block).map_err(|_| "the header block is not UTF-8")?;
    let mut lines = text.lines().peekable();
    if !lines.next().is_some_and(|first| first.starts_with(VERSION)) {
        return Err("the header block does not begin with its version");
    }
    let mut headers = HeaderMap::new();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let (name, value) = line.split_once(':').ok_or("the header block has a line without a colon")?;
        let name = HeaderName::from_str(name).map_err(|_| "the header block has an invalid name")?;
        let mut value = value.trim_start().to_owned();
        while let Some(folded) = lines.next_if(|line| line.starts_with(char::is_whitespace)) {
            value.push_str(folded);
        }
        value.truncate(value.trim_end().len());
        let value = HeaderValue::from_str(&value).map_err(|_| "the header block has an invalid value")?;
        headers.append(name, value);
    }
    Ok(headers)
}

/// Returns the status and its text in the first line of a header block, which the server sends about a
/// request.
pub(crate) fn status(block: &[u8]) -> Option<(u16, &str)> {
    let line = std::str::from_utf8(block).ok()?.lines().next()?;
    let rest = line.strip_prefix(VERSION)?.trim();
    let (status, text) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((status.parse().ok()?, text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreadable(block: &'static [u8]) -> &'static str {
        match Headers::read(Some(Bytes::from_static(block))) {
            Headers::Unreadable { defect, block: kept } => {
                assert_eq!(kept, block);
                defect
            }
            Headers::Read(headers) => panic!("{headers:?}"),
        }
    }

    #[test]
    fn a_block_is_read_as_the_client_library_reads_it() {
        let block = b"NATS/1.0 503 Not Me\r\na: 1 \r\nb:2\r\n folded\r\na:3\r\nno-value:\r\n\r\n";
        let Headers::Read(headers) = Headers::read(Some(Bytes::from_static(block))) else { panic!() };
        let all = |name| Vec::from_iter(headers.get_all(name).map(HeaderValue::as_str));
        assert_eq!(all("a"), ["1", "3"]);
        assert_eq!(all("b"), ["2 folded"]);
        assert_eq!(all("no-value"), [""]);
        assert!(matches!(Headers::read(None), Headers::Read(headers) if headers.is_empty()));
    }

    #[test]
    fn what_cannot_be_read_is_kept_with_the_reason() {
        assert_eq!(unreadable(b"NATS/1.0\r\na: \xff\r\n\r\n"), "the header block is not UTF-8");
        assert_eq!(unreadable(b""), "the header block does not begin with its version");
        assert_eq!(unreadable(b"HTTP/1.1\r\n\r\n"), "the header block does not begin with its version");
        assert_eq!(unreadable(b"NATS/1.0\r\nabc\r\n\r\n"), "the header block has a line without a colon");
        assert_eq!(unreadable(b"NATS/1.0\r\na b: 1\r\n\r\n"), "the header block has an invalid name");
        assert_eq!(unreadable("NATS/1.0\r\né: 1\r\n\r\n".as_bytes()), "the header block has an invalid name");
        assert_eq!(unreadable(b"NATS/1.0\r\na: b\rc\r\n\r\n"), "the header block has an invalid value");
    }

    #[test]
    fn the_status_is_that_of_the_first_line() {
        assert_eq!(status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n"), Some((409, "Consumer Deleted")));
        assert_eq!(status(b"NATS/1.0 503\r\n\r\n"), Some((503, "")));
        for none in [&b"NATS/1.0\r\na: 1\r\n\r\n"[..], b"", b"\xff", b"NATS/1.0 x\r\n\r\n"] {
            assert_eq!(status(none), None);
        }
    }
}
