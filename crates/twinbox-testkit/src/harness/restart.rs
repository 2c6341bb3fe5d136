//! Delivers while the database goes away and comes back.
use super::{
    Harness,
    idempotence::{ADVICE, AGAIN, report},
};
use std::time::Duration;
use twinbox_consumer::{EventHandler, Outcome};
use twinbox_core::Message;
use twinbox_sql::Dialect;

/// How long the database may take until a delivery gets through again.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// Between two deliveries that find it away.
const PAUSE: Duration = Duration::from_millis(50);

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// Asserts that the handler `H` has the effect of one delivery of `event` although the database goes away
    ///
    /// 1. before COMMIT: nothing may stay behind, and the message is handled when it comes again;
    /// 2. after COMMIT, before anybody heard of it: nothing may change when it comes again.
    ///
    /// `restart` ends every connection and returns when the database can be reached again: kill and start a server of
    /// the test's own, or `SELECT pg_terminate_backend(pid) FROM pg_stat_activity …` from a connection of another
    /// database. On SQLite there is no server, and nothing to do.
    ///
    /// # Panics
    /// With the rows that differ. The handler fails even without a fault; the event was handled before; the database
    /// is not back within 30 s.
    pub async fn assert_survives_restart<H: EventHandler<DB, S>>(
        &self,
        event: H::Event,
        mut restart: impl AsyncFnMut(),
    ) {
        let handler = H::POLICY.consumer();
        let message = self.message(event);
        let before = self.snapshot().await;
        let attempt = self.unfinished::<H>(&message).await;
        restart().await;
        attempt.rollback().await;
        self.until_back().await;
        let stayed = before.difference(&self.snapshot().await);
        assert!(stayed.is_empty(), "{}", report(handler, INTERRUPTED, &stayed, ADVICE));

        assert_eq!(
            self.deliver_until_back::<H>(&message).await,
            Outcome::Handled,
            "`{handler}`, after a restart"
        );
        let once = self.snapshot().await;
        restart().await;
        let again = self.deliver_until_back::<H>(&message).await;
        assert_eq!(again, Outcome::Duplicate, "`{handler}` was handled before a restart");
        let changed = once.difference(&self.snapshot().await);
        assert!(changed.is_empty(), "{}", report(handler, AGAIN, &changed, ADVICE));
    }

    /// Connections that the restart ended are found out one by one.
    async fn deliver_until_back<H: EventHandler<DB, S>>(&self, message: &Message) -> Outcome {
        let delivered = async {
            loop {
                match self.deliver::<H>(message).await {
                    Outcome::Unavailable | Outcome::Retried { counted: false, .. } => {
                        tokio::time::sleep(PAUSE).await
                    }
                    outcome => return outcome,
                }
            }
        };
        tokio::time::timeout(BACK_WITHIN, delivered).await.expect("the database is back within 30 s")
    }

    async fn until_back(&self) {
        let back = async {
            while self.store.check().await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(BACK_WITHIN, back).await.expect("the database is back within 30 s");
    }
}

const INTERRUPTED: &str =
    "It ran, and the database went away before COMMIT. This stayed behind, and the retry does it again:";
