//! What a handler's transaction knows about its delivery.
use crate::catalog::Catalog;
use std::{collections::HashMap, sync::Arc};
use twinbox_core::{Message, MessageId, draft::Fields, id, message::TraceContext};
use uuid::Uuid;

/// The message that caused a published event.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) message: MessageId,
    pub(crate) correlation: Option<String>,
    pub(crate) trace: Option<TraceContext>,
    /// Whether a replay sent the message to be handled again.
    pub(crate) is_replay: bool,
}

impl Cause {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            message: message.message_id(),
            correlation: message.correlation_id.clone(),
            trace: message.traceparent.as_deref().and_then(|t| TraceContext::new(t, message.tracestate())),
            is_replay: message.reprocess_target().is_some(),
        }
    }
}

/// How many events were published.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Events without an id of their own, by cause, type and key.
    same: HashMap<(MessageId, String, Option<String>), u32>,
    all: u32,
}

/// The ids of events that are published without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// The same in every run.
    Derived,
    /// New in every run.
    Fresh,
}

/// The facts about a delivery that its handler's transaction needs to publish: its message, consumer and kind
/// of run.
#[derive(Debug)]
pub struct Scope {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) cause: Cause,
    pub(crate) consumer: String,
    pub(crate) is_dry_run: bool,
    ids: Ids,
    /// The transaction of a batch, without a message of it that causes what is published.
    pub(crate) is_of_batch: bool,
    counts: Counts,
    /// Whether readers in this process may have something new to read after the commit. They find what a
    /// handler inserts by SQL with their next look.
    pub(crate) wakes_readers: bool,
    depth: u32,
    /// Savepoints entered and not left. Stays above zero when a savepoint's future is dropped.
    open: u32,
    /// Whether contention was undone with a savepoint. The transaction is whole after it.
    pub(crate) has_undone_contention: bool,
}

impl Scope {
    pub(crate) fn new(catalog: Arc<Catalog>, consumer: &str, cause: Cause) -> Self {
        Self {
            catalog,
            cause,
            consumer: consumer.to_owned(),
            is_dry_run: false,
            ids: Ids::Derived,
            is_of_batch: false,
            counts: Counts::default(),
            wakes_readers: false,
            depth: 0,
            open: 0,
            has_undone_contention: false,
        }
    }

    /// The scope of a cause that is no message, such as a request.
    pub(crate) fn of_operation(catalog: Arc<Catalog>, id: Uuid) -> Self {
        let (message, correlation) = (MessageId::from_uuid(id), Some(id.to_string()));
        let cause = Cause { message, correlation, trace: None, is_replay: false };
        Self { ids: Ids::Fresh, ..Self::new(catalog, "", cause) }
    }

    /// Fills the gaps of a draft: the same id in every run that publishes the same, and the context of the
    /// handled message.
    pub(crate) fn inherit(&mut self, fields: &mut Fields) {
        self.counts.all += 1;
        self.wakes_readers = true;
        if self.ids == Ids::Derived {
            if fields.id.is_none() {
                fields.id = Some(self.derive_id(&fields.event_type, fields.key.as_deref()));
            }
            fields.causation_id.get_or_insert_with(|| self.cause.message.to_string());
        }
        fields.correlation_id = fields.correlation_id.take().or_else(|| self.cause.correlation.clone());
        fields.trace_or(self.cause.trace.clone());
    }

    fn derive_id(&mut self, event_type: &str, key: Option<&str>) -> String {
        let same = (self.cause.message, event_type.to_owned(), key.map(str::to_owned));
        let nth = self.counts.same.entry(same).or_default();
        *nth += 1;
        id::derived_event_id(&self.catalog.service, self.cause.message, &self.consumer, event_type, key, *nth)
    }

    /// How many events were published.
    pub(crate) fn published(&self) -> u32 {
        self.counts.all
    }

    /// The present counts, for [`reset`](Self::reset).
    pub(crate) fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Goes back to earlier counts, because the events since were not published.
    pub(crate) fn reset(&mut self, counts: Counts) {
        self.counts = counts;
    }

    pub(crate) fn enter(&mut self) -> Nested {
        self.depth += 1;
        self.open += 1;
        Nested { depth: self.depth, counts: self.counts.clone() }
    }

    /// Events published inside a savepoint that was rolled back do not count.
    pub(crate) fn leave(&mut self, nested: Nested, is_kept: bool) {
        self.depth = nested.depth - 1;
        self.open -= 1;
        if !is_kept {
            self.counts = nested.counts;
        }
    }

    pub(crate) fn has_abandoned_savepoint(&self) -> bool {
        self.open != 0
    }
}

/// A savepoint that was entered.
pub(crate) struct Nested {
    pub(crate) depth: u32,
    counts: Counts,
}
