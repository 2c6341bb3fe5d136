//! The events of a service as an AsyncAPI document.
use super::Schema;
use crate::message::{self, attribute};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Where a document keeps the schemas that its messages share.
const SCHEMAS: &str = "/components/schemas";

/// Whether a service receives or sends the messages of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Receive,
    Send,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Send => "send",
        }
    }
}

/// Describes the events that a service publishes and handles, for teams that do not read its Rust: an
/// [AsyncAPI](https://www.asyncapi.com) 3.0 document with a JSON Schema (draft 7) of each payload.
///
/// A type of events is a channel, and a version of it is a message. Name each version that messages may
/// still have, retired ones too.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use twinbox_core::{DecodeError, Schema, event::AsyncApi};
/// #[derive(Serialize, Deserialize, schemars::JsonSchema)]
/// struct OrderPlaced {
///     /// In the smallest unit of the currency.
///     cents: i64,
/// }
/// # impl Schema for OrderPlaced {
/// #     const TYPE: &'static str = "orders.placed";
/// #     const VERSION: u32 = 1;
/// #     fn decode(_: u32, payload: &[u8]) -> Result<Self, DecodeError> {
/// #         Ok(serde_json::from_slice(payload)?)
/// #     }
/// #     fn versions() -> Vec<u32> {
/// #         vec![1]
/// #     }
/// # }
///
/// let document = AsyncApi::new("shop", "1.4.0").sends::<OrderPlaced>().document();
/// assert_eq!(document["operations"]["send.orders.placed"]["action"], "send");
/// let schema = &document["components"]["schemas"]["OrderPlaced"];
/// assert_eq!(schema["properties"]["cents"]["description"], "In the smallest unit of the currency.");
/// ```
///
/// In an application `#[derive(Event)]` implements [`Schema`].
#[derive(Debug)]
pub struct AsyncApi {
    title: String,
    version: String,
    nats_prefix: Option<String>,
    schemas: SchemaGenerator,
    messages: BTreeMap<(&'static str, u32), Value>,
    operations: BTreeSet<(Action, &'static str, u32)>,
}

impl AsyncApi {
    /// Begins the document of a service, in a version of its interface.
    pub fn new(title: impl Into<String>, version: impl Into<String>) -> Self {
        let mut settings = SchemaSettings::draft07();
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
        Self {
            title: title.into(),
            version: version.into(),
            nats_prefix: None,
            schemas: settings.into_generator(),
            messages: BTreeMap::new(),
            operations: BTreeSet::new(),
        }
    }

    /// Sets the prefix of the NATS subjects, as the relay's destination has it. The addresses of channels are
    /// then subjects. Otherwise they are the types, as in the `detail-type` of EventBridge.
    #[must_use]
    pub fn nats_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.nats_prefix = Some(prefix.into());
        self
    }

    /// Adds a version of an event that the service publishes.
    #[must_use]
    pub fn sends<S: Schema + JsonSchema>(self) -> Self {
        self.with::<S>(Action::Send)
    }

    /// Adds a version of an event that the service handles.
    #[must_use]
    pub fn receives<S: Schema + JsonSchema>(self) -> Self {
        self.with::<S>(Action::Receive)
    }

    fn with<S: Schema + JsonSchema>(mut self, action: Action) -> Self {
        let payload = self.schemas.subschema_for::<S>();
        self.messages.insert((S::TYPE, S::VERSION), payload.into());
        self.operations.insert((action, S::TYPE, S::VERSION));
        self
    }

    /// Returns the document as JSON.
    pub fn document(mut self) -> Value {
        let mut channels: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
        for &(kind, version) in self.messages.keys() {
            let message = json!({ "$ref": format!("#/components/messages/{}", message_name(kind, version)) });
            channels.entry(kind).or_default().insert(format!("v{version}"), message);
        }
        let mut operations: BTreeMap<(Action, &str), Vec<Value>> = BTreeMap::new();
        for &(action, kind, version) in &self.operations {
            let message = json!({ "$ref": format!("#/channels/{kind}/messages/v{version}") });
            operations.entry((action, kind)).or_default().push(message);
        }
        let channels = channels.into_iter().map(|(kind, messages)| (kind, self.channel(kind, messages)));
        let channels: BTreeMap<_, _> = channels.collect();
        let messages = self.messages.iter().map(|(&(kind, version), payload)| {
            (message_name(kind, version), message(kind, version, payload))
        });
        let messages: BTreeMap<_, _> = messages.collect();
        let operations = operations.into_iter().map(|((action, kind), messages)| {
            let channel = json!({ "$ref": format!("#/channels/{kind}") });
            let operation = json!({ "action": action.name(), "channel": channel, "messages": messages });
            (format!("{}.{kind}", action.name()), operation)
        });
        let operations: BTreeMap<_, _> = operations.collect();
        json!({
            "asyncapi": "3.0.0",
            "info": { "title": self.title, "version": self.version },
            "defaultContentType": message::JSON,
            "channels": channels,
            "operations": operations,
            "components": { "messages": messages, "schemas": self.schemas.take_definitions(true) },
        })
    }

    fn channel(&self, kind: &str, messages: Map<String, Value>) -> Value {
        let Some(prefix) = &self.nats_prefix else {
            return json!({ "address": kind, "messages": messages });
        };
        json!({
            "address": format!("{prefix}.{{partition}}.{kind}"),
            "parameters": { "partition": { "description": "A number that the key decides." } },
            "messages": messages,
        })
    }
}

fn message_name(kind: &str, version: u32) -> String {
    format!("{kind}.v{version}")
}

/// The headers are those of a message in NATS: CloudEvents in binary mode.
fn message(kind: &str, version: u32, payload: &Value) -> Value {
    let header = |name: &str| format!("ce-{name}");
    let text = |description: &str| json!({ "type": "string", "description": description });
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, schema) in [
        (attribute::SPEC_VERSION, json!({ "const": "1.0" })),
        (attribute::ID, text("The id of the event. With the source it identifies the message.")),
        (attribute::SOURCE, text("The service that published the event.")),
        (attribute::TYPE, json!({ "const": kind })),
        (attribute::TIME, json!({ "type": "string", "format": "date-time" })),
    ] {
        properties.insert(header(name), schema);
        required.push(header(name));
    }
    let number =
        json!({ "const": version.to_string(), "description": "The version of the payload. Left out for 1." });
    properties.insert(header(attribute::VERSION), number);
    if version != 1 {
        required.push(header(attribute::VERSION));
    }
    for (name, description) in [
        (attribute::KEY, "Messages with the same key arrive in the order of publishing."),
        (attribute::SUBJECT, "The entity that the event is about."),
        (attribute::SEQUENCE, "The place in the publisher's log, in 19 digits."),
        (
            attribute::CORRELATION_ID,
            "The id of the process that the event belongs to. Left out if it is the event's own id.",
        ),
        (attribute::CAUSATION_ID, "The id of the message that caused the event."),
        (attribute::TRACEPARENT, "The trace context (W3C)."),
    ] {
        properties.insert(header(name), text(description));
    }
    json!({
        "name": kind,
        "title": format!("{kind}, version {version}"),
        "contentType": message::JSON,
        "correlationId": { "location": format!("$message.header#/{}", header(attribute::CORRELATION_ID)) },
        "headers": { "type": "object", "properties": properties, "required": required },
        "payload": payload,
    })
}
