//! What a handler's transaction knows about the delivery it runs for.
use crate::sql::Statements;
use std::{collections::HashMap, sync::Arc};
use twinbox_core::{Message, MessageId, draft::Fields, id};
use uuid::Uuid;

/// The message that caused what is published.
#[derive(Debug, Clone)]
pub(crate) struct Cause {
    pub(crate) message: MessageId,
    pub(crate) correlation: Option<String>,
    pub(crate) traceparent: Option<String>,
}

impl Cause {
    pub(crate) fn of(message: &Message) -> Self {
        Self {
            message: message.message_id(),
            correlation: message.correlation_id.clone(),
            traceparent: message.traceparent.clone(),
        }
    }
}

/// What was published.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// How often each (cause, type, key) was without an id of its own.
    same: HashMap<(MessageId, String, Option<String>), u32>,
    all: u32,
}

/// Which ids are given to what is published without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// The same in every run.
    Derived,
    Fresh,
}

#[derive(Debug)]
pub struct Scope {
    pub(crate) statements: Arc<Statements>,
    pub(crate) cause: Cause,
    pub(crate) consumer: String,
    pub(crate) is_dry_run: bool,
    ids: Ids,
    /// The transaction of a batch: which of its messages causes what is published was not said.
    pub(crate) is_of_batch: bool,
    counts: Counts,
    depth: u32,
    /// Savepoints entered and not left. Stays above zero when a savepoint's future is dropped.
    open: u32,
}

impl Scope {
    pub(crate) fn new(statements: Arc<Statements>, consumer: &str, cause: Cause) -> Self {
        Self {
            statements,
            cause,
            consumer: consumer.to_owned(),
            is_dry_run: false,
            ids: Ids::Derived,
            is_of_batch: false,
            counts: Counts::default(),
            depth: 0,
            open: 0,
        }
    }

    /// Of what nobody published, such as a request.
    pub(crate) fn of_operation(statements: Arc<Statements>, id: Uuid) -> Self {
        let (message, correlation) = (MessageId::from_uuid(id), Some(id.to_string()));
        let cause = Cause { message, correlation, traceparent: None };
        Self { ids: Ids::Fresh, ..Self::new(statements, "", cause) }
    }

    /// Fills in what the draft leaves open: the same id in every run that publishes the same, and the
    /// context of the handled message.
    pub(crate) fn inherit(&mut self, fields: &mut Fields) {
        self.counts.all += 1;
        if self.ids == Ids::Derived {
            if fields.id.is_none() {
                fields.id = Some(self.derive_id(&fields.event_type, fields.key.as_deref()));
            }
            fields.causation_id.get_or_insert_with(|| self.cause.message.to_string());
        }
        fields.correlation_id = fields.correlation_id.take().or_else(|| self.cause.correlation.clone());
        fields.traceparent = fields.traceparent.take().or_else(|| self.cause.traceparent.clone());
    }

    fn derive_id(&mut self, event_type: &str, key: Option<&str>) -> String {
        let same = (self.cause.message, event_type.to_owned(), key.map(str::to_owned));
        let nth = self.counts.same.entry(same).or_default();
        *nth += 1;
        id::caused(&self.statements.service, self.cause.message, &self.consumer, event_type, key, *nth)
    }

    /// How many events were published so far.
    pub(crate) fn published(&self) -> u32 {
        self.counts.all
    }

    /// What was published so far, to go back to if what comes next is not.
    pub(crate) fn counts(&self) -> Counts {
        self.counts.clone()
    }

    pub(crate) fn reset(&mut self, counts: Counts) {
        self.counts = counts;
    }

    pub(crate) fn enter(&mut self) -> Nested {
        self.depth += 1;
        self.open += 1;
        Nested { depth: self.depth, counts: self.counts.clone() }
    }

    /// Events published inside a savepoint that was rolled back do not count.
    pub(crate) fn leave(&mut self, nested: Nested, kept: bool) {
        self.depth = nested.depth - 1;
        self.open -= 1;
        if !kept {
            self.counts = nested.counts;
        }
    }

    pub(crate) fn savepoint_abandoned(&self) -> bool {
        self.open != 0
    }
}

pub(crate) struct Nested {
    pub(crate) depth: u32,
    counts: Counts,
}
