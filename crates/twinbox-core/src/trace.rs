//! Trace contexts of messages, for OpenTelemetry (feature `opentelemetry`).
use crate::message::TraceContext;

/// Returns the trace context of the current span, if the span is recorded.
#[cfg(not(feature = "opentelemetry"))]
pub fn current() -> Option<TraceContext> {
    None
}

#[cfg(feature = "opentelemetry")]
pub use recorded::{attribute, current, describe, describe_message, is_sampled, link};

#[cfg(feature = "opentelemetry")]
mod recorded {
    use super::TraceContext;
    use crate::message::{Message, is_traceparent};
    use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    /// Returns the trace context of the current span, if the span is recorded.
    pub fn current() -> Option<TraceContext> {
        let context = Span::current().context();
        let span = context.span();
        let ids = span.span_context();
        if !ids.is_valid() {
            return None;
        }
        let traceparent = format!("00-{}-{}-{:02x}", ids.trace_id(), ids.span_id(), ids.trace_flags());
        TraceContext::new(&traceparent, Some(&ids.trace_state().header()))
    }

    /// Sets an attribute of an OpenTelemetry span without writing the attribute to the log.
    pub fn attribute(span: &Span, name: &'static str, value: String) {
        span.set_attribute(name, value);
    }

    /// Sets the attributes that every span of messaging has: the system, and the operation with its type.
    pub fn describe(span: &Span, system: &'static str, operation: &'static str, kind: &'static str) {
        span.set_attribute("messaging.system", system);
        span.set_attribute("messaging.operation.name", operation);
        span.set_attribute("messaging.operation.type", kind);
    }

    /// Sets the attributes of a span that belongs to this message.
    pub fn describe_message(span: &Span, message: &Message) {
        span.set_attribute("messaging.message.id", message.message_id().to_string());
        if let Some(id) = &message.correlation_id {
            span.set_attribute("messaging.message.conversation_id", id.clone());
        }
    }

    /// Returns whether the producer of the message recorded its span.
    pub fn is_sampled(message: &Message) -> bool {
        context_of(message).is_some_and(|context| context.is_sampled())
    }

    /// Links a span to the span in which the message was published, if the message names one.
    ///
    /// It is a link and not a parent, because that span may have ended long ago.
    pub fn link(span: &Span, message: &Message) {
        if let Some(published_in) = context_of(message) {
            span.add_link(published_in);
        }
    }

    fn context_of(message: &Message) -> Option<SpanContext> {
        let traceparent = message.traceparent.as_deref().filter(|text| is_traceparent(text))?;
        let (trace, span) = (TraceId::from_hex(&traceparent[3..35]), SpanId::from_hex(&traceparent[36..52]));
        let flags = TraceFlags::new(u8::from_str_radix(&traceparent[53..55], 16).ok()?);
        let state = message.tracestate().and_then(|text| text.parse::<TraceState>().ok()).unwrap_or_default();
        let context = SpanContext::new(trace.ok()?, span.ok()?, flags, true, state);
        context.is_valid().then_some(context)
    }
}
