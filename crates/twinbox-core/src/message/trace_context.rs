//! The trace context of a message, as the W3C defines it.
use crate::limits;

/// A W3C trace context: the span that something belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace, the span and its flags.
    pub traceparent: String,
    /// What the systems of the trace add to it.
    pub tracestate: Option<String>,
}

impl TraceContext {
    /// Returns the trace context of two texts. `None`: the first one is no trace parent. A trace state that
    /// cannot be read is left out.
    pub fn new(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let tracestate = tracestate.filter(|text| is_tracestate(text)).map(str::to_owned);
        is_traceparent(traceparent).then(|| Self { traceparent: traceparent.to_owned(), tracestate })
    }
}

/// Returns whether the text is a W3C trace parent of version 00.
pub fn is_traceparent(text: &str) -> bool {
    let parts: Vec<&str> = text.splitn(5, '-').collect();
    let hex = |s: &str| s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let lengths: Vec<usize> = parts.iter().map(|p| p.len()).collect();
    lengths == [2, 32, 16, 2] && parts[0] == "00" && parts.iter().all(|p| hex(p))
}

/// Returns whether the text can be a W3C trace state: visible ASCII and spaces, and no longer than the bound.
pub fn is_tracestate(text: &str) -> bool {
    (1..=limits::TRACESTATE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}
