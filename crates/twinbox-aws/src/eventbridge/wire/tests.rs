use super::*;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The years 0 to 9999 in microseconds.
const TIMES: std::ops::Range<i64> = -62_167_219_200_000_000..253_402_300_800_000_000;

fn message() -> Message {
    Message {
        id: "7".into(),
        source: "shop".into(),
        event_type: "orders.placed".into(),
        version: 2,
        key: Some("Zoë \"1\"".into()),
        subject: None,
        time: Timestamp::from_micros(1_789_000_000_123_456),
        sequence: Some(42),
        correlation_id: Some("c".into()),
        causation_id: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        content_type: message::JSON.into(),
        headers: vec![("Region".into(), "eu, ü".into()), ("ce-id".into(), "forged".into())],
        payload: Bytes::from_static(br#"{"cents": 4200.0,"cents":1}"#),
    }
}

fn encoded(message: &Message) -> EncodedEntry {
    encode("orders", 1000, message).unwrap()
}

fn detail_of(message: &Message) -> Value {
    serde_json::from_str(encoded(message).entry.detail().unwrap()).unwrap()
}

#[track_caller]
fn refused_for_good(message: &Message, code: &str) {
    let error = encode("orders", 1000, message).unwrap_err();
    assert_eq!((error.kind(), error.code()), (PublishErrorKind::RefusedForGood, code));
}

fn with_payload(payload: impl Into<Bytes>) -> Message {
    Message { payload: payload.into(), ..message() }
}

#[test]
fn an_event_holds_the_cloud_event_and_the_fields_for_rules() {
    let EncodedEntry { entry, bytes } = encoded(&message());
    assert_eq!((entry.source(), entry.detail_type()), (Some("shop"), Some("orders.placed")));
    assert_eq!(entry.event_bus_name(), Some("orders"));
    assert_eq!(entry.time().unwrap().as_nanos(), 1_789_000_000_123_456_000);
    let trace = "Root=1-0af76519-16cd43dd8448eb211c80319c;Parent=b7ad6b7169203331;Sampled=1";
    assert_eq!(entry.trace_header(), Some(trace));
    let detail = entry.detail().unwrap();
    // As EventBridge counts: 14 bytes for the time, then the UTF-8 bytes of each field.
    assert_eq!(bytes, 14 + "shop".len() + "orders.placed".len() + detail.len());
    assert!(detail.len() > detail.chars().count());
    assert_eq!(
        serde_json::from_str::<Value>(detail).unwrap(),
        json!({
            "specversion": "1.0",
            "id": "7",
            "source": "shop",
            "type": "orders.placed",
            "time": "2026-09-10T00:26:40.123456Z",
            "dataversion": "2",
            "sequence": "0000000000000000042",
            "partitionkey": "Zoë \"1\"",
            "correlationid": "c",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "twinboxheaders": r#"[["Region","eu, ü"]]"#,
            "data": {"cents": 1},
        })
    );
    assert!(detail.ends_with(r#","data":{"cents": 4200.0,"cents":1}}"#), "the payload is as it was written");
}

#[test]
fn a_binary_payload_becomes_base64_and_an_empty_one_is_left_out() {
    let binary = Message { content_type: "application/octet-stream".into(), ..with_payload(&b"\xFF\0"[..]) };
    let detail = detail_of(&binary);
    assert_eq!((&detail["data_base64"], &detail["data"]), (&json!("/wA="), &Value::Null));
    assert_eq!(detail["datacontenttype"], "application/octet-stream");
    let vendor =
        Message { content_type: "application/vnd.shop+JSON; v=1".into(), ..with_payload(&b"[1]"[..]) };
    assert_eq!(detail_of(&vendor)["data"], json!([1]));
    let empty = detail_of(&with_payload(&b""[..]));
    assert!(empty.get("data").is_none() && empty.get("data_base64").is_none());
    let headless = Message { headers: Vec::new(), ..message() };
    assert!(detail_of(&headless).get(HEADERS_EXTENSION).is_none());
}

#[test]
fn a_message_that_eventbridge_would_drop_or_refuse_is_not_sent() {
    for source in ["", "aws.shop", &"s".repeat(257)] {
        refused_for_good(&Message { source: source.into(), ..message() }, "eventbridge.source");
    }
    for event_type in ["", &"t".repeat(129)] {
        refused_for_good(&Message { event_type: event_type.into(), ..message() }, "eventbridge.detail_type");
    }
    for micros in [i64::MIN, TIMES.start - 1, TIMES.end, i64::MAX] {
        let time = Timestamp::from_micros(micros);
        refused_for_good(&Message { time, ..message() }, "eventbridge.time");
    }
    for micros in [TIMES.start, -1, TIMES.end - 1] {
        let time = Timestamp::from_micros(micros);
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        let sent = encoded(&Message { time, ..message() });
        assert_eq!(sent.entry.time().unwrap().as_nanos(), i128::from(micros) * 1000);
    }
    refused_for_good(&with_payload("{\"a\":NaN}"), "eventbridge.json");
    refused_for_good(&with_payload("\"\\ud800\""), "eventbridge.json_surrogate");
    refused_for_good(&with_payload("9223372036854775808"), "eventbridge.json_integer");
    refused_for_good(&with_payload(&b"\"\xFF\""[..]), "eventbridge.json_utf8");
    refused_for_good(&with_payload(vec![b' '; 2000]), "eventbridge.too_large");
}

#[test]
fn depth_is_counted_from_the_detail() {
    let deep = |depth| with_payload(["[".repeat(depth), "]".repeat(depth)].concat());
    assert!(encode("orders", 10_000, &deep(999)).is_ok());
    assert_eq!(encode("orders", 10_000, &deep(1000)).unwrap_err().code(), "eventbridge.json_depth");
}

#[test]
fn a_message_may_fill_a_request_exactly() {
    let message = message();
    let exact = encoded(&message).bytes;
    assert!(encode("orders", exact, &message).is_ok());
    assert_eq!(encode("orders", exact - 1, &message).unwrap_err().code(), "eventbridge.too_large");
}

/// Every part as long as the outbox allows, in characters that need no escape.
#[test]
fn the_longest_json_message_of_the_outbox_fits_a_request() {
    use twinbox_core::limits as l;
    let long = |bytes| Some("k".repeat(bytes));
    let payload = format!("\"{}\"", "p".repeat(l::PAYLOAD_BYTES_MAX - 2));
    let message = Message {
        key: long(l::KEY_BYTES_MAX),
        subject: long(l::SUBJECT_BYTES_MAX),
        correlation_id: long(l::CORRELATION_BYTES_MAX),
        causation_id: long(l::CORRELATION_BYTES_MAX),
        headers: vec![("h".into(), "v".repeat(l::HEADERS_BYTES_MAX - 1))],
        payload: payload.into(),
        ..message()
    };
    assert!(encode("orders", 1024 * 1024 - 4096, &message).is_ok());
}

#[test]
fn only_a_valid_trace_parent_becomes_a_trace_header() {
    let unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-02";
    assert!(trace_header(unsampled).unwrap().ends_with(";Sampled=0"));
    for bad in [
        "",
        "garbage",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    ] {
        assert_eq!(trace_header(bad), None, "{bad}");
    }
}

proptest! {
    /// Any row of any producer is refused, or becomes one JSON object.
    #[test]
    fn a_detail_is_always_an_object(
        key in any::<Option<String>>(),
        headers in any::<Vec<(String, String)>>(),
        traceparent in any::<Option<String>>(),
        payload in any::<Vec<u8>>(),
        json in any::<bool>(),
    ) {
        let content_type = if json { message::JSON } else { "text/plain" }.to_owned();
        let message = Message { key, headers, traceparent, content_type, ..with_payload(payload) };
        if let Ok(encoded) = encode("orders", 100_000, &message) {
            let detail: Value = serde_json::from_str(encoded.entry.detail().unwrap()).unwrap();
            prop_assert_eq!(detail["partitionkey"].as_str(), message.key.as_deref());
        }
    }
}
