//! Decides what happens to a message that the destination did not accept.
use crate::{
    destination_state::DestinationState,
    in_flight::{InFlight, SendMark, Unanswered},
    options::RelayOptions,
};
use std::time::{Duration, Instant};
use twinbox_core::{PublishError, PublishErrorKind as K, retry};
use twinbox_log::{Entry, parking::ParkedState};

/// The longest delay that a message waits in place. For a longer delay the message is parked.
const IN_PLACE_MAX: Duration = Duration::from_secs(1);
/// The delay of a retry after too much was in flight.
const SLOW_DELAY: Duration = Duration::from_millis(100);

/// What happens to a message after a failed publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The message is sent again after `delay`.
    Retry {
        delay: Duration,
        /// Whether the failure was the message's, and so counts as an attempt.
        counted: bool,
    },
    /// The message is sent again at once, under its next name.
    Rename,
    /// The message is sent again after a pause, and under its next name if this one stays in process.
    InProcess,
    /// The message is parked.
    Park {
        parked: ParkedState,
        /// The attempts so far.
        attempts: u32,
    },
    /// The destination may be down: the relay checks its health. If it is there, [`FailedPublish::refused`]
    /// decides.
    CheckHealth,
    /// The destination is down.
    DestinationDown,
    /// There are so many dead letters that the destination is at fault.
    Storm,
}

/// A message that the destination did not accept.
pub(crate) struct FailedPublish<'a> {
    pub(crate) destination: &'a str,
    pub(crate) entry: &'a Entry,
    pub(crate) error: &'a PublishError,
}

impl FailedPublish<'_> {
    pub(crate) fn decide(
        &self,
        sent: SendMark,
        options: &RelayOptions,
        in_flight: &mut InFlight,
        state: &mut DestinationState,
    ) -> Decision {
        match self.error.kind() {
            K::NameTaken => {
                let (destination, message_id) = (self.destination, self.entry.message.message_id());
                let event_id = &self.entry.message.id;
                tracing::warn!(
                    destination, %message_id, event_id,
                    "{}: it is sent again under another one, so that it is not lost. Either somebody else \
                     has the secret of the destination, or the database was restored",
                    self.error
                );
                Decision::Rename
            }
            K::InProcess => Decision::InProcess,
            K::RefusedForGood => self.give_up(options, state),
            K::RefusedForNow => self.refused(options, state),
            K::Unanswered => {
                in_flight.limit.reduce(sent.at, Instant::now());
                match in_flight.unanswered(sent) {
                    Unanswered::ThisMessage => self.refused(options, state),
                    Unanswered::SomeMessages => Decision::Retry { delay: SLOW_DELAY, counted: false },
                    Unanswered::AllMessages => Decision::CheckHealth,
                }
            }
            K::Unroutable => self.without_home(state),
            K::Throttled => {
                let now = Instant::now();
                let delay = state.throttle.close(self.error.retry_after(), now);
                let (destination, code, error) = (self.destination, self.error.code(), self.error);
                tracing::debug!(destination, ?delay, code, "{error}");
                in_flight.limit.reduce(sent.at, now);
                Decision::Retry { delay, counted: false }
            }
            _ => Decision::DestinationDown,
        }
    }

    /// Decides about a message that is at fault itself: a retry in place, parked, or given up.
    pub(crate) fn refused(&self, options: &RelayOptions, state: &mut DestinationState) -> Decision {
        let attempts = self.entry.ticket.attempt;
        match options.retry.next(attempts, retry::random()) {
            Some(delay) if delay <= IN_PLACE_MAX => Decision::Retry { delay, counted: true },
            Some(delay) => Decision::Park { parked: ParkedState::Waiting(delay), attempts },
            None => self.give_up(options, state),
        }
    }

    /// Decides about a message that can never be sent.
    pub(crate) fn give_up(&self, options: &RelayOptions, state: &mut DestinationState) -> Decision {
        if state.storm.allows_dead_letter(&self.entry.message.event_type) {
            return Decision::Park {
                parked: options.on_exhausted.parked(),
                attempts: self.entry.ticket.attempt,
            };
        }
        state.storm.parking_delay().map_or(Decision::Storm, |delay| self.park_uncounted(delay))
    }

    fn without_home(&self, state: &mut DestinationState) -> Decision {
        let event_type = &self.entry.message.event_type;
        if state.type_faults.should_log(event_type) {
            let (destination, code, error) = (self.destination, self.error.code(), self.error);
            tracing::error!(
                destination,
                event_type,
                code,
                "{error}: messages of the type are parked until it has one"
            );
        }
        self.park_uncounted(state.type_faults.note_without_home(event_type, Instant::now()))
    }

    /// Parks the message. This attempt does not count, because the message is not at fault.
    fn park_uncounted(&self, delay: Duration) -> Decision {
        let attempts = self.entry.ticket.attempt.saturating_sub(1);
        Decision::Park { parked: ParkedState::Waiting(delay), attempts }
    }
}

#[cfg(test)]
mod tests;
