//! Messages of the future.
use super::Message;
use crate::{limits, timestamp::Timestamp};

impl Message {
    /// Checks the time of a message against when its broker stored it. A source calls this before it
    /// delivers.
    ///
    /// # Errors
    /// The message is more than [`limits::TIME_AHEAD_MAX`] ahead.
    pub fn check_time(&self, stored_at: Timestamp) -> Result<(), String> {
        let ahead = self.time.as_micros().saturating_sub(stored_at.as_micros());
        match u128::try_from(ahead).is_ok_and(|ahead| ahead > limits::TIME_AHEAD_MAX.as_micros()) {
            true => Err("the CloudEvents attribute `time` is more than a day in the future".to_owned()),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_at_most_a_day_ahead_of_its_broker() {
        let at = |micros| {
            let time = Timestamp::from_micros(micros);
            Message::placeholder("1".into(), "shop".into(), time, bytes::Bytes::new())
        };
        let stored = Timestamp::from_micros(1_789_000_000_000_000);
        let day = i64::try_from(limits::TIME_AHEAD_MAX.as_micros()).unwrap();
        for time in [i64::MIN, 0, stored.as_micros() + day] {
            at(time).check_time(stored).unwrap();
        }
        for time in [stored.as_micros() + day + 1, i64::MAX] {
            at(time).check_time(stored).unwrap_err();
        }
        at(i64::MAX).check_time(Timestamp::from_micros(-1)).unwrap_err();
        at(0).check_time(Timestamp::from_micros(i64::MIN)).unwrap_err();
        at(i64::MIN).check_time(Timestamp::from_micros(i64::MAX)).unwrap();
    }
}
