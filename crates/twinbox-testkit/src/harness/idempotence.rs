//! Delivers as a bad day does, and compares the database.
use super::{Harness, snapshot::Snapshot};
use twinbox_consumer::{EventHandler, Outcome, private::unfinished};
use twinbox_core::{Message, Schema as _};
use twinbox_sql::{Dialect, inbox::Attempt};

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// Asserts that the handler `H` has the effect of one delivery of `event`, whatever happens to it:
    ///
    /// 1. It runs, and its process dies before COMMIT: nothing may stay behind.
    /// 2. Two copies are delivered at once: one is handled, and the other is a duplicate.
    /// 3. Its acknowledgement is lost, and it is delivered twice more: nothing may change.
    ///
    /// After the first and the last the whole database is compared, and what is [watched](Self::watch); after the second
    /// how many rows there are. In the database the inbox sees
    /// to this for everything that is written with the handler's `tx`, so what is found was written by another
    /// way, or done outside of the database. The event is handled when this returns.
    ///
    /// # Panics
    /// With the rows that differ. The handler fails even without a fault; the event was handled before; the
    /// database is away.
    pub async fn assert_idempotent<H: EventHandler<DB, S>>(&self, event: H::Event) {
        let handler = H::POLICY.consumer();
        let message = self.message(event);
        let before = self.snapshot().await;
        let expected = self.crash_before_commit::<H>(&message).await;
        let after = self.snapshot().await;
        let stayed = before.difference(&after);
        assert!(stayed.is_empty(), "{}", report(handler, CRASHED, &stayed, ADVICE));

        let copies = (self.deliver::<H>(&message), self.deliver::<H>(&message));
        let (one, other) = tokio::join!(copies.0, copies.1);
        let one_each = [&one, &other].map(|outcome| *outcome == Outcome::Handled);
        let outcomes = format!("  {one:?}\n  {other:?}\n");
        assert!(
            one_each[0] != one_each[1] && [&one, &other].contains(&&Outcome::Duplicate),
            "{}",
            report(handler, AT_ONCE, &outcomes, "One of them is to be handled, and the other a duplicate.")
        );
        let once = self.snapshot().await;
        if once.counts() != expected.counts() {
            panic!("{}", report(handler, AT_ONCE, &expected.difference(&once), ADVICE));
        }

        for _ in 0..2 {
            let again = self.deliver::<H>(&message).await;
            assert_eq!(again, Outcome::Duplicate, "`{handler}` was handled, and is delivered again");
        }
        let changed = once.difference(&self.snapshot().await);
        assert!(changed.is_empty(), "{}", report(handler, AGAIN, &changed, ADVICE));
    }

    /// Runs the handler, looks at what its transaction sees, and rolls back.
    async fn crash_before_commit<H: EventHandler<DB, S>>(&self, message: &Message) -> Snapshot {
        let mut attempt = self.unfinished::<H>(message).await;
        let seen = Snapshot::of::<DB>(&mut attempt.tx()).await;
        attempt.rollback().await;
        self.with_watched(seen.expect("the test's database is there"))
    }

    /// The transaction of the handler before its COMMIT.
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

const CRASHED: &str =
    "It ran, and its process died before COMMIT. This stayed behind, and the retry does it again:";
const AT_ONCE: &str = "Two copies of one message were delivered at once:";
pub(super) const AGAIN: &str =
    "It was handled, its acknowledgement was lost, and it was delivered again. This changed:";
pub(super) const ADVICE: &str = "Write what must happen once with the handler's `tx`. What leaves the database, a mail or a call,\n\
     is written there as well, and done by whoever reads it.";

pub(super) fn report(handler: &str, what: &str, found: &str, advice: &str) -> String {
    format!("`{handler}` is not idempotent\n\n{what}\n\n{found}\n{advice}")
}
