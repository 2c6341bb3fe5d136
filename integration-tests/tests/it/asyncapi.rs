//! The AsyncAPI document of a service.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use twinbox::{Draft, Event, Message, event::AsyncApi};

/// An order is placed.
#[derive(Serialize, Deserialize, JsonSchema, Event)]
#[event(type = "orders.placed", version = 2, key = order_id, previous = v1::OrderPlaced)]
struct OrderPlaced {
    order_id: i64,
    lines: Vec<Line>,
    note: Option<String>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Line {
    sku: String,
    cents: i64,
}

/// A retired version may have the same name.
mod v1 {
    use super::{Deserialize, Event, JsonSchema};

    #[derive(Deserialize, JsonSchema, Event)]
    #[event(type = "orders.placed", version = 1, retired)]
    pub(super) struct OrderPlaced {
        pub(super) order_id: i64,
    }
}

impl From<v1::OrderPlaced> for OrderPlaced {
    fn from(old: v1::OrderPlaced) -> Self {
        Self { order_id: old.order_id, lines: Vec::new(), note: None }
    }
}

#[derive(Serialize, Deserialize, JsonSchema, Event)]
#[event(type = "payments.taken", version = 1)]
struct PaymentTaken {
    order_id: i64,
}

fn document() -> Value {
    AsyncApi::new("shop", "1.4.0")
        .nats_prefix("shop")
        .sends::<OrderPlaced>()
        .sends::<v1::OrderPlaced>()
        .receives::<PaymentTaken>()
        .document()
}

/// The part of the document that a reference leads to.
fn resolve<'d>(document: &'d Value, value: &'d Value) -> &'d Value {
    let Some(reference) = value["$ref"].as_str() else { return value };
    let pointer = reference.strip_prefix('#').unwrap();
    let found = document.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"));
    resolve(document, found)
}

fn each<'d>(value: &'d Value, see: &mut impl FnMut(&'d Value)) {
    see(value);
    match value {
        Value::Object(map) => map.values().for_each(|value| each(value, see)),
        Value::Array(values) => values.iter().for_each(|value| each(value, see)),
        _ => {}
    }
}

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn each_reference_of_a_document_leads_to_its_place() {
    let document = document();
    let mut references = 0;
    each(&document, &mut |value| {
        resolve(&document, value);
        references += usize::from(value["$ref"].is_string());
    });
    assert!(references > 10, "{document:#}");
    assert_eq!(names(&document["channels"]), BTreeSet::from(["orders.placed", "payments.taken"]));
    assert_eq!(document["channels"]["orders.placed"]["address"], "shop.{partition}.orders.placed");
    assert_eq!(document["operations"]["receive.payments.taken"]["action"], "receive");
    let sent = document["operations"]["send.orders.placed"]["messages"].as_array().unwrap();
    assert_eq!(sent.len(), 2);
}

/// Versions of a type share their Rust name, and not their schema.
#[test]
fn each_version_has_the_schema_of_its_payload() {
    let document = document();
    let payload = |version: &str| {
        let message = resolve(&document, &document["channels"]["orders.placed"]["messages"][version]);
        resolve(&document, &message["payload"])
    };
    assert_eq!(names(&payload("v1")["properties"]), BTreeSet::from(["order_id"]));
    assert_eq!(payload("v2")["description"], "An order is placed.");
    assert_eq!(payload("v2")["required"], json!(["order_id", "lines"]));
    let line = resolve(&document, &payload("v2")["properties"]["lines"]["items"]);
    assert_eq!(line["properties"]["cents"]["type"], "integer");
    let event = OrderPlaced {
        order_id: 7,
        lines: vec![Line { sku: "a".to_owned(), cents: 5 }],
        note: Some(String::new()),
    };
    let written = serde_json::to_value(event).unwrap();
    assert_eq!(names(&written), names(&payload("v2")["properties"]));
    assert_eq!(names(&written["lines"][0]), names(&line["properties"]));
}

/// A message has each required header, and the document describes each header of the message.
#[test]
fn the_headers_of_a_message_are_those_of_its_document() {
    let document = document();
    let event = OrderPlaced { order_id: 7, lines: Vec::new(), note: None };
    let event = Draft::of(&event).unwrap().correlation_id("c").subject("s");
    let message: Message = event.into_message("shop");
    let headers = &document["components"]["messages"]["orders.placed.v2"]["headers"];
    let described = names(&headers["properties"]);
    let written: BTreeSet<_> = message.attributes().map(|(name, _)| format!("ce-{name}")).collect();
    for name in &written {
        assert!(described.contains(&**name), "{name}");
    }
    for name in headers["required"].as_array().unwrap() {
        assert!(written.contains(name.as_str().unwrap()), "{name}");
    }
    let sure = |name: &str| headers["properties"][name]["const"].as_str().map(str::to_owned);
    for (name, value) in message.attributes() {
        let constant = sure(&format!("ce-{name}"));
        assert!(constant.is_none_or(|constant| constant == value), "{name}");
    }
    assert_eq!(sure("ce-dataversion").as_deref(), Some("2"));
}
