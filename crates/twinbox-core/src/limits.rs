//! The bounds of a message.
//!
//! A message beyond a bound is an error at publish, before anything is written. With these bounds every
//! message of the outbox fits into a NATS server's defaults (1 MiB with headers, 64 KiB of headers) and into
//! one EventBridge entry.

use std::time::Duration;

/// The most bytes of a payload, after a codec encoded it: 1 MiB less room for headers and attributes.
pub const PAYLOAD_BYTES_MAX: usize = 960 * 1024;
/// The most bytes of the payload of a message that cannot be read: as many as a message of SQS has at most.
pub const UNREADABLE_BYTES_MAX: usize = 1024 * 1024;
/// The most bytes of an event type: the longest `DetailType` of EventBridge.
pub const TYPE_BYTES_MAX: usize = 128;
/// The most bytes of an event id.
pub const ID_BYTES_MAX: usize = 255;
/// The most bytes of a source: the name of the service that publishes.
pub const SOURCE_BYTES_MAX: usize = 255;
/// The most bytes of a key.
pub const KEY_BYTES_MAX: usize = 255;
/// The most bytes of a subject: the entity that an event is about.
pub const SUBJECT_BYTES_MAX: usize = 1024;
/// The most bytes of a correlation id or a causation id.
pub const CORRELATION_BYTES_MAX: usize = 255;
/// The most bytes of a content type.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;
/// The most headers of a message: those of the application and those that a codec adds.
pub const HEADERS_MAX: usize = 32;
/// The most bytes of one header name.
pub const HEADER_NAME_BYTES_MAX: usize = 128;
/// The most bytes of all header names and values together.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// The most bytes of a trace state: as many as the W3C asks every system to pass on.
pub const TRACESTATE_BYTES_MAX: usize = 512;
/// The most bytes of an error text that is stored beside a message.
pub const ERROR_BYTES_MAX: usize = 2 * 1024;
/// The longest time that a message may be ahead of the moment when its broker stored it. An inbox keeps a
/// claim until the time of its message is past.
pub const TIME_AHEAD_MAX: Duration = Duration::from_secs(24 * 3600);
/// The longest duration of an option, a hundred years: it can be added to any time.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Returns the duration, or [`DURATION_MAX`] if it is longer.
#[doc(hidden)]
pub const fn bounded(duration: Duration) -> Duration {
    if duration.as_secs() < DURATION_MAX.as_secs() { duration } else { DURATION_MAX }
}

/// The most bytes of a consumer's or a destination's name.
pub const NAME_BYTES_MAX: usize = 120;
