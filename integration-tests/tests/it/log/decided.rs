//! What an operator has decided about a parked message stays decided, whoever is trying it meanwhile.
use crate::support::{
    cases::cases,
    log::{Names, draft, open_with, publish, publish_all, settle_until, take, text},
};
use std::time::Duration;
use twinbox::{
    Store,
    log::{Entry, Reader, ReaderOptions, parking::ParkedState},
    ops::{Ops, dead_letters::DeadLetterId},
};

/// A message that was parked, and is on its way again.
async fn retried<DB: Names>(store: &Store<DB>) -> (Reader<DB>, Entry) {
    publish_all(store, vec![draft(Some("k"), "a").id("a")]).await;
    let mut reader = open_with(store, "d", ReaderOptions::new().parking(true)).await;
    let first = take(&mut reader, 1).await.remove(0);
    reader.park(first, ParkedState::Waiting(Duration::ZERO), 1, "test.first");
    let again = take(&mut reader, 1).await.remove(0);
    assert_eq!(text(&again), "a");
    (reader, again)
}

async fn states<DB: Names>(store: &Store<DB>) -> Vec<String> {
    Ops::new(store).parked_messages("d", 10).await.unwrap().into_iter().map(|parked| parked.state).collect()
}

async fn discard<DB: Names>(store: &Store<DB>) {
    let position = Ops::new(store).parked_messages("d", 10).await.unwrap()[0].message.sequence.unwrap();
    let dead_letter = DeadLetterId::OfDestination("d".to_owned(), i64::try_from(position).unwrap());
    assert_eq!(Ops::new(store).discard(&[dead_letter]).await.unwrap(), 1);
}

async fn a_message_that_is_skipped_while_it_is_tried_stays_given_up<DB: Names>(store: &Store<DB>) {
    let (mut reader, again) = retried(store).await;
    assert_eq!(Ops::new(store).skip_parked("d", "a").await.unwrap(), 1);
    reader.park(again, ParkedState::Waiting(Duration::ZERO), 2, "test.second");
    publish(store, Some("k"), &["b"]).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
    reader.close().await.unwrap();
    assert_eq!(states(store).await, ["dead"]);
}

async fn a_message_that_is_discarded_while_it_is_tried_does_not_come_back<DB: Names>(store: &Store<DB>) {
    let (mut reader, again) = retried(store).await;
    assert_eq!(Ops::new(store).skip_parked("d", "a").await.unwrap(), 1);
    discard(store).await;
    reader.park(again, ParkedState::Waiting(Duration::ZERO), 2, "test.second");
    publish(store, Some("k"), &["b"]).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
    reader.close().await.unwrap();
    assert_eq!(states(store).await, [""; 0]);
}

/// A reader that starts anew begins behind what is settled, and a parked message is.
async fn a_discarded_message_is_not_tried_by_the_next_reader<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let mut reader = open_with(store, "d", ReaderOptions::new().parking(true)).await;
    let first = take(&mut reader, 1).await.remove(0);
    reader.park(first, ParkedState::Dead, 1, "test.refused");
    reader.close().await.unwrap();
    discard(store).await;
    publish(store, None, &["b"]).await;
    let mut reader = open_with(store, "d", ReaderOptions::new().parking(true)).await;
    assert_eq!(settle_until(&mut reader, "b").await, ["b"]);
}

cases! {
    with a store:
    all: [
        a_message_that_is_skipped_while_it_is_tried_stays_given_up,
        a_message_that_is_discarded_while_it_is_tried_does_not_come_back,
        a_discarded_message_is_not_tried_by_the_next_reader,
    ]
}
