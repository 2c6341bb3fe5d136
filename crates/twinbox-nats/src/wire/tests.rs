use super::*;
use crate::subject;
use proptest::prelude::*;
use twinbox_core::destination::DestinationSecret;

const ORIGIN: Origin<'_> = Origin { stream: "EVENTS", sequence: 7, stored_at: Timestamp::from_micros(5) };

fn message() -> Message {
    Message {
        id: "order-1".into(),
        source: "shop".into(),
        event_type: "orders.placed".into(),
        version: 2,
        key: Some("Zoë \"50%\"".into()),
        subject: None,
        time: Timestamp::from_micros(1_789_000_000_123_456),
        sequence: Some(42),
        correlation_id: Some("operation-1".into()),
        causation_id: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        content_type: "application/json".into(),
        headers: vec![("region".into(), "eu, ü".into()), ("region".into(), "us".into())],
        payload: Bytes::from_static(b"{}"),
    }
}

fn encoded(message: &Message) -> Result<HeaderMap, InvalidHeader> {
    let signer = Signer::new(&DestinationSecret::from_bytes([7; 32]), "events");
    encode(&Outgoing::first(message), &signer)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap().as_str()
}

fn decoded(headers: &HeaderMap, payload: &Bytes) -> (Message, Option<String>) {
    with_subject("events.3.orders.placed", |subject| {
        decode(subject, &Headers::Read(headers.clone()), payload, ORIGIN)
    })
}

fn with_subject<T>(text: &str, decode: impl FnOnce(&StoredSubject<'_>) -> T) -> T {
    decode(&StoredSubject::unordered(text, "events"))
}

#[track_caller]
fn defect(headers: &HeaderMap, payload: &Bytes, why: &str) -> Message {
    let (message, defect) = decoded(headers, payload);
    assert_eq!(defect.unwrap(), why);
    assert_eq!((message.source.as_str(), message.id.as_str()), ("nats:EVENTS", "7@5"));
    assert_eq!(message.time, ORIGIN.stored_at);
    message
}

#[test]
fn attributes_are_percent_encoded_headers() {
    let headers = encoded(&message()).unwrap();
    assert_eq!(text(&headers, "ce-specversion"), "1.0");
    assert_eq!(text(&headers, "ce-partitionkey"), "Zo%C3%AB%20%2250%25%22");
    assert_eq!(text(&headers, "ce-sequence"), "0000000000000000042");
    assert_eq!(text(&headers, "Nats-Msg-Id").len(), 22);
    assert_eq!(headers.get("traceparent"), None);
    assert_eq!(text(&headers, "region"), "eu, ü");
    assert!(headers.get("ce-subject").is_none());
    assert_eq!(decoded(&headers, &message().payload), (message(), None));
}

#[test]
fn a_plain_traceparent_is_read_unless_the_event_has_one() {
    let ours = message().traceparent;
    let theirs = "00-11111111111111111111111111111111-2222222222222222-00";
    let mut headers = encoded(&message()).unwrap();
    headers.insert("traceparent", theirs);
    let read = |headers: &HeaderMap| decoded(headers, &message().payload).0.traceparent;
    assert_eq!(read(&headers), ours);
    let mut headers = encoded(&Message { traceparent: None, ..message() }).unwrap();
    headers.insert("traceparent", theirs);
    assert_eq!(read(&headers).as_deref(), Some(theirs));
    headers.insert("tracestate", "vendor=1");
    let message = decoded(&headers, &message().payload).0;
    assert_eq!(message.tracestate(), Some("vendor=1"));
}

#[test]
fn a_trace_state_is_an_attribute() {
    let mut traced = message();
    traced.headers.push(("tracestate".into(), "vendor=a b".into()));
    let headers = encoded(&traced).unwrap();
    assert_eq!((text(&headers, "ce-tracestate"), headers.get("tracestate")), ("vendor=a%20b", None));
    assert_eq!(decoded(&headers, &traced.payload), (traced, None));
}

#[test]
fn every_attribute_has_a_header_name() {
    for (attribute, name) in &HEADER_NAMES {
        assert_eq!(name.to_string(), format!("ce-{attribute}"));
    }
    assert_eq!(attribute_name("other").unwrap().to_string(), "ce-other");
}

#[test]
fn a_header_never_becomes_a_second_line() {
    let with = |name: &str, value: &str| {
        encoded(&Message { headers: vec![(name.into(), value.into())], ..message() })
    };
    for (name, value) in
        [("x", "a\r\nNats-Msg-Id: 1"), ("x", "\n"), ("x: y\r\nz", ""), ("", ""), ("ü", ""), (" x", "")]
    {
        assert_eq!(with(name, value), Err(InvalidHeader), "{name:?} {value:?}");
    }
    for reserved in ["nats-msg-id", "Nats-Rollup", "CE-id", "Content-Type", "Tracestate"] {
        let headers = with(reserved, "forged").unwrap();
        assert!(headers.iter().all(|(_, values)| values.iter().all(|v| v.as_str() != "forged")));
    }
}

#[test]
fn an_attribute_is_found_under_a_name_in_any_case() {
    let mut headers = encoded(&message()).unwrap();
    headers.insert("Ce-Id", "other");
    assert_eq!(decoded(&headers, &message().payload).0.id, "order-1");
    let without = headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name) != "ce-id");
    let headers = HeaderMap::from_iter(without.map(|(name, values)| (name.clone(), values[0].clone())));
    assert_eq!(decoded(&headers, &message().payload).0.id, "other");
}

#[test]
fn a_header_block_that_cannot_be_read_is_kept_in_hexadecimal_digits() {
    let read = |block: Bytes| {
        with_subject("events.3.orders.placed", |subject| {
            decode(subject, &Headers::read(Some(block)), &message().payload, ORIGIN)
        })
    };
    let (message, defect) = read(Bytes::from_static(b"NATS/1.0\r\na: \xff\r\n\r\n"));
    assert_eq!(defect.as_deref(), Some("the header block is not UTF-8"));
    assert_eq!((message.source.as_str(), message.id.as_str()), ("nats:EVENTS", "7@5"));
    assert_eq!(message.header("twinbox-header-block"), Some("4e4154532f312e300d0a613a20ff0d0a0d0a"));
    assert_eq!(message.payload, self::message().payload);
    let (message, _) = read(Bytes::from(vec![0xff; 64 * 1024]));
    assert_eq!(message.check_limits(), Ok(()));
    assert!(message.header("twinbox-header-block").unwrap().starts_with("ffff"));
}

#[test]
fn an_invalid_cloud_event_has_a_defect() {
    let payload = Bytes::from_static(b"anything");
    let bare = HeaderMap::new();
    let message = defect(&bare, &payload, "the CloudEvents attribute `specversion` is missing");
    assert_eq!((message.event_type.as_str(), &message.payload), ("orders.placed", &payload));
    assert!(decoded(&HeaderMap::new(), &payload).1.is_some());

    let with = |name: &str, value: &str| {
        let mut headers = encoded(&self::message()).unwrap();
        headers.insert(name, value);
        headers
    };
    let message = defect(&with("ce-id", "%FF"), &payload, "the header `ce-id` is not UTF-8");
    assert_eq!(message.event_type, "orders.placed");
    assert_eq!(message.headers.len(), 2);
    defect(&with("ce-id", "a%00"), &payload, "the CloudEvents attribute `id` holds a control character");
    defect(
        &with("ce-id", &"a".repeat(256)),
        &payload,
        "the CloudEvents attribute `id` has more than 255 bytes",
    );
    let message =
        defect(&with("ce-type", "a.*"), &payload, "the CloudEvents attribute `type` is not a type name");
    assert_eq!(message.event_type, "orders.placed");
    let problem = "the message has more than 32 headers, or its headers have more than 16384 bytes";
    defect(&with("big", &"a".repeat(16_384)), &payload, problem);
    let why = "the payload has more than 983040 bytes; of its 983041 bytes the first 4096 are kept, and \
               message 7 of the stream `EVENTS` has all";
    defect(&with("x", ""), &vec![0; 983_041].into(), why);
}

/// The stream has the rest, and the substitute says how long the whole was.
#[test]
fn of_a_long_message_that_cannot_be_read_the_beginning_is_kept() {
    let bare = Headers::Read(HeaderMap::new());
    let kept = |headers: &Headers, bytes: usize| {
        let payload = Bytes::from(vec![b'x'; bytes]);
        let (message, defect) =
            with_subject("events.3.orders.placed", |subject| decode(subject, headers, &payload, ORIGIN));
        assert_eq!(message.check_limits(), Ok(()));
        let cut = message.header("twinbox-cut").map(str::to_owned);
        (message.payload.len(), cut, defect.unwrap())
    };
    let (length, cut, defect) = kept(&bare, 4096);
    assert_eq!((length, cut.as_deref()), (4096, None));
    assert!(!defect.contains("kept"), "{defect}");
    let block = Headers::read(Some(Bytes::from(vec![0xff; 64 * 1024])));
    let mut many = encoded(&message()).unwrap();
    many.insert("ce-id", "%FF");
    many.insert("big", "a".repeat(16_384).as_str());
    for headers in [bare, block, Headers::Read(many)] {
        for (bytes, whole) in [(4097, "4097"), (3 * 1024 * 1024, "3145728")] {
            let (length, cut, defect) = kept(&headers, bytes);
            assert_eq!((length, cut.as_deref()), (4096, Some(whole)));
            let place =
                format!("of its {whole} bytes the first 4096 are kept, and message 7 of the stream `EVENTS`");
            assert!(defect.contains(&place), "{defect}");
        }
    }
}

/// Else a publisher could keep an operator from redriving a message.
#[test]
fn the_mark_of_a_payload_that_is_cut_does_not_travel() {
    let mut headers = encoded(&message()).unwrap();
    headers.insert("twinbox-cut", "9");
    let (message, defect) = decoded(&headers, &message().payload);
    assert!(defect.is_none() && !message.is_cut());
    let marked = Message { headers: vec![("twinbox-cut".into(), "9".into())], ..message };
    assert!(encoded(&marked).unwrap().get("twinbox-cut").is_none());
}

/// The server has checked the subject, and nobody the headers.
#[test]
fn the_headers_say_what_the_subject_says_or_the_message_has_a_defect() {
    let (headers, payload) = (encoded(&message()).unwrap(), message().payload);
    let read =
        |subject: StoredSubject<'_>| decode(&subject, &Headers::Read(headers.clone()), &payload, ORIGIN);
    let right = subject::of_message("events", 16, &message()).unwrap();
    assert_eq!(read(StoredSubject::partitioned(&right, "events", 16)), (message(), None));
    for (wrong, event_type, why) in [
        ("events.3.reviews.written", "reviews.written", "`type` is not the type of the subject"),
        ("events.3.orders", "orders", "`type` is not the type of the subject"),
        ("events.orders.placed", "placed", "`type` is not the type of the subject"),
        ("other.3.orders.placed", "unknown", "the subject is not below `events`"),
        ("events.3", "unknown", "the subject is not below `events`"),
        ("eventsX.3.orders.placed", "unknown", "the subject is not below `events`"),
    ] {
        let (substitute, defect) = read(StoredSubject::unordered(wrong, "events"));
        assert!(defect.as_ref().is_some_and(|defect| defect.contains(why)), "{wrong}: {defect:?}");
        assert_eq!((&*substitute.event_type, &*substitute.source), (event_type, "nats:EVENTS"));
    }
    let partition = |n: u32| format!("events.{n}.orders.placed");
    let read_in = |n| read(StoredSubject::partitioned(&partition(n), "events", 16)).1;
    let refused = (0..17).filter(|n| read_in(*n).is_some_and(|why| why.contains("another partition")));
    assert_eq!(refused.count(), 16);
}

#[test]
fn the_mark_of_a_replay_of_a_message_with_a_defect_counts_for_nothing() {
    let mut headers = encoded(&message()).unwrap();
    headers.insert("twinbox-replay", "00112233445566778899aabbccddeeff");
    headers.insert("twinbox-replay-for", "billing.all");
    assert!(decoded(&headers, &Bytes::new()).0.reprocess_target().is_some());
    headers.insert("ce-id", "%FF");
    assert!(decoded(&headers, &Bytes::new()).0.reprocess_target().is_none());
}

/// The wire format of percent coding, spelled out: a library must agree with it byte for byte.
mod reference {
    use std::fmt::Write as _;

    pub(super) fn percent_encode(text: &str) -> String {
        let mut encoded = String::new();
        for byte in text.bytes() {
            if matches!(byte, b'!'..=b'~') && byte != b'"' && byte != b'%' {
                encoded.push(char::from(byte));
            } else {
                write!(encoded, "%{byte:02X}").unwrap();
            }
        }
        encoded
    }

    /// None if the decoded bytes are not UTF-8.
    pub(super) fn percent_decode(text: &str) -> Option<String> {
        let mut decoded = Vec::new();
        let mut rest = text.as_bytes();
        while let [first, tail @ ..] = rest {
            let hex = |digit: u8| char::from(digit).to_digit(16).map(|n| n as u8);
            let byte = match rest {
                [b'%', high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
                _ => None,
            };
            decoded.push(byte.unwrap_or(*first));
            rest = if byte.is_some() { &rest[3..] } else { tail };
        }
        String::from_utf8(decoded).ok()
    }
}

fn percent_decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

#[test]
fn a_percent_sign_without_two_digits_is_kept() {
    for (text, decoded) in [
        ("100%", "100%"),
        ("%zz", "%zz"),
        ("%4", "%4"),
        ("%4%41", "%4A"),
        ("%%41", "%A"),
        ("%41%c3%bc", "Aü"),
        ("", ""),
    ] {
        assert_eq!(percent_decode(text).as_deref(), Some(decoded));
        assert_eq!(reference::percent_decode(text).as_deref(), Some(decoded));
    }
}

#[test]
fn every_ascii_character_is_encoded_as_the_wire_format_says() {
    for byte in 0..=0x7F_u8 {
        let text = char::from(byte).to_string();
        assert_eq!(percent_encode(Cow::Borrowed(&text)), reference::percent_encode(&text), "{byte:#x}");
    }
}

fn plain(max: usize) -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>().prop_filter("no control", |c| !c.is_control()), 1..max / 4)
        .prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn attributes_come_back_as_they_went(
        (id, source, content_type) in (plain(255), plain(255), plain(255)),
        (key, subject) in (proptest::option::of(plain(255)), proptest::option::of(plain(1024))),
        correlation_id in plain(255).prop_map(Some),
        (version, sequence) in (any::<u32>(), any::<Option<u64>>()),
        micros in 0..253_402_300_799_000_000_i64,
        payload in any::<Vec<u8>>(),
    ) {
        let message = Message {
            id, source, content_type, key, subject, correlation_id, version, sequence,
            time: Timestamp::from_micros(micros), payload: payload.into(), ..message()
        };
        let headers = encoded(&message).unwrap();
        for (_, values) in headers.iter() {
            prop_assert!(values.iter().all(|v| !v.as_str().contains(['\r', '\n', '\0'])));
        }
        prop_assert_eq!(decoded(&headers, &message.payload), (message, None));
    }

    #[test]
    fn percent_coding_is_the_wire_format(text in any::<String>(), encoded in "[%0-9a-fA-Fz\u{e9} ]{0,24}") {
        prop_assert_eq!(percent_encode(Cow::Borrowed(&text)), reference::percent_encode(&text));
        for text in [&text, &encoded] {
            prop_assert_eq!(percent_decode(text), reference::percent_decode(text));
        }
    }

    /// No row makes encoding panic, and no header makes decoding panic.
    #[test]
    fn garbage_makes_nothing_panic(
        (name, value) in any::<(String, String)>(),
        attribute in "ce-[a-z]{1,12}",
    ) {
        let _ = encoded(&Message { id: value.clone(), headers: vec![(name, value.clone())], ..message() });
        let mut headers = encoded(&message()).unwrap();
        if let (Ok(name), Ok(value)) = (HeaderName::from_str(&attribute), HeaderValue::from_str(&value)) {
            headers.insert(name, value);
        }
        let _ = decoded(&headers, &Bytes::new());
    }
}
