//! Delivers a message while the database restarts.
use super::{
    delivery::Harness,
    idempotence::{ADVICE, AGAIN, report},
};
use std::time::Duration;
use twinbox_consumer::{DeliveryOutcome, EventHandler};
use twinbox_core::Message;
use twinbox_sql::Dialect;

/// Time-out for the first delivery after a restart.
const BACK_WITHIN: Duration = Duration::from_secs(30);
/// Pause between two deliveries while the database does not answer.
const PAUSE: Duration = Duration::from_millis(50);

impl<DB: Dialect, S: Send + Sync + 'static> Harness<DB, S> {
    /// Asserts that `event` has the effect of one delivery although the database restarts.
    ///
    /// 1. It restarts before the COMMIT of the handler `H`. No row may stay behind, and the redelivery is
    ///    handled.
    /// 2. It restarts after the COMMIT, before the result is known. The redelivery may change no row.
    ///
    /// `restart` must end every connection, and return when the database accepts connections again. It kills
    /// and starts a server of the test, or runs `SELECT pg_terminate_backend(pid) FROM pg_stat_activity …` on
    /// another database. On SQLite there is no server, and it does nothing.
    ///
    /// # Panics
    /// A row differs: the message lists the rows. Or the handler fails without a fault, the event was handled
    /// before, or the database does not answer within 30 s.
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
            DeliveryOutcome::Handled,
            "`{handler}`, delivered after a restart"
        );
        let once = self.snapshot().await;
        restart().await;
        let again = self.deliver_until_back::<H>(&message).await;
        assert_eq!(again, DeliveryOutcome::Duplicate, "`{handler}` was handled before the restart");
        let changed = once.difference(&self.snapshot().await);
        assert!(changed.is_empty(), "{}", report(handler, AGAIN, &changed, ADVICE));
    }

    /// Delivers until the database answers. Each connection of the pool fails once after the restart.
    async fn deliver_until_back<H: EventHandler<DB, S>>(&self, message: &Message) -> DeliveryOutcome {
        let delivered = async {
            loop {
                match self.deliver::<H>(message).await {
                    DeliveryOutcome::Unavailable | DeliveryOutcome::Retried { counted: false, .. } => {
                        tokio::time::sleep(PAUSE).await
                    }
                    outcome => return outcome,
                }
            }
        };
        tokio::time::timeout(BACK_WITHIN, delivered).await.expect("the database answers within 30 s")
    }

    async fn until_back(&self) {
        let back = async {
            while self.store.check().await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(BACK_WITHIN, back).await.expect("the database answers within 30 s");
    }
}

const INTERRUPTED: &str = "The handler ran, and the database restarted before COMMIT. This stayed behind, \
                           and the retry does it \
     again:";
