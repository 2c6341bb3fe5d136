//! What becomes of a message by the answer of its destination.
use crate::{
    Relay,
    breaker::Circuit,
    flight::{Ended, Flight, Silence},
    gate::Gate,
};
use std::time::{Duration, Instant};
use twinbox_core::{PublishError, PublishErrorKind, crash, retry};
use twinbox_sql::{
    Dialect,
    log::{Entry, Parked, Reader},
};

/// Delays up to this are waited for in place; for longer ones a message is parked.
const IN_PLACE_MAX: Duration = Duration::from_secs(1);
/// How soon a message is sent again that was not answered because too much was under way.
const SLOW_DELAY: Duration = Duration::from_millis(100);

impl<DB: Dialect> Relay<DB> {
    /// Takes note of an answer. An error says that the destination is down; `silent` is what may say so.
    pub(crate) fn settle(
        &self,
        reader: &mut Reader<DB>,
        ended: Ended,
        flight: &mut Flight,
        silent: &mut Vec<(Entry, PublishError)>,
        circuit: &mut Circuit,
        gate: &mut Gate,
    ) -> Result<(), PublishError> {
        use PublishErrorKind as K;
        let (destination, Ended { entry, result, sent }) = (self.destination.id(), ended);
        let error = match result {
            Ok(receipt) => {
                crash::point("relay.after_ack");
                self.counters.note_published(&entry.message, receipt.duplicate, entry.ticket.repeated);
                if receipt.duplicate && !entry.ticket.repeated {
                    tracing::warn!(
                        destination,
                        message_id = %entry.message.message_id(),
                        event_id = entry.message.id,
                        "a duplicate at its first sending: two messages have one id, or the log was restored"
                    );
                }
                gate.opened();
                gate.taken(&entry.message.event_type);
                circuit.storm.note_taken(&entry.message.event_type);
                reader.settle(entry.ticket);
                return Ok(());
            }
            Err(error) => error,
        };
        self.counters.note_error(&error);
        let attempt = entry.ticket.attempt;
        if matches!(error.kind(), K::RefusedForNow | K::RefusedForGood | K::NoHome) {
            self.counters.note_refused();
        }
        match error.kind() {
            K::RefusedForGood => self.give_up(reader, entry, &error, circuit)?,
            K::RefusedForNow => self.refuse(reader, entry, &error, circuit)?,
            K::Unanswered => {
                flight.window.fall(sent.at, Instant::now());
                match flight.silence(sent) {
                    Silence::Alone => self.refuse(reader, entry, &error, circuit)?,
                    // Not the message's fault, and so no attempt of it.
                    Silence::Slow => reader.retry(entry, SLOW_DELAY, false),
                    Silence::Everywhere => silent.push((entry, error)),
                }
            }
            K::NoHome => {
                let event_type = &entry.message.event_type;
                if gate.tells(event_type) {
                    tracing::error!(
                        destination,
                        event_type,
                        code = error.code(),
                        "{error}: the type waits for one"
                    );
                }
                let delay = gate.homeless(event_type, Instant::now());
                self.park(reader, entry, Parked::Waiting(delay), attempt.saturating_sub(1), &error);
            }
            K::Throttled => {
                let wait = gate.close(error.retry_after(), Instant::now());
                tracing::debug!(destination, ?wait, code = error.code(), "{error}");
                flight.window.fall(sent.at, Instant::now());
                // Not the message's fault, and so no attempt of it.
                reader.retry(entry, wait, false);
            }
            _ => return Err(error),
        }
        Ok(())
    }

    /// The message was not taken: it is tried again here, or parked, or given up.
    pub(crate) fn refuse(
        &self,
        reader: &mut Reader<DB>,
        entry: Entry,
        error: &PublishError,
        circuit: &mut Circuit,
    ) -> Result<(), PublishError> {
        let attempt = entry.ticket.attempt;
        match self.options.retry.next(attempt, retry::random()) {
            Some(delay) if delay <= IN_PLACE_MAX => reader.retry(entry, delay, true),
            Some(delay) => self.park(reader, entry, Parked::Waiting(delay), attempt, error),
            None => self.give_up(reader, entry, error, circuit)?,
        }
        Ok(())
    }

    /// An error: so many are given up that the destination is not trusted.
    fn give_up(
        &self,
        reader: &mut Reader<DB>,
        entry: Entry,
        error: &PublishError,
        circuit: &mut Circuit,
    ) -> Result<(), PublishError> {
        if let Err(storm) = circuit.storm.note_dead(&entry.message.event_type) {
            let Some(wait) = circuit.storm.park() else { return Err(storm) };
            let attempts = entry.ticket.attempt.saturating_sub(1);
            self.park(reader, entry, Parked::Waiting(wait), attempts, error);
            return Ok(());
        }
        self.counters.note_dead();
        let attempt = entry.ticket.attempt;
        self.park(reader, entry, self.options.on_exhausted.parked(), attempt, error);
        Ok(())
    }

    fn park(
        &self,
        reader: &mut Reader<DB>,
        entry: Entry,
        parked: Parked,
        attempts: u32,
        error: &PublishError,
    ) {
        self.counters.note_parked();
        // One line for each dead letter; of waiting ones there may be thousands.
        let (destination, message_id, code) =
            (self.destination.id(), entry.message.message_id(), error.code());
        if matches!(parked, Parked::Waiting(_)) {
            tracing::debug!(destination, %message_id, code, attempts, "the message is put aside");
        } else {
            let event_type = &entry.message.event_type;
            tracing::error!(
                destination, %message_id, event_type, code, attempts, ?parked, "{error}; the message is given up"
            );
        }
        reader.park(entry, parked, attempts, error.code());
    }
}
