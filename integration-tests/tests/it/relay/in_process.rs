//! A destination that has begun to store a message and never ends, as a stream whose leader was lost.
use super::*;
use std::sync::{Arc, Mutex};
use twinbox::{
    log::StartPosition,
    relay::CircuitBreakerState,
    seam::{
        BoxFuture,
        destination::{
            Acknowledgement, Acknowledgements, Destination, DestinationSecret, Outgoing, PublishError,
            PublishErrorKind, Publisher, Receipt, acknowledgements,
        },
    },
};

/// Stores messages by their keys. The first name of one key is in process for ever.
#[derive(Clone, Default)]
struct Stuck(Arc<Mutex<Vec<(String, u32)>>>);

impl Destination for Stuck {
    fn id(&self) -> &str {
        "stuck"
    }

    fn connect<'a>(
        &'a self,
        _: &'a DestinationSecret,
    ) -> BoxFuture<'a, Result<Box<dyn Publisher>, PublishError>> {
        Box::pin(async { Ok(Box::new(self.clone()) as Box<dyn Publisher>) })
    }
}

impl Publisher for Stuck {
    fn send<'a>(&'a mut self, batch: &'a [Outgoing<'a>]) -> BoxFuture<'a, Acknowledgements> {
        let answer = |Outgoing { message, name, .. }: &Outgoing<'_>| {
            let key = message.key.clone().unwrap_or_default();
            if key == "stuck" && *name == 0 {
                return Err(PublishError::new(PublishErrorKind::InProcess, "test.in_process"));
            }
            self.0.lock().unwrap().push((key, *name));
            Ok(Receipt { is_duplicate: false })
        };
        let each = batch.iter().map(|outgoing| {
            let answer = answer(outgoing);
            Box::pin(async { answer }) as Acknowledgement
        });
        let each = each.collect();
        Box::pin(async { acknowledgements(each) })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn health(&self) -> BoxFuture<'_, Result<(), PublishError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_in_process_for_ever_stops_no_other_and_is_sent_under_another_name() {
    let (store, destination) = (database::postgres().await, Stuck::default());
    let mut tx = store.begin().await.unwrap();
    let keys = (0..200).map(|n| if n == 3 { "stuck".to_owned() } else { format!("k-{n}") });
    let drafts = keys.map(|key| Draft::raw("orders.placed", 1, "{}").key(key)).collect();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let options = RelayOptions::new().start(StartPosition::Beginning);
    let running = Running::run(Relay::with_options((*store).clone(), destination.clone(), options));
    running.published(199).await;
    assert_eq!(running.breaker.state(), CircuitBreakerState::Closed);
    running.published(200).await;
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.parked(), counters.refused()), (200, 0, 0));
    let stored = destination.0.lock().unwrap().clone();
    assert_eq!(stored.iter().filter(|(key, name)| key == "stuck" && *name == 1).count(), 1);
    assert!(stored.iter().all(|(key, name)| key == "stuck" || *name == 0));
}
