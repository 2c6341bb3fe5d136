use super::{DefectKind as D, *};
use proptest::prelude::*;

fn defect(payload: &[u8]) -> Option<DefectKind> {
    check(payload, 1000).err().map(|defect| defect.kind)
}

#[test]
fn valid_json_passes() {
    let good = [
        "{}",
        "[]",
        " null ",
        "true",
        "\"\"",
        "-0",
        "0.5e-7",
        "1e400",
        "{\"a\":[1,{\"b\":[[],{}]}],\"a\":\"\\ud83d\\ude00 \\\" \\/ ü\"}",
        "[\n1 ,\t2\r]",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551616.0",
    ];
    for text in good {
        assert_eq!(check(text.as_bytes(), 1000), Ok(text));
    }
}

#[test]
fn a_payload_that_eventbridge_refuses_is_found() {
    let table: &[(&[u8], DefectKind)] = &[
        (b"", D::NotJson),
        (b"NaN", D::NotJson),
        (b"-Infinity", D::NotJson),
        (b"{\"a\":NaN}", D::NotJson),
        (b"{,}", D::NotJson),
        (b"{\"a\":1,}", D::NotJson),
        (b"{\"a\"}", D::NotJson),
        (b"{a:1}", D::NotJson),
        (b"{1:1}", D::NotJson),
        (b"[1,]", D::NotJson),
        (b"[1}", D::NotJson),
        (b"[", D::NotJson),
        (b"]", D::NotJson),
        (b"{} {}", D::NotJson),
        (b"01", D::NotJson),
        (b"1.", D::NotJson),
        (b"1e", D::NotJson),
        (b"+1", D::NotJson),
        (b"truer", D::NotJson),
        (b"\"", D::NotJson),
        (b"\"\n\"", D::NotJson),
        (b"\"\\x\"", D::NotJson),
        (b"\"\\u12\"", D::NotJson),
        (b"\"\\u+123\"", D::NotJson),
        (b"\xEF\xBB\xBF{}", D::NotJson),
        (b"\"\xFF\"", D::NotUtf8),
        (b"\"\xED\xA0\x80\"", D::NotUtf8),
        (b"\"\\ud800\"", D::LoneSurrogate),
        (b"\"\\udc00\"", D::LoneSurrogate),
        (b"\"\\ud800\\ud800\"", D::LoneSurrogate),
        (b"\"\\ud800x\"", D::LoneSurrogate),
        (b"{\"\\uDBFF\":1}", D::LoneSurrogate),
        (b"9223372036854775808", D::Integer),
        (b"[-9223372036854775809]", D::Integer),
        (b"{\"a\":123456789012345678901234567890}", D::Integer),
    ];
    for (payload, kind) in table {
        assert_eq!(defect(payload), Some(*kind), "{}", String::from_utf8_lossy(payload));
    }
    assert_eq!(check(b"{\"a\":\"\\ud800\"}", 9), Err(Defect { kind: D::LoneSurrogate, at: 6 }));
}

#[test]
fn depth_is_bounded_and_a_million_brackets_overflow_no_stack() {
    let nested = |depth| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert_eq!(defect(&nested(1000)), None);
    assert_eq!(defect(&nested(1001)), Some(D::TooDeep));
    assert_eq!(defect(&nested(1_000_000)), Some(D::TooDeep));
    assert_eq!(defect(&b"{\"a\":".repeat(1_000_000)), Some(D::TooDeep));
    assert_eq!(check(b"1", 0), Ok("1"));
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn output_of_serde_passes(value in value()) {
        prop_assert_eq!(defect(&serde_json::to_vec(&value).unwrap()), None);
        prop_assert_eq!(defect(&serde_json::to_vec_pretty(&value).unwrap()), None);
    }

    /// A payload that passes is JSON to others too.
    #[test]
    fn serde_reads_a_payload_that_passes(text in "[\\[\\]{}:,\"\\\\u0-9a-f.eE+\\- tru]{0,24}") {
        let passes = check(text.as_bytes(), 1000).is_ok();
        let reads = serde_json::from_str::<serde_json::Value>(&text);
        // Others read large integers as floating point, and refuse floating point beyond the range.
        match reads {
            Ok(_) => prop_assert!(passes || defect(text.as_bytes()) == Some(D::Integer), "{}", text),
            Err(e) => prop_assert!(!passes || e.to_string().contains("out of range"), "{}: {}", text, e),
        }
    }

    #[test]
    fn no_payload_makes_the_check_panic(bytes in any::<Vec<u8>>()) {
        let _ = check(&bytes, 1000);
    }
}
