//! Trace contexts of messages, for OpenTelemetry (feature `opentelemetry`).

/// Returns the W3C trace context of the current span, if the span is recorded.
#[cfg(not(feature = "opentelemetry"))]
pub fn current() -> Option<String> {
    None
}

#[cfg(feature = "opentelemetry")]
pub use recorded::{attribute, current, link};

#[cfg(feature = "opentelemetry")]
mod recorded {
    use crate::message::is_traceparent;
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    /// Returns the W3C trace context of the current span, if the span is recorded.
    pub fn current() -> Option<String> {
        let context = Span::current().context();
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid().then(|| format!("00-{}-{}-{:02x}", ids.trace_id(), ids.span_id(), ids.trace_flags()))
    }

    /// Sets an attribute of an OpenTelemetry span without writing the attribute to the log.
    pub fn attribute(span: &Span, name: &'static str, value: String) {
        span.set_attribute(name, value);
    }

    /// Links a span to the span in which the message was published.
    ///
    /// It is a link and not a parent, because that span may have ended long ago.
    pub fn link(span: &Span, traceparent: &str) {
        if let Some(published_in) = parse(traceparent) {
            span.add_link(published_in);
        }
    }

    fn parse(traceparent: &str) -> Option<SpanContext> {
        if !is_traceparent(traceparent) {
            return None;
        }
        let (trace, span) = (TraceId::from_hex(&traceparent[3..35]), SpanId::from_hex(&traceparent[36..52]));
        let flags = TraceFlags::new(u8::from_str_radix(&traceparent[53..55], 16).ok()?);
        let context = SpanContext::new(trace.ok()?, span.ok()?, flags, true, TraceState::default());
        context.is_valid().then_some(context)
    }
}
