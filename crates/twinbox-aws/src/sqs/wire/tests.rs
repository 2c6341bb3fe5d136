use super::*;
use crate::eventbridge::wire;
use proptest::prelude::*;
use serde_json::{Value, json};

const ORIGIN: Origin<'static> =
    Origin { queue: "billing", message_id: "7", sent_at: Timestamp::from_micros(1_789_000_000_000_000) };

fn message() -> Message {
    let time = Timestamp::from_micros(1_789_000_000_123_456);
    let message =
        Message::placeholder("o-1".into(), "shop".into(), time, Bytes::from_static(b"{ \"n\": 1.0 }"));
    Message {
        event_type: "orders.placed".into(),
        version: 2,
        key: Some("Käufer".into()),
        sequence: Some(42),
        correlation_id: Some("c".into()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        content_type: "application/json".into(),
        headers: vec![("region".into(), "eu \"x\"".into())],
        ..message
    }
}

/// The body that a rule sends for a published message.
fn through_a_rule(message: &Message) -> String {
    let entry = wire::encode("orders", 1024 * 1024, message).unwrap().entry;
    format!(
        r#"{{"version":"0","id":"e-1","detail-type":{},"source":{},"account":"1",
        "time":"2026-01-01T00:00:00Z","region":"eu-west-1","resources":[],"detail":{}}}"#,
        json!(entry.detail_type()),
        json!(entry.source()),
        entry.detail().unwrap()
    )
}

fn readable(body: &str) -> Message {
    let (message, defect) = decode(body, ORIGIN);
    assert_eq!(defect, None);
    message
}

#[test]
fn a_published_message_arrives_byte_for_byte() {
    let sent = message();
    assert_eq!(readable(&through_a_rule(&sent)), sent);
    let detail = wire::encode("orders", 1024 * 1024, &sent).unwrap().entry.detail.unwrap();
    assert_eq!(readable(&detail), sent, "a rule may send the detail alone");
    let redacted = Message {
        payload: Bytes::new(),
        headers: vec![("twinbox-redacted".into(), "true".into())],
        ..message()
    };
    assert!(readable(&through_a_rule(&redacted)).is_redacted());
}

/// AWS has checked the envelope, and nobody the detail.
#[test]
fn a_cloud_event_says_what_its_envelope_says_or_it_has_a_defect() {
    let body = through_a_rule(&message());
    for (said, other, why) in [
        (r#""detail-type":"orders.placed""#, r#""detail-type":"reviews.written""#, "`type` is not"),
        (r#""source":"shop","account""#, r#""source":"bank","account""#, "`source` is not"),
        (r#""source":"shop","account""#, r#""account""#, "`source` is not"),
    ] {
        assert!(body.contains(said), "{body}");
        let (substitute, defect) = decode(&body.replace(said, other), ORIGIN);
        assert!(defect.as_ref().is_some_and(|defect| defect.contains(why)), "{defect:?}");
        assert_eq!(substitute.source, "sqs:billing");
    }
}

#[test]
fn the_mark_of_a_replay_counts_inside_an_envelope_alone() {
    let mut marked = message();
    for (name, value) in
        [("twinbox-replay", "00112233445566778899aabbccddeeff"), ("twinbox-replay-for", "billing")]
    {
        marked.headers.push((name.into(), value.into()));
    }
    assert!(readable(&through_a_rule(&marked)).reprocess_target().is_some());
    let detail = wire::encode("orders", 1024 * 1024, &marked).unwrap().entry.detail.unwrap();
    assert!(readable(&detail).reprocess_target().is_none());
}

proptest! {
    #[test]
    fn any_payload_arrives_byte_for_byte(payload: Vec<u8>, text in "[a-z]{1,8}/[a-z+]{1,8}") {
        let sent = Message { payload: payload.into(), content_type: text, ..message() };
        prop_assume!(!is_json(&sent.content_type));
        prop_assert_eq!(readable(&through_a_rule(&sent)), sent);
    }

    #[test]
    fn no_body_makes_decoding_panic(body: String) {
        decode(&body, ORIGIN);
    }
}

#[test]
fn an_event_of_another_publisher_is_read_by_its_envelope() {
    let body = json!({
        "version": "0", "id": "e-1", "detail-type": "orders.shipped", "source": "com.example.depot",
        "account": "1", "time": "2026-01-01T00:00:00Z", "region": "eu-west-1", "resources": [],
        "detail": {"parcel": 7}
    });
    let message = readable(&body.to_string());
    assert_eq!(
        (&*message.id, &*message.source, &*message.event_type),
        ("e-1", "com.example.depot", "orders.shipped")
    );
    assert_eq!((&message.payload[..], message.version, message.key), (&b"{\"parcel\":7}"[..], 1, None));
}

#[test]
fn a_foreign_cloud_event_is_read_by_the_specification() {
    let event = json!({
        "specversion": "1.0", "id": 7, "source": "depot", "type": "a.b", "time": "2026-01-01T00:00:00Z",
        "datacontenttype": "text/plain", "data": "line\n", "subject": null
    });
    let message = readable(&event.to_string());
    assert_eq!((&*message.id, &message.payload[..], message.subject), ("7", &b"line\n"[..], None));
}

/// The queue does not have it any more.
#[test]
fn all_of_a_message_that_cannot_be_read_is_kept() {
    let body = "x".repeat(1024 * 1024);
    let (message, defect) = decode(&body, ORIGIN);
    assert!(defect.is_some() && !message.is_cut());
    assert_eq!(message.payload, body);
}

#[test]
fn an_unreadable_message_is_kept_with_the_reason() {
    let with = |name: &str, value: Value| {
        let mut event = json!({
            "specversion": "1.0", "id": "1", "source": "s", "type": "a.b", "time": "2026-01-01T00:00:00Z"
        });
        event[name] = value;
        event.to_string()
    };
    for (body, why) in [
        (String::new(), "not a JSON object"),
        ("[]".to_owned(), "not a JSON object"),
        ("{}".to_owned(), "`specversion` is missing"),
        (with("id", json!({})), "`id` is missing"),
        (with("type", json!("EC2 Instance")), "`type` is not a type name"),
        (with("time", json!("now")), "`time` cannot be read"),
        (with("data_base64", json!("%")), "not base64"),
        (with("twinboxheaders", json!("[1]")), "not a list of pairs"),
        (with("partitionkey", json!("k".repeat(300))), "`partitionkey` has more than 255 bytes"),
        (
            with("twinboxheaders", json!(format!("[[\"a\", {:?}]]", "v".repeat(20_000)))),
            "more than 16384 bytes",
        ),
    ] {
        let (message, defect) = decode(&body, ORIGIN);
        let defect = defect.unwrap_or_else(|| panic!("{body}: {message:?}"));
        assert!(defect.contains(why), "{body}: {defect}");
        assert_eq!(
            (&*message.id, &*message.source, &message.payload[..]),
            ("7", "sqs:billing", body.as_bytes())
        );
    }
}
