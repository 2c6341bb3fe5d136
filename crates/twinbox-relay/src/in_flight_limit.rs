//! How much may be in flight to a destination: as much as the destination has shown that it takes.
//!
//! The limit grows with each response, up to what got a response within [`HORIZON`]. It shrinks when a
//! response does not come in time. So a response takes about half a second, or four round trips to a
//! destination that is far away. With a fixed limit a fast destination would be idle, and a slow one would
//! respond to nothing in time.
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};
use twinbox_log::Budget;

/// The limit at the start, when nothing is known about the destination.
const START: Budget = Budget { messages: 64, bytes: 1024 * 1024 };
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// As much may be in flight as got a response within this time.
const HORIZON: Duration = Duration::from_millis(500);
/// The max_age in round trips, if that is longer than [`HORIZON`]. With fewer the limit would grow little on
/// each.
const HORIZON_ROUND_TRIPS: u32 = 4;
/// Responses within this time are kept as one entry of the history.
const HISTORY_INTERVAL: Duration = Duration::from_millis(10);
/// The share of the limit that has to be free before more is sent, as its denominator. Sent one by one, each
/// message costs a system call.
const FREE_SHARE: usize = 8;

/// The limit on messages and bytes in flight.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    limit: Budget,
    messages_max: usize,
    in_flight: Budget,
    /// What got a response within the max_age, by time.
    history: VecDeque<(Instant, Budget)>,
    /// The sum of the history.
    responded: Budget,
    /// The quickest response so far. It is never forgotten: under a full limit each response waits for those
    /// before it. That would look like a longer round trip, which would widen the limit, and so on.
    round_trip: Option<Duration>,
    /// The time of the last reduction. A message that was sent before it tells nothing new.
    reduced_at: Option<Instant>,
}

impl InFlightLimit {
    pub(crate) fn new(messages_max: usize) -> Self {
        let messages_max = messages_max.max(1);
        Self {
            limit: Budget { messages: START.messages.min(messages_max), ..START },
            messages_max,
            in_flight: Budget::NONE,
            history: VecDeque::new(),
            responded: Budget::NONE,
            round_trip: None,
            reduced_at: None,
        }
    }

    /// Returns how much may be sent now. Nothing until [`FREE_SHARE`] of the limit is free.
    pub(crate) fn room(&self) -> Budget {
        let messages = self.limit.messages.saturating_sub(self.in_flight.messages);
        let bytes = self.limit.bytes.saturating_sub(self.in_flight.bytes);
        match messages < self.limit.messages / FREE_SHARE || bytes < self.limit.bytes / FREE_SHARE {
            true => Budget::NONE,
            false => Budget { messages, bytes },
        }
    }

    pub(crate) fn note_sent(&mut self, sent: Budget) {
        self.in_flight += sent;
    }

    /// Notes that messages are no longer in flight, whatever their result.
    pub(crate) fn note_ended(&mut self, ended: Budget) {
        self.in_flight.messages = self.in_flight.messages.saturating_sub(ended.messages);
        self.in_flight.bytes = self.in_flight.bytes.saturating_sub(ended.bytes);
    }

    /// Grows the limit, because the destination responded.
    ///
    /// `accepted_at` is when the last accepted message was sent. A refused message does not count for the
    /// round trip, because it may never have been on its way.
    pub(crate) fn grow(&mut self, responded: Budget, accepted_at: Option<Instant>, now: Instant) {
        let round_trip = accepted_at.map(|at| now.saturating_duration_since(at));
        self.round_trip = self.round_trip.into_iter().chain(round_trip).min();
        match self.history.back_mut().filter(|(at, _)| now - *at < HISTORY_INTERVAL) {
            Some((_, last)) => *last += responded,
            None => self.history.push_back((now, responded)),
        }
        self.responded += responded;
        self.drop_old_history(now);
        let grown = |limit: usize, by: usize, most: usize, max: usize| {
            limit.max(limit.saturating_add(by).min(most)).min(max).max(1)
        };
        self.limit = Budget {
            messages: grown(
                self.limit.messages,
                responded.messages,
                self.responded.messages,
                self.messages_max,
            ),
            bytes: grown(self.limit.bytes, responded.bytes, self.responded.bytes, BYTES_MAX),
        };
    }

    /// Halves the limit, because the message sent at `sent_at` got no response in time or was throttled.
    ///
    /// The new limit is at most what got a response within the max_age. The limit shrinks once for all
    /// messages that were in flight together.
    pub(crate) fn reduce(&mut self, sent_at: Instant, now: Instant) {
        if self.reduced_at.is_some_and(|at| sent_at <= at) {
            return;
        }
        self.drop_old_history(now);
        self.limit = Budget {
            messages: (self.limit.messages / 2).min(self.responded.messages).max(1),
            bytes: (self.limit.bytes / 2).min(self.responded.bytes).max(1),
        };
        self.reduced_at = Some(now);
    }

    fn max_age(&self) -> Duration {
        self.round_trip.map_or(HORIZON, |shortest| HORIZON.max(shortest * HORIZON_ROUND_TRIPS))
    }

    fn drop_old_history(&mut self, now: Instant) {
        let max_age = self.max_age();
        while let Some((_, old)) = self.history.pop_front_if(|(at, _)| now - *at > max_age) {
            self.responded.messages -= old.messages;
            self.responded.bytes -= old.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1024;
    const ONE: Budget = Budget { messages: 1, bytes: KB };

    /// Sends for a while to a destination that takes `rate` messages a second and responds `delay` after
    /// that. Returns the number of responses and the end of the while.
    fn send(
        limit: &mut InFlightLimit,
        from: Instant,
        duration: Duration,
        rate: f64,
        delay: Duration,
    ) -> (usize, Instant) {
        let (mut now, mut free_at, mut sent) = (from, from, VecDeque::<(Instant, Instant)>::new());
        let mut responses = 0;
        while now < from + duration {
            let room = limit.room();
            let mut bytes = room.bytes;
            for _ in 0..room.messages {
                if bytes == 0 {
                    break;
                }
                bytes = bytes.saturating_sub(KB);
                limit.note_sent(ONE);
                free_at = free_at.max(now) + Duration::from_secs_f64(1.0 / rate);
                sent.push_back((now, free_at + delay));
            }
            while let Some((sent_at, _)) = sent.pop_front_if(|(_, at)| *at <= now) {
                limit.note_ended(ONE);
                limit.grow(ONE, Some(sent_at), now);
                responses += 1;
            }
            now += Duration::from_millis(1);
        }
        sent.iter().for_each(|_| limit.note_ended(ONE));
        (responses, now)
    }

    #[test]
    fn it_follows_the_rate_of_the_destination() {
        let (mut limit, start) = (InFlightLimit::new(2000), Instant::now());
        let (responses, now) = send(&mut limit, start, Duration::from_secs(10), 100.0, Duration::ZERO);
        assert!(responses >= 950, "{responses}");
        assert!(limit.limit.messages <= 64, "a second of work at most: {limit:?}");
        let (responses, now) = send(&mut limit, now, Duration::from_secs(10), 1000.0, Duration::ZERO);
        assert!(responses >= 9000, "ten times as fast: {responses}");
        let (responses, _) = send(&mut limit, now, Duration::from_secs(10), 100_000.0, Duration::ZERO);
        assert!(responses >= 500_000, "{responses}");
        assert_eq!(limit.limit.messages, 2000);
    }

    #[test]
    fn a_queue_at_the_destination_does_not_count_as_a_long_round_trip() {
        for delay in [0, 100, 300] {
            let mut limit = InFlightLimit::new(2000);
            let delay = Duration::from_millis(delay);
            let (responses, _) = send(&mut limit, Instant::now(), Duration::from_secs(600), 100.0, delay);
            assert!(responses >= 59_000, "{delay:?}: {responses}");
            assert!(limit.limit.messages <= 200, "two seconds of work at most: {limit:?}");
        }
    }

    #[test]
    fn a_refused_message_does_not_count_for_the_round_trip() {
        let (mut limit, start) = (InFlightLimit::new(2000), Instant::now());
        limit.grow(ONE, None, start);
        let delay = Duration::from_millis(1500);
        let (responses, _) = send(&mut limit, start, Duration::from_secs(60), 1000.0, delay);
        assert!(responses >= 45_000, "{responses}");
    }

    #[test]
    fn a_long_round_trip_is_filled() {
        for delay in [300, 600, 1500] {
            let mut limit = InFlightLimit::new(2000);
            let delay = Duration::from_millis(delay);
            let (responses, _) = send(&mut limit, Instant::now(), Duration::from_secs(60), 1000.0, delay);
            assert!(responses >= 45_000, "{delay:?}: {responses}");
        }
    }

    #[test]
    fn it_shrinks_once_for_messages_in_flight_together_and_never_to_zero() {
        let (mut limit, start) = (InFlightLimit::new(2000), Instant::now());
        let (_, now) = send(&mut limit, start, Duration::from_secs(10), 100_000.0, Duration::ZERO);
        limit.reduce(now, now);
        let reduced = limit.limit.messages;
        assert_eq!(reduced, 1000);
        limit.reduce(now, now + Duration::from_millis(1));
        assert_eq!(limit.limit.messages, reduced);
        let later = now + Duration::from_secs(60);
        for n in 1..20 {
            limit.reduce(later + Duration::from_secs(n), later + Duration::from_secs(n));
        }
        assert_eq!((limit.limit.messages, limit.room().messages), (1, 1));
        assert!(limit.room().bytes > 0);
    }
}
