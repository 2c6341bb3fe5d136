//! Requests with one key take turns inside this process, so that many copies of a request need one
//! connection.
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Requests that may wait for one key. Further ones are refused at once.
const WAITING_MAX: usize = 8;

/// The queue of each key that has a request in this process.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<[u8; 32], Queue>>);

#[derive(Debug)]
struct Queue {
    /// One permit: the turn.
    turn: Arc<Semaphore>,
    /// The requests that run or wait.
    members: usize,
    /// The digest of the request whose handler runs.
    running: Option<[u8; 32]>,
}

/// Why a request gets no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// A request with the key still runs, or too many wait.
    InProgress,
    /// A different request with the key runs.
    Mismatch,
}

/// The turn of one request; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    membership: Membership,
    /// Dropped before the membership: a request that waited for the permit must find its queue.
    permit: Option<OwnedSemaphorePermit>,
}

/// Counts one request in its queue; the last one removes the queue.
#[derive(Debug)]
struct Membership {
    turns: Arc<Turns>,
    slot: [u8; 32],
}

impl Turns {
    /// Waits for the turn of the request with this `digest` and the key in `slot`.
    pub(crate) async fn take(
        self: &Arc<Self>,
        slot: [u8; 32],
        digest: [u8; 32],
        wait: Duration,
    ) -> Result<Turn, NoTurn> {
        let (turn, membership) = {
            let mut queues = self.queues();
            let queue = queues.entry(slot).or_insert_with(|| Queue {
                turn: Arc::new(Semaphore::new(1)),
                members: 0,
                running: None,
            });
            queue.check(digest)?;
            queue.members += 1;
            (queue.turn.clone(), Membership { turns: self.clone(), slot })
        };
        match timeout(wait, turn.acquire_owned()).await {
            Ok(permit) => Ok(Turn { membership, permit: permit.ok() }),
            Err(_) => {
                let running = self.queues().get(&slot).and_then(|queue| queue.running);
                let is_other = running.is_some_and(|running| running != digest);
                Err(if is_other { NoTurn::Mismatch } else { NoTurn::InProgress })
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<[u8; 32], Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue {
    fn check(&self, digest: [u8; 32]) -> Result<(), NoTurn> {
        match self.running {
            Some(running) if running != digest => Err(NoTurn::Mismatch),
            _ if self.members > WAITING_MAX => Err(NoTurn::InProgress),
            _ => Ok(()),
        }
    }
}

impl Turn {
    /// Marks the request as the one whose handler runs: from now on a different request with the key is a
    /// mismatch.
    pub(crate) fn set_running(&self, digest: [u8; 32]) {
        self.set(Some(digest));
    }

    fn set(&self, running: Option<[u8; 32]>) {
        let Membership { turns, slot } = &self.membership;
        if let Some(queue) = turns.queues().get_mut(slot) {
            queue.running = running;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.set(None);
        drop(self.permit.take());
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if let Entry::Occupied(mut queue) = self.turns.queues().entry(self.slot) {
            queue.get_mut().members -= 1;
            if queue.get().members == 0 {
                queue.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: [u8; 32] = [1; 32];
    const LONG: Duration = Duration::from_secs(300);

    fn is_empty(turns: &Turns) -> bool {
        turns.queues().is_empty()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_run_one_by_one_and_no_queue_is_left() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(SLOT, [1; 32], LONG).await.unwrap();
        let _other_key = turns.take([2; 32], [1; 32], LONG).await.unwrap();
        assert_eq!(turns.take(SLOT, [1; 32], Duration::from_secs(1)).await.unwrap_err(), NoTurn::InProgress);
        let second = tokio::spawn({
            let turns = turns.clone();
            async move { turns.take(SLOT, [1; 32], LONG).await }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        drop((second.await.unwrap().unwrap(), _other_key));
        assert!(is_empty(&turns));
    }

    /// D1
    #[tokio::test(start_paused = true)]
    async fn a_different_request_is_a_mismatch_only_while_one_runs() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(SLOT, [1; 32], LONG).await.unwrap();
        let short = Duration::from_secs(1);
        assert_eq!(turns.take(SLOT, [2; 32], short).await.unwrap_err(), NoTurn::InProgress);
        let waits = turns.take(SLOT, [2; 32], short);
        let (waited, ()) = tokio::join!(waits, async { first.set_running([1; 32]) });
        assert_eq!(waited.unwrap_err(), NoTurn::Mismatch);
        assert_eq!(turns.take(SLOT, [2; 32], LONG).await.unwrap_err(), NoTurn::Mismatch);
        drop(first);
        turns.take(SLOT, [2; 32], LONG).await.unwrap();
        assert!(is_empty(&turns));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_queue_refuses() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(SLOT, [1; 32], LONG).await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..WAITING_MAX {
            let turns = turns.clone();
            waiting.spawn(async move { turns.take(SLOT, [1; 32], LONG).await.map(drop) });
        }
        while turns.queues()[&SLOT].members <= WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.take(SLOT, [1; 32], LONG).await.unwrap_err(), NoTurn::InProgress);
        drop(first);
        assert!(waiting.join_all().await.into_iter().all(|turn| turn.is_ok()));
        assert!(is_empty(&turns));
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_request_leaves_its_queue() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(SLOT, [1; 32], LONG).await.unwrap();
        let left = timeout(Duration::from_secs(1), turns.take(SLOT, [1; 32], LONG)).await;
        assert!(left.is_err());
        assert_eq!(turns.queues()[&SLOT].members, 1);
        drop(first);
        assert!(is_empty(&turns));
    }
}
