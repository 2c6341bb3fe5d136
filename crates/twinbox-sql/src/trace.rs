//! The span of a publish.
use tracing::Span;
use twinbox_core::Draft;
#[cfg(feature = "opentelemetry")]
use twinbox_core::trace;

/// Returns the span for publishing these drafts: a child of the current span if that one is recorded, and
/// none otherwise. Messages carry its context.
#[cfg(feature = "opentelemetry")]
pub(crate) fn publish_span(drafts: &[Draft]) -> Span {
    let (Some(first), Some(_)) = (drafts.first(), trace::current()) else { return Span::none() };
    let event_type = &first.fields.event_type;
    let name = format!("publish {event_type}");
    let span = tracing::info_span!("publish", event_type, otel.name = name, otel.kind = "producer");
    trace::describe(&span, "twinbox", "publish", "create");
    if drafts.len() > 1 {
        trace::attribute(&span, "messaging.batch.message_count", drafts.len().to_string());
    }
    span
}

#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn publish_span(_: &[Draft]) -> Span {
    Span::none()
}
