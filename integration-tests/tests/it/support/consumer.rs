//! Consumers in this process.
use super::{
    stores::{Placed, TestDb, World},
    wait::{eventually, in_time},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use tokio::sync::{Semaphore, mpsc};
use twinbox::{CancellationToken, Consumer, Dialect, Draft};

/// Runs the consumer until `done` returns true, then stops it and waits for its end.
pub(crate) async fn run_until<DB: Dialect, S: Send + Sync + 'static>(
    consumer: Consumer<DB, S>,
    mut done: impl AsyncFnMut() -> bool,
) {
    let stop = CancellationToken::new();
    let running = tokio::spawn(consumer.run(stop.clone()));
    eventually(async || (done().await || running.is_finished()).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// Commits `Placed { n }` for each n.
pub(crate) async fn publish<DB: TestDb>(world: &World<DB>, range: std::ops::Range<i64>) {
    let mut tx = world.begin().await.unwrap();
    let drafts = range.map(|n| Draft::of(&Placed { n }).unwrap()).collect();
    world.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
}

/// A gate for handlers: reports each entry, lets handlers out one by one, and counts the handlers inside.
pub(crate) struct Gate {
    entered: mpsc::UnboundedSender<i64>,
    pub(crate) leave: Semaphore,
    inside: AtomicUsize,
    pub(crate) most: AtomicUsize,
}

impl Gate {
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<i64>) {
        let (entered, entries) = mpsc::unbounded_channel();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        (Arc::new(Self { entered, leave: Semaphore::new(0), inside, most }), entries)
    }

    pub(crate) async fn pass(&self, n: i64) {
        self.most.fetch_max(self.inside.fetch_add(1, SeqCst) + 1, SeqCst);
        self.entered.send(n).unwrap();
        self.leave.acquire().await.unwrap().forget();
        self.inside.fetch_sub(1, SeqCst);
    }
}
