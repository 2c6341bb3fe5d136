//! Frames of the NATS protocol that a server sends. Header blocks stay bytes.
use bytes::{Buf as _, Bytes, BytesMut};

/// The most bytes of a frame's first line: the `INFO` of a large cluster.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// The most bytes of a message: as many as the server can be configured to take.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Info(Bytes),
    Message(RawMessage),
    Ping,
    Pong,
    Ok,
    /// An error that the server reports, such as a denied subject.
    Error(String),
}

#[derive(Debug, PartialEq)]
pub(super) struct RawMessage {
    pub(super) subject: String,
    pub(super) subscription: u64,
    pub(super) reply: Option<String>,
    pub(super) header_block: Option<Bytes>,
    pub(super) payload: Bytes,
}

/// Bytes that are no frame of a NATS server.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server sent bytes that are no frame of the NATS protocol")
    }
}

impl std::error::Error for Malformed {}

/// Takes the first frame off the buffer. None: it is not complete.
pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, Malformed> {
    let Some(line_end) = line_end_of(buffer) else {
        return if buffer.len() > LINE_BYTES_MAX { Err(Malformed) } else { Ok(None) };
    };
    let line = &buffer[..line_end];
    let (word, rest) = line.split_at(line.iter().position(|b| *b == b' ').unwrap_or(line.len()));
    match word {
        b"MSG" | b"HMSG" => {
            let head = Head::read(rest, word == b"HMSG")?;
            Ok(take_message(buffer, line_end, head).map(Frame::Message))
        }
        _ => {
            let frame = match word {
                b"INFO" => Frame::Info(Bytes::copy_from_slice(rest.trim_ascii())),
                b"PING" => Frame::Ping,
                b"PONG" => Frame::Pong,
                b"+OK" => Frame::Ok,
                b"-ERR" => Frame::Error(String::from_utf8_lossy(rest).trim().trim_matches('\'').to_owned()),
                _ => return Err(Malformed),
            };
            buffer.advance(line_end + 2);
            Ok(Some(frame))
        }
    }
}

fn line_end_of(buffer: &[u8]) -> Option<usize> {
    let searched = &buffer[..buffer.len().min(LINE_BYTES_MAX)];
    searched.windows(2).position(|two| two == b"\r\n")
}

/// The first line of a message.
struct Head {
    subject: String,
    subscription: u64,
    reply: Option<String>,
    header_bytes: Option<usize>,
    bytes: usize,
}

impl Head {
    /// Reads `<subject> <subscription> [reply] [header bytes] <bytes>`. A subject may hold any bytes.
    fn read(words: &[u8], has_headers: bool) -> Result<Self, Malformed> {
        let mut words = Vec::from_iter(words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()));
        let mut number = || {
            let word = std::str::from_utf8(words.pop()?).ok()?;
            word.parse::<usize>().ok().filter(|bytes| *bytes <= MESSAGE_BYTES_MAX)
        };
        let bytes = number().ok_or(Malformed)?;
        let header_bytes = if has_headers { Some(number().ok_or(Malformed)?) } else { None };
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        let (subject, subscription, reply) = match words[..] {
            [subject, subscription] => (subject, subscription, None),
            [subject, subscription, reply] => (subject, subscription, Some(text(reply))),
            _ => return Err(Malformed),
        };
        let subject = text(subject);
        let subscription = std::str::from_utf8(subscription).ok().and_then(|text| text.parse().ok());
        if header_bytes.is_some_and(|of_headers| of_headers > bytes) {
            return Err(Malformed);
        }
        Ok(Self { subject, subscription: subscription.ok_or(Malformed)?, reply, header_bytes, bytes })
    }
}

fn take_message(buffer: &mut BytesMut, line_end: usize, head: Head) -> Option<RawMessage> {
    let whole = line_end + 2 + head.bytes + 2;
    if buffer.len() < whole {
        buffer.reserve(whole - buffer.len());
        return None;
    }
    buffer.advance(line_end + 2);
    let header_block = head.header_bytes.map(|bytes| buffer.split_to(bytes).freeze());
    let payload = buffer.split_to(head.bytes - head.header_bytes.unwrap_or(0)).freeze();
    buffer.advance(2);
    let Head { subject, subscription, reply, .. } = head;
    Some(RawMessage { subject, subscription, reply, header_block, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SENT: &[u8] = b"INFO {\"a\":1} \r\nPING\r\nMSG in.1 7 5\r\nhello\r\n+OK\r\n\
        HMSG e\xff.x 8 $JS.ACK.1 13 15\r\nNATS/1.0\xff\r\n\r\nok\r\n-ERR 'Slow Consumer'\r\nPONG\r\n";

    fn message(head: (&str, u64, Option<&str>), block: Option<&'static [u8]>, text: &str) -> Frame {
        let (subject, subscription, reply) = head;
        Frame::Message(RawMessage {
            subject: subject.to_owned(),
            subscription,
            reply: reply.map(str::to_owned),
            header_block: block.map(Bytes::from_static),
            payload: Bytes::from(text.to_owned()),
        })
    }

    /// Takes the frames of pieces that arrive one after the other.
    fn frames(pieces: &[&[u8]]) -> Vec<Frame> {
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(frame) = take(&mut buffer).unwrap() {
                frames.push(frame);
            }
        }
        frames
    }

    #[test]
    fn every_frame_is_read_wherever_the_network_cuts_it() {
        let expected = [
            Frame::Info(Bytes::from_static(b"{\"a\":1}")),
            Frame::Ping,
            message(("in.1", 7, None), None, "hello"),
            Frame::Ok,
            message(("e\u{fffd}.x", 8, Some("$JS.ACK.1")), Some(b"NATS/1.0\xff\r\n\r\n"), "ok"),
            Frame::Error("Slow Consumer".to_owned()),
            Frame::Pong,
        ];
        for cut in 0..SENT.len() {
            let (first, second) = SENT.split_at(cut);
            assert_eq!(frames(&[first, second]), expected, "cut at {cut}");
        }
        assert_eq!(frames(&Vec::from_iter(SENT.chunks(1))), expected);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bad in [
            "GET / HTTP/1.1\r\n",
            "\r\n",
            "MSG a 1\r\n",
            "MSG a x 1\r\n",
            "MSG a 1 2 3 4 5\r\n",
            "HMSG a 1 9 8\r\n",
            "MSG a 1 99999999999\r\n",
        ] {
            assert_eq!(take(&mut BytesMut::from(bad)), Err(Malformed), "{bad:?}");
        }
        assert_eq!(take(&mut BytesMut::from(&vec![b'a'; LINE_BYTES_MAX + 1][..])), Err(Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take(&mut buffer) {}
        }
    }
}
