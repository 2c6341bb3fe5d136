//! The span of a delivery or a batch.
use crate::outcome::DeliveryOutcome;
use tracing::{Span, field::Empty};
use twinbox_core::Message;

/// Returns the span of a delivery or a batch: from the claim to the acknowledgement.
#[cfg_attr(
    not(feature = "opentelemetry"),
    expect(unused_variables, reason = "an attribute of OpenTelemetry")
)]
pub(crate) fn span<'a>(
    system: &'static str,
    consumer: &str,
    mut messages: impl ExactSizeIterator<Item = &'a Message>,
) -> Span {
    let count = messages.len();
    let Some(message) = messages.next() else { return Span::none() };
    let span = tracing::info_span!(
        "process",
        consumer,
        message_id = %message.message_id(),
        event_type = message.event_type,
        correlation_id = message.correlation_id,
        messages = (count > 1).then_some(count),
        otel.name = Empty,
        otel.kind = Empty,
        otel.status_code = Empty,
        error.r#type = Empty,
    );
    #[cfg(feature = "opentelemetry")]
    otel::describe(&span, system, consumer, message, count, messages);
    span
}

/// Returns the span of a handler: what the application does in a delivery or a batch. Some formats of the log
/// show the fields of the innermost span alone, so it has those of the delivery.
pub(crate) fn handler_span(consumer: &str, messages: &[&Message]) -> Span {
    let Some(message) = messages.first().filter(|_| cfg!(feature = "opentelemetry")) else {
        return Span::none();
    };
    tracing::info_span!(
        "handle",
        consumer,
        message_id = %message.message_id(),
        event_type = message.event_type,
        correlation_id = message.correlation_id,
        messages = (messages.len() > 1).then_some(messages.len()),
        otel.name = format!("handle {}", message.event_type),
    )
}

/// Records the outcome of a delivery in the current span.
pub(crate) fn record_outcome(outcome: &DeliveryOutcome) {
    use DeliveryOutcome::{DeadLettered, Retried, Unavailable};
    let is_error = matches!(outcome, Retried { counted: true, .. } | DeadLettered { .. } | Unavailable);
    if cfg!(feature = "opentelemetry") && is_error {
        Span::current().record("otel.status_code", "ERROR").record("error.type", outcome.label());
    }
}

#[cfg(feature = "opentelemetry")]
mod otel {
    use tracing::Span;
    use twinbox_core::{Message, trace};

    /// Sets the names of OpenTelemetry, and links the span to the span that published each message.
    pub(super) fn describe<'a>(
        span: &Span,
        system: &'static str,
        consumer: &str,
        first: &'a Message,
        count: usize,
        others: impl Iterator<Item = &'a Message>,
    ) {
        span.record("otel.name", format!("process {}", first.event_type)).record("otel.kind", "consumer");
        let attribute = |name, value: String| trace::attribute(span, name, value);
        trace::describe(span, system, "process", "process");
        trace::describe_message(span, first);
        attribute("messaging.consumer.group.name", consumer.to_owned());
        if count > 1 {
            attribute("messaging.batch.message_count", count.to_string());
        }
        std::iter::once(first).chain(others).for_each(|message| trace::link(span, message));
    }
}
