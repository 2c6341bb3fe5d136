//! How much may be on its way to a destination: as much as it has shown that it takes.
//!
//! Grows with each answer, up to what was answered within [`HORIZON`], and falls when one does not come. So what is under
//! way is answered in about half a second, or within four ways there and back to a destination far away: a fixed number
//! would fill a fast one too little and make a slow one answer nothing in time.
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};
use twinbox_sql::log::Room;

/// Where it starts, when nothing is known.
const START: Room = Room { messages: 64, bytes: 1024 * 1024 };
/// Bytes on their way at most.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// What was answered within this time may be on its way.
const HORIZON: Duration = Duration::from_millis(500);
/// Or within so many ways there and back, if that is longer: with fewer it would grow little on each.
const ROUND_TRIPS: u32 = 4;
/// Answers are counted together for this long.
const COUNTED_TOGETHER: Duration = Duration::from_millis(10);
/// The part of the window, as its denominator, that has to be free before more are sent.
const SENT_TOGETHER: usize = 8;

#[derive(Debug)]
pub(crate) struct Window {
    limit: Room,
    messages_max: usize,
    out: Room,
    /// What was answered lately, and how much that is.
    answers: VecDeque<(Instant, Room)>,
    answered: Room,
    /// The quickest answer so far. It is not forgotten: once the window is full, each answer waits for those before it,
    /// and what looks like a longer way would widen the window, and so on.
    round_trip: Option<Duration>,
    /// Since it fell. What was sent before says nothing new.
    fell_at: Option<Instant>,
}

impl Window {
    /// For at most so many messages.
    pub(crate) fn new(messages_max: usize) -> Self {
        let messages_max = messages_max.max(1);
        Self {
            limit: Room { messages: START.messages.min(messages_max), ..START },
            messages_max,
            out: Room::NONE,
            answers: VecDeque::new(),
            answered: Room::NONE,
            round_trip: None,
            fell_at: None,
        }
    }

    /// What may be sent. Nothing until a good part may: sent one by one, each costs a system call.
    pub(crate) fn room(&self) -> Room {
        let messages = self.limit.messages.saturating_sub(self.out.messages);
        let bytes = self.limit.bytes.saturating_sub(self.out.bytes);
        match messages < self.limit.messages / SENT_TOGETHER || bytes < self.limit.bytes / SENT_TOGETHER {
            true => Room::NONE,
            false => Room { messages, bytes },
        }
    }

    pub(crate) fn sent(&mut self, these: Room) {
        self.out += these;
    }

    /// These are no longer on their way, whatever became of them.
    pub(crate) fn landed(&mut self, landed: Room) {
        self.out.messages = self.out.messages.saturating_sub(landed.messages);
        self.out.bytes = self.out.bytes.saturating_sub(landed.bytes);
    }

    /// The destination has answered for these. `taken_at`: when the last was sent of those that it has taken, for what is
    /// refused may not have been on its way at all.
    pub(crate) fn answered(&mut self, these: Room, taken_at: Option<Instant>, now: Instant) {
        let took = taken_at.map(|at| now.saturating_duration_since(at));
        self.round_trip = self.round_trip.into_iter().chain(took).min();
        match self.answers.back_mut().filter(|(at, _)| now - *at < COUNTED_TOGETHER) {
            Some((_, last)) => *last += these,
            None => self.answers.push_back((now, these)),
        }
        self.answered += these;
        self.forget(now);
        let grown = |limit: usize, by: usize, most: usize, max: usize| {
            limit.max(limit.saturating_add(by).min(most)).min(max).max(1)
        };
        self.limit = Room {
            messages: grown(self.limit.messages, these.messages, self.answered.messages, self.messages_max),
            bytes: grown(self.limit.bytes, these.bytes, self.answered.bytes, BYTES_MAX),
        };
    }

    /// One that was sent at `sent_at` was not answered in time, or refused for being too much: half, and no more than what
    /// was answered of late. Once for all that was on its way together.
    pub(crate) fn fall(&mut self, sent_at: Instant, now: Instant) {
        if self.fell_at.is_some_and(|at| sent_at <= at) {
            return;
        }
        self.forget(now);
        self.limit = Room {
            messages: (self.limit.messages / 2).min(self.answered.messages).max(1),
            bytes: (self.limit.bytes / 2).min(self.answered.bytes).max(1),
        };
        self.fell_at = Some(now);
    }

    fn horizon(&self) -> Duration {
        self.round_trip.map_or(HORIZON, |least| HORIZON.max(least * ROUND_TRIPS))
    }

    fn forget(&mut self, now: Instant) {
        let horizon = self.horizon();
        while let Some((_, old)) = self.answers.pop_front_if(|(at, _)| now - *at > horizon) {
            self.answered.messages -= old.messages;
            self.answered.bytes -= old.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KB: usize = 1024;
    const ONE: Room = Room { messages: 1, bytes: KB };

    /// Sends for so long to a destination that takes `pace` messages a second, and answers each `delay` after that.
    fn run(
        window: &mut Window,
        from: Instant,
        long: Duration,
        pace: f64,
        delay: Duration,
    ) -> (usize, Instant) {
        let (mut now, mut free_at, mut sent) = (from, from, VecDeque::<(Instant, Instant)>::new());
        let mut answered = 0;
        while now < from + long {
            let room = window.room();
            let mut bytes = room.bytes;
            for _ in 0..room.messages {
                if bytes == 0 {
                    break;
                }
                bytes = bytes.saturating_sub(KB);
                window.sent(ONE);
                free_at = free_at.max(now) + Duration::from_secs_f64(1.0 / pace);
                sent.push_back((now, free_at + delay));
            }
            while let Some((sent_at, _)) = sent.pop_front_if(|(_, at)| *at <= now) {
                window.landed(ONE);
                window.answered(ONE, Some(sent_at), now);
                answered += 1;
            }
            now += Duration::from_millis(1);
        }
        sent.iter().for_each(|_| window.landed(ONE));
        (answered, now)
    }

    #[test]
    fn it_follows_the_pace_of_the_destination() {
        let (mut window, start) = (Window::new(2000), Instant::now());
        let (answered, now) = run(&mut window, start, Duration::from_secs(10), 100.0, Duration::ZERO);
        assert!(answered >= 950, "{answered}");
        assert!(window.limit.messages <= 64, "a second of work at most: {window:?}");
        let (answered, now) = run(&mut window, now, Duration::from_secs(10), 1000.0, Duration::ZERO);
        assert!(answered >= 9000, "ten times as fast: {answered}");
        let (answered, _) = run(&mut window, now, Duration::from_secs(10), 100_000.0, Duration::ZERO);
        assert!(answered >= 500_000, "{answered}");
        assert_eq!(window.limit.messages, 2000);
    }

    #[test]
    fn it_does_not_take_its_own_queue_for_a_long_way() {
        for delay in [0, 100, 300] {
            let mut window = Window::new(2000);
            let delay = Duration::from_millis(delay);
            let (answered, _) = run(&mut window, Instant::now(), Duration::from_secs(600), 100.0, delay);
            assert!(answered >= 59_000, "{delay:?}: {answered}");
            assert!(window.limit.messages <= 200, "two seconds of work at most: {window:?}");
        }
    }

    #[test]
    fn what_is_refused_at_once_does_not_tell_how_long_the_way_is() {
        let (mut window, start) = (Window::new(2000), Instant::now());
        window.answered(ONE, None, start);
        let (answered, _) =
            run(&mut window, start, Duration::from_secs(60), 1000.0, Duration::from_millis(1500));
        assert!(answered >= 45_000, "{answered}");
    }

    #[test]
    fn a_long_way_is_filled() {
        for delay in [300, 600, 1500] {
            let mut window = Window::new(2000);
            let delay = Duration::from_millis(delay);
            let (answered, _) = run(&mut window, Instant::now(), Duration::from_secs(60), 1000.0, delay);
            assert!(answered >= 45_000, "{delay:?}: {answered}");
        }
    }

    #[test]
    fn it_falls_once_for_what_was_sent_together_and_never_to_nothing() {
        let (mut window, start) = (Window::new(2000), Instant::now());
        let (_, now) = run(&mut window, start, Duration::from_secs(10), 100_000.0, Duration::ZERO);
        window.fall(now, now);
        let fallen = window.limit.messages;
        assert_eq!(fallen, 1000);
        window.fall(now, now + Duration::from_millis(1));
        assert_eq!(window.limit.messages, fallen);
        let later = now + Duration::from_secs(60);
        for n in 1..20 {
            window.fall(later + Duration::from_secs(n), later + Duration::from_secs(n));
        }
        assert_eq!((window.limit.messages, window.room().messages), (1, 1));
        assert!(window.room().bytes > 0);
    }
}
