//! A bound on guesses of tokens.
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Wrong tokens after which an address has to wait.
const GUESSES_MAX: u32 = 10;
/// The time in which they count.
const WINDOW: Duration = Duration::from_secs(60);
/// The most addresses that are counted. With more, all have to wait.
const ADDRESSES_MAX: usize = 10_000;

/// Counts wrong tokens by address.
#[derive(Default)]
pub(crate) struct Throttle(Mutex<HashMap<IpAddr, (Instant, u32)>>);

impl Throttle {
    /// Returns how long an address has to wait before its next guess.
    pub(crate) fn wait(&self, address: IpAddr) -> Option<Duration> {
        let (mut guesses, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        guesses.retain(|_, (began, _)| now.duration_since(*began) < WINDOW);
        let is_full = guesses.len() >= ADDRESSES_MAX && !guesses.contains_key(&address);
        match guesses.get(&address) {
            Some((began, count)) if *count >= GUESSES_MAX => Some(WINDOW - now.duration_since(*began)),
            _ => is_full.then_some(WINDOW),
        }
    }

    /// Counts a wrong token.
    pub(crate) fn count(&self, address: IpAddr) {
        let mut guesses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.entry(address).or_insert((Instant::now(), 0)).1 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_guesses_have_to_wait() {
        let (throttle, one) = (Throttle::default(), IpAddr::from([127, 0, 0, 1]));
        for _ in 0..GUESSES_MAX {
            assert_eq!(throttle.wait(one), None);
            throttle.count(one);
        }
        assert!(throttle.wait(one).unwrap() <= WINDOW);
        assert_eq!(throttle.wait(IpAddr::from([127, 0, 0, 2])), None);
    }
}
