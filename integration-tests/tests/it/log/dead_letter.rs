//! The event that tells of a dead letter.
use crate::support::{
    cases::cases,
    log::{Names, draft, open_with, publish, publish_all, take, text},
    stores::chain,
};
use std::time::Duration;
use twinbox::{
    Dialect, Draft, ErrorKind, Store,
    log::{DEAD_LETTER, Entry, Reader, ReaderOptions, parking::ParkedState},
    ops::Ops,
};

async fn next<DB: Dialect>(reader: &mut Reader<DB>) -> Entry {
    take(reader, 1).await.remove(0)
}

/// It comes once, with what a person needs, and a dead letter that tells of another tells nothing.
async fn an_event_tells_of_it_in_the_same_transaction<DB: Names>(store: &Store<DB>) {
    let options = ReaderOptions::new().parking(true).dead_letter_events(true);
    let mut reader = open_with(store, "d", options).await;
    publish_all(store, vec![draft(Some("k"), "a").id("order-1").correlation_id("operation")]).await;
    let entry = next(&mut reader).await;
    let message_id = entry.message.message_id().to_string();
    reader.park(entry, ParkedState::Waiting(Duration::ZERO), 1, "test.again");
    let entry = next(&mut reader).await;
    assert_eq!((&*entry.message.id, entry.ticket.attempt), ("order-1", 2), "waiting is no news");
    reader.park(entry, ParkedState::DeadHoldingKey, 2, "test.refused");

    let entry = next(&mut reader).await;
    assert_eq!(entry.message.event_type, DEAD_LETTER);
    assert_eq!(entry.message.correlation_id.as_deref(), Some("operation"));
    let told: serde_json::Value = serde_json::from_str(&text(&entry)).unwrap();
    let expected = serde_json::json!({
        "destination": "d", "message_id": message_id, "source": store.service(), "event_id": "order-1",
        "event_type": "test.happened", "key": "k", "sequence": 1, "attempts": 2, "error": "test.refused",
    });
    assert_eq!(told, expected);
    assert_eq!(Ops::new(store).parked_messages("d", 10).await.unwrap()[0].state, "dead");

    reader.park(entry, ParkedState::Dead, 1, "test.refused");
    publish(store, None, &["b"]).await;
    assert_eq!(text(&next(&mut reader).await), "b");
}

/// Whoever believes such an event has it from a relay, unless SQL has inserted it.
async fn an_application_publishes_no_event_of_twinbox<DB: Names>(store: &Store<DB>) {
    let mut tx = store.begin().await.unwrap();
    let forged = || Draft::raw(DEAD_LETTER, 1, "{}");
    let one = store.outbox().publish_draft(&mut tx, forged()).await.unwrap_err();
    let many = store.outbox().publish_all(&mut tx, vec![forged()]).await.unwrap_err();
    for error in [one, many] {
        assert_eq!(error.kind(), ErrorKind::InvalidDraft);
        assert!(chain(&error).contains("`type` is reserved"), "{error}");
    }
}

cases! {
    with a store:
    all: [
        an_application_publishes_no_event_of_twinbox,
        an_event_tells_of_it_in_the_same_transaction,
    ]
}
