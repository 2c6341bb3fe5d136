//! The bounds of a message. What breaks one is an error at publish, before anything is written.
//!
//! They are chosen so that whatever the outbox accepts fits a NATS server's defaults (1 MiB with headers,
//! 64 KiB of headers) and one EventBridge entry.

/// Bytes of a payload, as a codec leaves it if there is one: 1 MiB less room for headers and attributes.
pub const PAYLOAD_BYTES_MAX: usize = 960 * 1024;
/// Bytes of an event type, the length that EventBridge takes as `DetailType`.
pub const TYPE_BYTES_MAX: usize = 128;
/// Bytes of an event id.
pub const ID_BYTES_MAX: usize = 255;
/// Bytes of a source, which is the name of the service that publishes.
pub const SOURCE_BYTES_MAX: usize = 255;
/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 255;
/// Bytes of a subject, the entity that an event is about.
pub const SUBJECT_BYTES_MAX: usize = 1024;
/// Bytes of a correlation id or a causation id.
pub const CORRELATION_BYTES_MAX: usize = 255;
/// Bytes of a content type.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// Number of headers of an application's own, with those that a codec adds.
pub const HEADERS_MAX: usize = 32;
/// Bytes of one header name.
pub const HEADER_NAME_BYTES_MAX: usize = 128;
/// Bytes of all header names and values together.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of an error text that is stored beside a message.
pub const ERROR_BYTES_MAX: usize = 2 * 1024;
/// Bytes of a consumer's or a destination's name.
pub const NAME_BYTES_MAX: usize = 120;
