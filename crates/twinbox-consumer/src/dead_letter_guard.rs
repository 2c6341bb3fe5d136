//! The dead-letter guard: bounds how many dead letters a consumer makes in a minute, and how many bytes all
//! of them have. Whoever may publish a type can make dead letters of it.
//!
//! A message that must not become a dead letter now is delivered again later. That counts as no attempt, and
//! nothing is lost. Few messages wait for the next minute: a broker delivers only so many that are not
//! acknowledged, and more would keep other types from the consumer. So a flood continues up to the bound in
//! bytes. There the consumer gives no message up.
use crate::metrics::{DEAD_LETTER_BYTES, DELAYED_DEAD_LETTERS};
use metrics::{counter, gauge};
use std::{
    mem,
    sync::PoisonError,
    time::{Duration, Instant},
};
use tokio::sync::Mutex;
use twinbox_core::Message;
use twinbox_sql::{Dialect, Error, Inbox, inbox::DeadReason};

/// The time for which dead letters are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The most dead letters of one reason in a [`WINDOW`], before messages wait for the next one.
const DEAD_LETTERS_MAX: u32 = 100;
/// The most messages of all reasons together that wait for the next [`WINDOW`].
const DELAYED_MAX: u32 = 200;
/// Reasons of messages on which no handler has run.
const COUNTED: [DeadReason; 4] =
    [DeadReason::Undecodable, DeadReason::NoHandler, DeadReason::InDoubt, DeadReason::ConflictingPayload];
/// How old the sum of the bytes may be. Meanwhile this process adds the dead letters that it writes.
const SUM_AGE_MAX: Duration = Duration::from_secs(60);
/// The same at the bound, where an operator may have discarded dead letters.
const FULL_SUM_AGE_MAX: Duration = Duration::from_secs(5);
/// How long a message waits for room.
const FULL_DELAY: Duration = Duration::from_secs(60);

/// Bounds the dead letters of one consumer.
pub(crate) struct DeadLetterGuard {
    bytes_max: u64,
    /// None: no message waits for the next minute.
    rate: Option<std::sync::Mutex<Rate>>,
    stored: Mutex<Stored>,
}

/// The dead letters in the present [`WINDOW`].
#[derive(Default)]
struct Rate {
    since: Option<Instant>,
    /// In the order of [`COUNTED`].
    dead_letters: [u32; COUNTED.len()],
    delayed: u32,
}

/// The bytes of the dead letters in the database.
#[derive(Default)]
struct Stored {
    summed_at: Option<Instant>,
    bytes: u64,
    is_full: bool,
}

impl Default for DeadLetterGuard {
    /// Without a bound.
    fn default() -> Self {
        Self::new(u64::MAX, true)
    }
}

impl DeadLetterGuard {
    /// A consumer that keeps the order of keys has no rate: a message that waits holds up its partition.
    pub(crate) fn new(bytes_max: u64, is_ordered: bool) -> Self {
        Self { bytes_max, rate: (!is_ordered).then(Default::default), stored: Mutex::default() }
    }

    /// Returns how long the message waits until it may become a dead letter. None: now.
    pub(crate) async fn delay<DB: Dialect>(
        &self,
        inbox: &Inbox<DB>,
        message: &Message,
        reason: DeadReason,
    ) -> Result<Option<Duration>, Error> {
        let (delay, limit) = if let Some(delay) = self.rate_delay(inbox.consumer(), reason) {
            (delay, "rate")
        } else if self.has_room(inbox, message.bytes() as u64).await? {
            return Ok(None);
        } else {
            (FULL_DELAY, "bytes")
        };
        let labels = [("consumer", inbox.consumer().to_owned()), ("limit", limit.to_owned())];
        counter!(DELAYED_DEAD_LETTERS, &labels).increment(1);
        Ok(Some(delay))
    }

    fn rate_delay(&self, consumer: &str, reason: DeadReason) -> Option<Duration> {
        let mut rate = self.rate.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = rate.delay(reason, Instant::now())?;
        if rate.delayed == 1 {
            tracing::error!(
                consumer,
                reason = reason.as_str(),
                limit = "rate",
                "too many messages become dead letters in a minute: some of them wait for the next one"
            );
        }
        Some(delay)
    }

    /// Takes room for a dead letter of so many bytes. False: the bound is reached. Other processes of the
    /// consumer are seen at the next sum.
    async fn has_room<DB: Dialect>(&self, inbox: &Inbox<DB>, bytes: u64) -> Result<bool, Error> {
        if self.bytes_max == u64::MAX {
            return Ok(true);
        }
        let (consumer, bytes_max) = (inbox.consumer(), self.bytes_max);
        let mut stored = self.stored.lock().await;
        let age_max = if stored.bytes < bytes_max { SUM_AGE_MAX } else { FULL_SUM_AGE_MAX };
        if stored.summed_at.is_none_or(|at| at.elapsed() >= age_max) {
            stored.bytes = inbox.dead_letter_bytes().await?;
            stored.summed_at = Some(Instant::now());
            gauge!(DEAD_LETTER_BYTES, "consumer" => consumer.to_owned()).set(stored.bytes as f64);
        }
        let is_full = stored.bytes >= bytes_max;
        match (mem::replace(&mut stored.is_full, is_full), is_full) {
            (false, true) => tracing::error!(
                consumer,
                bytes = stored.bytes,
                bytes_max,
                limit = "bytes",
                "the dead letters have as many bytes as they may: no message is given up until there is room"
            ),
            (true, false) => tracing::info!(consumer, "there is room for dead letters again"),
            _ => {}
        }
        if !is_full {
            stored.bytes = stored.bytes.saturating_add(bytes);
        }
        Ok(!is_full)
    }
}

impl Rate {
    /// Counts a dead letter. Returns how long its message waits instead, if there were too many.
    fn delay(&mut self, reason: DeadReason, now: Instant) -> Option<Duration> {
        let counted = COUNTED.iter().position(|counted| *counted == reason)?;
        let end = self.since.map_or(now, |since| since + WINDOW);
        let mut left = end.saturating_duration_since(now);
        if left.is_zero() {
            *self = Self { since: Some(now), ..Self::default() };
            left = WINDOW;
        }
        let dead_letters = &mut self.dead_letters[counted];
        if *dead_letters >= DEAD_LETTERS_MAX && self.delayed < DELAYED_MAX {
            self.delayed += 1;
            return Some(left);
        }
        *dead_letters = dead_letters.saturating_add(1);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn delays(rate: &mut Rate, reason: DeadReason, now: Instant, count: u32) -> Vec<Option<Duration>> {
        (0..count).map(|_| rate.delay(reason, now)).collect()
    }

    #[test]
    fn messages_beyond_the_rate_wait_for_the_next_minute() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        let first = delays(&mut rate, DeadReason::Undecodable, start, DEAD_LETTERS_MAX);
        assert!(first.iter().all(Option::is_none), "{first:?}");
        let later = start + 20 * SECOND;
        assert_eq!(rate.delay(DeadReason::Undecodable, later), Some(40 * SECOND));
        assert_eq!(rate.delay(DeadReason::NoHandler, later), None, "each reason has a rate of its own");
        for reason in [DeadReason::Rejected, DeadReason::Exhausted, DeadReason::Crashed] {
            let decided = delays(&mut rate, reason, later, 2 * DEAD_LETTERS_MAX);
            assert!(decided.iter().all(Option::is_none), "a handler decided: {reason:?}");
        }
        assert_eq!(rate.delay(DeadReason::Undecodable, start + 59 * SECOND), Some(SECOND));
        let again = delays(&mut rate, DeadReason::Undecodable, start + WINDOW, DEAD_LETTERS_MAX);
        assert!(again.iter().all(Option::is_none), "a minute is over: {again:?}");
        assert_eq!(rate.delay(DeadReason::Undecodable, start + WINDOW), Some(WINDOW));
    }

    /// More of them would take the room of other messages at the broker.
    #[test]
    fn few_messages_wait_at_a_time() {
        let (mut rate, now) = (Rate::default(), Instant::now());
        let mut waiting = 0;
        for reason in COUNTED {
            let delays = delays(&mut rate, reason, now, 10 * DEAD_LETTERS_MAX);
            waiting += delays.iter().flatten().count();
        }
        assert_eq!(waiting, DELAYED_MAX as usize);
    }
}
