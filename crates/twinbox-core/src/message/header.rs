//! Names of Twinbox's own headers, which travel with a message like those of the application.

/// The header with the name of the `PayloadCodec` that encoded the payload.
pub const CODEC: &str = "twinbox-codec";
/// The header with the content type of the payload before it was encoded, if it is not JSON.
pub const CONTENT_TYPE: &str = "twinbox-content-type";
/// The header with the id of the replay that sends the message again, as 32 hexadecimal digits.
pub const REPLAY: &str = "twinbox-replay";
/// The header with the one consumer that reprocesses the message. Other consumers acknowledge it without
/// running a handler.
pub const REPLAY_FOR: &str = "twinbox-replay-for";
/// The header that is `true` if the payload was redacted. See
/// [`Message::is_redacted`](super::Message::is_redacted).
pub const REDACTED: &str = "twinbox-redacted";
/// The header with the header block of a message whose headers could not be read, as hexadecimal digits. Of a
/// long one it holds the beginning.
pub const BLOCK: &str = "twinbox-header-block";
/// The header with the number of bytes of a payload of which only the beginning is kept. It does not travel:
/// see [`Message::is_cut`](super::Message::is_cut).
pub const CUT: &str = "twinbox-cut";
/// The header with the trace state in the store, where few messages have one. It travels as the attribute of
/// the same name. See [`Message::tracestate`](super::Message::tracestate).
pub const TRACESTATE: &str = "tracestate";
