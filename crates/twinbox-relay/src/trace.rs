//! The spans of sends.
//!
//! A message has one if its producer recorded the publish. The span links to that of the publish, which may
//! have ended days ago, and has a trace of its own.
use twinbox_core::{Destination, PublishError, destination::Receipt};
use twinbox_log::Entry;

/// The target of the spans.
#[cfg(feature = "opentelemetry")]
pub(crate) const TARGET: &str = "twinbox_relay::send";

/// The spans of the messages of one send, by place. They end with the results of the messages.
pub(crate) struct SendSpans {
    #[cfg(feature = "opentelemetry")]
    open: Vec<tracing::Span>,
}

#[cfg(not(feature = "opentelemetry"))]
impl SendSpans {
    pub(crate) fn start(_: &dyn Destination, _: &[Entry]) -> Self {
        Self {}
    }

    pub(crate) fn end(&mut self, _: usize, _: &Result<Receipt, PublishError>) {}
}

#[cfg(feature = "opentelemetry")]
impl SendSpans {
    pub(crate) fn start(destination: &dyn Destination, entries: &[Entry]) -> Self {
        let mut open = Vec::with_capacity(entries.len());
        for entry in entries {
            let is_sampled = twinbox_core::trace::is_sampled(&entry.message);
            let span = if is_sampled { span(destination, &entry.message) } else { tracing::Span::none() };
            if is_sampled && span.is_disabled() {
                // Nobody takes the spans of sends.
                return Self { open: Vec::new() };
            }
            open.push(span);
        }
        Self { open }
    }

    pub(crate) fn end(&mut self, place: usize, result: &Result<Receipt, PublishError>) {
        let Some(span) = self.open.get_mut(place) else { return };
        let span = std::mem::replace(span, tracing::Span::none());
        if let Err(error) = result {
            span.record("otel.status_code", "ERROR").record("error.type", error.code());
        }
    }
}

#[cfg(feature = "opentelemetry")]
fn span(destination: &dyn Destination, message: &twinbox_core::Message) -> tracing::Span {
    use tracing::field::Empty;
    use twinbox_core::trace;

    let span = tracing::info_span!(
        target: TARGET,
        parent: None,
        "send",
        otel.name = format!("send {}", message.event_type),
        otel.kind = "producer",
        otel.status_code = Empty,
        error.r#type = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    trace::describe(&span, destination.system(), "send", "send");
    trace::describe_message(&span, message);
    trace::attribute(&span, "messaging.destination.name", destination.id().to_owned());
    trace::link(&span, message);
    span
}
