//! Delivers a message with crashes and duplicates, and compares the database.
use super::{delivery::Harness, snapshot::Snapshot};
use std::time::Duration;
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use twinbox_consumer::{DeliveryOutcome, EventHandler, private::unfinished};
use twinbox_core::{Message, Schema as _};
use twinbox_sql::{Dialect, inbox::Attempt};

/// How often a copy is delivered again while another one is being handled. Each claim waits two seconds.
const PATIENCE: u32 = 30;

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// Asserts that several deliveries of `event` have the same effect as one delivery.
    ///
    /// 1. The handler `H` runs, and its process dies before COMMIT. No row may stay behind.
    /// 2. Two copies arrive at the same time. One must be handled, the other must be a duplicate.
    /// 3. The acknowledgement is lost, and the message arrives twice more. No row may change.
    ///
    /// After steps 1 and 3 it compares all rows of the database and the [watched](Self::watch) lines, after
    /// step 2 the number of rows. It waits for tasks that the handler has spawned in this runtime, up to a
    /// second each time. The inbox protects all rows that the handler writes with its `tx`. So a
    /// difference was written with another connection, or outside the database. The event is handled when
    /// this returns.
    ///
    /// # Panics
    /// A row differs: the message lists the rows. Or the handler fails without a fault, the event was handled
    /// before, or the database does not answer.
    pub async fn assert_idempotent<H: EventHandler<DB, S>>(&self, event: H::Event) {
        let handler = H::POLICY.consumer();
        let message = self.message(event);
        let tasks = Tasks::count().await;
        let before = self.snapshot().await;
        let expected = self.crash_before_commit::<H>(&message).await;
        tasks.end().await;
        let after = self.snapshot().await;
        let stayed = before.difference(&after);
        assert!(stayed.is_empty(), "{}", report(handler, CRASHED, &stayed, ADVICE));

        let copies = (self.deliver_patiently::<H>(&message), self.deliver_patiently::<H>(&message));
        let (one, other) = tokio::join!(copies.0, copies.1);
        let one_each = [&one, &other].map(|outcome| *outcome == DeliveryOutcome::Handled);
        let outcomes = format!("  {one:?}\n  {other:?}\n");
        assert!(
            one_each[0] != one_each[1] && [&one, &other].contains(&&DeliveryOutcome::Duplicate),
            "{}",
            report(handler, AT_ONCE, &outcomes, "One must be handled, the other must be a duplicate.")
        );
        tasks.end().await;
        let once = self.snapshot().await;
        if once.counts() != expected.counts() {
            panic!("{}", report(handler, AT_ONCE, &expected.difference(&once), ADVICE));
        }

        for _ in 0..2 {
            let again = self.deliver::<H>(&message).await;
            assert_eq!(again, DeliveryOutcome::Duplicate, "`{handler}` was handled, and is delivered again");
        }
        tasks.end().await;
        let changed = once.difference(&self.snapshot().await);
        assert!(changed.is_empty(), "{}", report(handler, AGAIN, &changed, ADVICE));
    }

    /// Delivers again what no attempt was counted for, as a consumer does: the other copy holds the claim for
    /// longer than a claim waits, on a machine that is busy.
    async fn deliver_patiently<H: EventHandler<DB, S>>(&self, message: &Message) -> DeliveryOutcome {
        let mut outcome = self.deliver::<H>(message).await;
        for _ in 0..PATIENCE {
            if !matches!(outcome, DeliveryOutcome::Retried { counted: false, .. }) {
                break;
            }
            outcome = self.deliver::<H>(message).await;
        }
        outcome
    }

    /// Runs the handler, takes a snapshot in its transaction, and rolls back.
    async fn crash_before_commit<H: EventHandler<DB, S>>(&self, message: &Message) -> Snapshot {
        let mut attempt = self.unfinished::<H>(message).await;
        let seen = Snapshot::of::<DB>(&mut attempt.tx()).await;
        attempt.rollback().await;
        self.with_watched(seen.expect("the test's database is there"))
    }

    /// Runs the handler. Returns its transaction before COMMIT.
    pub(super) async fn unfinished<H: EventHandler<DB, S>>(&self, message: &Message) -> Attempt<DB> {
        let ran = unfinished::<DB, S, H>(&self.store, &self.state, message).await;
        ran.unwrap_or_else(|e| panic!("`{}` does not handle {}: {e}", H::POLICY.consumer(), H::Event::TYPE))
    }

    pub(super) async fn snapshot(&self) -> Snapshot {
        let mut conn = self.store.pool().acquire().await.expect("the test's database is there");
        self.with_watched(Snapshot::of::<DB>(&mut conn).await.expect("the test's database is there"))
    }

    fn with_watched(&self, mut snapshot: Snapshot) -> Snapshot {
        for (name, look) in &self.watched {
            snapshot.put(name, look(&self.state));
        }
        snapshot
    }
}

/// The tasks of the runtime that were there before a handler ran.
struct Tasks(usize);

impl Tasks {
    /// How long others are waited for: one may never end.
    const ENDS_WITHIN: Duration = Duration::from_secs(1);

    /// Counts them when those that are about to end have ended.
    async fn count() -> Self {
        let metrics = Handle::current().metrics();
        let (mut count, mut looks) = (metrics.num_alive_tasks(), 0);
        let steady = async {
            while looks < 20 {
                sleep(Duration::from_millis(1)).await;
                let now = metrics.num_alive_tasks();
                looks = if now == count { looks + 1 } else { 0 };
                count = now;
            }
        };
        let _ = timeout(Self::ENDS_WITHIN, steady).await;
        Self(count)
    }

    /// Waits until those that began since have ended. What they write late is seen then.
    async fn end(&self) {
        let metrics = Handle::current().metrics();
        let ended = async {
            while metrics.num_alive_tasks() > self.0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = timeout(Self::ENDS_WITHIN, ended).await;
    }
}

const CRASHED: &str =
    "The handler ran, and its process died before COMMIT. This stayed behind, and the retry does it again:";
const AT_ONCE: &str = "Two copies of one message were delivered at the same time:";
pub(super) const AGAIN: &str =
    "The message was handled, its acknowledgement was lost, and it was delivered again. This changed:";
pub(super) const ADVICE: &str = "Write rows with the `tx` of the handler. For a side effect, such as a mail \
                                 or a call, publish an\n\
     event with `tx`: a consumer of that event does the side effect.";

pub(super) fn report(handler: &str, what: &str, found: &str, advice: &str) -> String {
    format!("`{handler}` is not idempotent\n\n{what}\n\n{found}\n{advice}")
}
