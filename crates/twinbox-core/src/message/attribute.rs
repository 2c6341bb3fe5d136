//! Names of the CloudEvents attributes that Twinbox reads and writes.

/// The version of CloudEvents that every message names: always `1.0`.
pub const SPEC_VERSION: &str = "specversion";
/// The CloudEvents name of [`Message::id`](super::Message::id).
pub const ID: &str = "id";
/// The CloudEvents name of [`Message::source`](super::Message::source).
pub const SOURCE: &str = "source";
/// The CloudEvents name of [`Message::event_type`](super::Message::event_type).
pub const TYPE: &str = "type";
/// The CloudEvents name of [`Message::version`](super::Message::version).
pub const VERSION: &str = "dataversion";
/// The CloudEvents name of [`Message::key`](super::Message::key).
pub const KEY: &str = "partitionkey";
/// The CloudEvents name of [`Message::subject`](super::Message::subject).
pub const SUBJECT: &str = "subject";
/// The CloudEvents name of [`Message::time`](super::Message::time).
pub const TIME: &str = "time";
/// The CloudEvents name of [`Message::sequence`](super::Message::sequence), padded with zeros to 19 digits.
pub const SEQUENCE: &str = "sequence";
/// The CloudEvents name of [`Message::correlation_id`](super::Message::correlation_id).
pub const CORRELATION_ID: &str = "correlationid";
/// The CloudEvents name of [`Message::causation_id`](super::Message::causation_id).
pub const CAUSATION_ID: &str = "causationid";
/// The CloudEvents name of [`Message::traceparent`](super::Message::traceparent).
pub const TRACEPARENT: &str = "traceparent";
/// The CloudEvents name of [`Message::tracestate`](super::Message::tracestate).
pub const TRACESTATE: &str = "tracestate";
/// The CloudEvents name of [`Message::content_type`](super::Message::content_type).
pub const CONTENT_TYPE: &str = "datacontenttype";
