//! One request of a key at a time in this process, so that many copies cost one connection.
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Requests that wait for another with their key. More are told to come again.
const WAITING_MAX: usize = 8;

/// The keys that requests are at, in this process.
#[derive(Debug, Default)]
pub(crate) struct Flights(Mutex<HashMap<[u8; 32], Flight>>);

#[derive(Debug)]
struct Flight {
    turn: Arc<Semaphore>,
    /// At it, or waiting.
    aboard: usize,
    /// What the one asks for who has the key and runs.
    running: Option<[u8; 32]>,
}

/// Why a request has no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// Another is at it.
    InFlight,
    /// Another request has the key.
    Mismatch,
}

/// The turn of one request, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    seat: Seat,
    /// Dropped before the seat, so that nobody finds the flight gone who has waited for it.
    permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Seat {
    flights: Arc<Flights>,
    slot: [u8; 32],
}

impl Flights {
    /// Waits for the turn of a request `asked` with the key in `slot`.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        slot: [u8; 32],
        asked: [u8; 32],
        wait: Duration,
    ) -> Result<Turn, NoTurn> {
        let (turn, seat) = {
            let mut all = self.all();
            let flight = all.entry(slot).or_insert_with(|| Flight {
                turn: Arc::new(Semaphore::new(1)),
                aboard: 0,
                running: None,
            });
            flight.may_wait(asked)?;
            flight.aboard += 1;
            (flight.turn.clone(), Seat { flights: self.clone(), slot })
        };
        match timeout(wait, turn.acquire_owned()).await {
            Ok(permit) => Ok(Turn { seat, permit: permit.ok() }),
            Err(_) => {
                let other = self.all().get(&slot).and_then(|flight| flight.running);
                Err(if other.is_some_and(|other| other != asked) {
                    NoTurn::Mismatch
                } else {
                    NoTurn::InFlight
                })
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<[u8; 32], Flight>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flight {
    fn may_wait(&self, asked: [u8; 32]) -> Result<(), NoTurn> {
        match self.running {
            Some(running) if running != asked => Err(NoTurn::Mismatch),
            _ if self.aboard > WAITING_MAX => Err(NoTurn::InFlight),
            _ => Ok(()),
        }
    }
}

impl Turn {
    /// From here on another request with the key is a mismatch.
    pub(crate) fn runs(&self, asked: [u8; 32]) {
        if let Some(flight) = self.seat.flights.all().get_mut(&self.seat.slot) {
            flight.running = Some(asked);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(flight) = self.seat.flights.all().get_mut(&self.seat.slot) {
            flight.running = None;
        }
        drop(self.permit.take());
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Entry::Occupied(mut flight) = self.flights.all().entry(self.slot) {
            flight.get_mut().aboard -= 1;
            if flight.get().aboard == 0 {
                flight.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: [u8; 32] = [1; 32];
    const LONG: Duration = Duration::from_secs(300);

    fn is_empty(flights: &Flights) -> bool {
        flights.all().is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_one_by_one_and_nothing_is_left() {
        let flights = Arc::new(Flights::default());
        let first = flights.turn(SLOT, [1; 32], LONG).await.unwrap();
        let _other_key = flights.turn([2; 32], [1; 32], LONG).await.unwrap();
        assert_eq!(flights.turn(SLOT, [1; 32], Duration::from_secs(1)).await.unwrap_err(), NoTurn::InFlight);
        let second = tokio::spawn({
            let flights = flights.clone();
            async move { flights.turn(SLOT, [1; 32], LONG).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        drop((second.await.unwrap().unwrap(), _other_key));
        assert!(is_empty(&flights));
    }

    /// D1
    #[tokio::test(start_paused = true)]
    async fn another_request_is_a_mismatch_only_while_one_runs() {
        let flights = Arc::new(Flights::default());
        let first = flights.turn(SLOT, [1; 32], LONG).await.unwrap();
        let short = Duration::from_secs(1);
        assert_eq!(flights.turn(SLOT, [2; 32], short).await.unwrap_err(), NoTurn::InFlight);
        let waits = flights.turn(SLOT, [2; 32], short);
        let (waited, ()) = tokio::join!(waits, async { first.runs([1; 32]) });
        assert_eq!(waited.unwrap_err(), NoTurn::Mismatch);
        assert_eq!(flights.turn(SLOT, [2; 32], LONG).await.unwrap_err(), NoTurn::Mismatch);
        drop(first);
        flights.turn(SLOT, [2; 32], LONG).await.unwrap();
        assert!(is_empty(&flights));
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_wait() {
        let flights = Arc::new(Flights::default());
        let first = flights.turn(SLOT, [1; 32], LONG).await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..WAITING_MAX {
            let flights = flights.clone();
            waiting.spawn(async move { flights.turn(SLOT, [1; 32], LONG).await.map(drop) });
        }
        while flights.all()[&SLOT].aboard <= WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(flights.turn(SLOT, [1; 32], LONG).await.unwrap_err(), NoTurn::InFlight);
        drop(first);
        assert!(waiting.join_all().await.into_iter().all(|turn| turn.is_ok()));
        assert!(is_empty(&flights));
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_while_it_waits_is_not_waited_for() {
        let flights = Arc::new(Flights::default());
        let first = flights.turn(SLOT, [1; 32], LONG).await.unwrap();
        let left = timeout(Duration::from_secs(1), flights.turn(SLOT, [1; 32], LONG)).await;
        assert!(left.is_err());
        assert_eq!(flights.all()[&SLOT].aboard, 1);
        drop(first);
        assert!(is_empty(&flights));
    }
}
