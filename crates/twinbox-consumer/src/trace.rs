//! The span of a delivery, or of a batch of them.
use crate::{Outcome, status::label};
use tracing::Span;
#[cfg(feature = "opentelemetry")]
use tracing::field::Empty;
use twinbox_core::Message;

/// Around everything that is done with these messages. What a transition or a handler logs has its fields.
#[cfg(not(feature = "opentelemetry"))]
pub(crate) fn span<'a>(consumer: &str, mut messages: impl ExactSizeIterator<Item = &'a Message>) -> Span {
    let count = messages.len();
    let Some(message) = messages.next() else { return Span::none() };
    tracing::info_span!(
        "process",
        consumer,
        message_id = %message.message_id(),
        event_type = message.event_type,
        correlation_id = message.correlation_id,
        messages = (count > 1).then_some(count),
    )
}

/// The same under the names of OpenTelemetry, with a link to the span that each message was published in.
#[cfg(feature = "opentelemetry")]
pub(crate) fn span<'a>(consumer: &str, mut messages: impl ExactSizeIterator<Item = &'a Message>) -> Span {
    let count = messages.len();
    let Some(message) = messages.next() else { return Span::none() };
    let span = tracing::info_span!(
        "process",
        otel.name = format!("process {}", message.event_type),
        otel.kind = "consumer",
        messaging.operation.name = "process",
        messaging.operation.r#type = "process",
        messaging.consumer.group.name = consumer,
        messaging.message.id = %message.message_id(),
        messaging.message.conversation_id = message.correlation_id,
        messaging.batch.message_count = (count > 1).then_some(count),
        otel.status_code = Empty,
        error.r#type = Empty,
        event_type = message.event_type,
    );
    for message in std::iter::once(message).chain(messages) {
        if let Some(traceparent) = &message.traceparent {
            twinbox_core::trace::link(&span, traceparent);
        }
    }
    span
}

/// Tells the current span what became of a delivery.
pub(crate) fn ended(outcome: &Outcome) {
    use Outcome::{DeadLettered, Retried, Unavailable};
    let is_error = matches!(outcome, Retried { counted: true, .. } | DeadLettered { .. } | Unavailable);
    if cfg!(feature = "opentelemetry") && is_error {
        Span::current().record("otel.status_code", "ERROR").record("error.type", label(outcome));
    }
}
