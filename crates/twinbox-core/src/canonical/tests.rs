use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The canonical form, or none if there is none.
fn canonical_text(json: &str) -> Option<String> {
    canonical(json.as_bytes(), &[]).ok().map(|bytes| String::from_utf8(bytes).unwrap())
}

/// RFC 8785 writes numbers as floating point. Here they keep their exact value: an integer without zeros at
/// its end, and an exponent.
#[test]
fn equal_numbers_have_one_form_and_keep_their_exact_value() {
    for (spellings, expected) in [
        (&["1", "1.0", "1e0", "10e-1", "0.1E+1", "1.000"][..], "1"),
        (&["0", "-0", "0.0", "0e9", "-0.00e-7"], "0"),
        (&["1000", "1e3", "10.00e2"], "1e3"),
        (&["-2.50", "-25e-1", "-0.25e1"], "-25e-1"),
        (&["9007199254740993"], "9007199254740993"),
        (&["9007199254740992", "9.007199254740992e15"], "9007199254740992"),
        (&["0.1"], "1e-1"),
        (&["1e400"], "1e400"),
    ] {
        for spelling in spellings {
            assert_eq!(canonical_text(spelling).as_deref(), Some(expected), "{spelling}");
        }
    }
}

#[test]
fn spaces_escapes_and_the_order_of_members_do_not_matter() {
    let expected = r#"{"a":[true,false,null,{}],"b":{"c":"d","é":15e-1},"𐀀":[],"ﬀ":2}"#;
    let other = " {\n\"\\ufb00\":2.0, \"\\ud800\\udc00\" : [ ],\t\"b\":{\"\\u00e9\":1.5,\"c\":\"\\u0064\"},\
        \"a\":[true , false,null,{ }]}\r\n";
    assert_eq!(canonical_text(other).as_deref(), Some(expected));
}

/// The example of RFC 8785 §3.2.3: member names are sorted by UTF-16 code units.
#[test]
fn names_are_sorted_as_in_the_rfc() {
    let example = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh",
        "1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control",
        "\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let text = canonical_text(example).unwrap();
    let order = ["Carriage Return", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let places: Vec<_> = order.iter().map(|value| text.find(value).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
}

/// The strings of the example of RFC 8785 §3.2.2.
#[test]
fn strings_are_written_as_in_the_rfc() {
    let text = canonical_text(r#""\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/""#).unwrap();
    assert_eq!(text, "\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"");
}

#[test]
fn invalid_and_ambiguous_json_and_limits_are_refused() {
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(canonical_text(&deep(128)).is_some());
    for refused in [
        "",
        " ",
        "{",
        "[1,]",
        "[1 2]",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "01",
        "1.",
        ".5",
        "+1",
        "--1",
        "1e",
        "0x1",
        "NaN",
        "truE",
        "nul",
        "\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\t\"",
        "1 1",
        "{\"a\":1,\"a\":1}",
        "{\"a\":1,\"\\u0061\":2}",
        "\u{feff}1",
        "1e99999999999999999999",
        &deep(129),
        &deep(100_000),
    ] {
        assert_eq!(canonical_text(refused), None, "{}", &refused[..refused.len().min(40)]);
    }
    assert_eq!(canonical(b"\"\xff\"", &[]), Err(NoCanonicalForm));
}

#[test]
fn an_excluded_pointer_removes_only_the_member_that_it_names() {
    let excluded = ["/ts".to_owned(), "/a/0/b~1c".to_owned(), "/none".to_owned()];
    let form = |json: &str| canonical(json.as_bytes(), &excluded).unwrap();
    assert_eq!(form(r#"{"ts":1,"a":[{"b/c":2,"ts":3}]}"#), br#"{"a":[{"ts":3}]}"#);
    assert_eq!(canonical(br#"{"ts":1,"ts":2}"#, &excluded), Err(NoCanonicalForm));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    #[test]
    fn the_canonical_form_of_a_canonical_form_is_the_same(value in any_json()) {
        let once = canonical(value.to_string().as_bytes(), &[]).unwrap();
        prop_assert_eq!(canonical(&once, &[]).unwrap(), once);
    }

    #[test]
    fn different_values_have_different_forms(one in any_json(), other in any_json()) {
        let form = |value: &Value| canonical(serde_json::to_string_pretty(value).unwrap().as_bytes(), &[]);
        prop_assert_eq!(form(&one).unwrap() == form(&other).unwrap(), one == other);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = canonical(&bytes, &["/a".to_owned()]);
    }
}
