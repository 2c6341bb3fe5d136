//! Which deliveries say that they may not be the first.
use crate::support::{
    cases::cases,
    log::{Names, open, publish, settle_until, take},
};
use twinbox::Store;

async fn a_first_delivery_is_not_marked<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let mut reader = open(store, "d").await;
    for entry in take(&mut reader, 2).await {
        assert!(!entry.ticket.may_be_repeated);
        reader.settle(entry.ticket);
    }
    publish(store, None, &["c"]).await;
    assert!(!take(&mut reader, 1).await[0].ticket.may_be_repeated);
}

/// One stuck message holds the cursor while others are handed out, window after window. The mark is too
/// wide rather than too narrow, and ends.
async fn what_an_earlier_reader_may_have_handed_out_is_marked<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["stuck"]).await;
    let mut reader = open(store, "d").await;
    take(&mut reader, 1).await;
    for n in 0..8 {
        let name = n.to_string();
        publish(store, None, &[&name]).await;
        assert_eq!(settle_until(&mut reader, &name).await, [name], "a window of its own");
    }
    reader.close().await.unwrap();

    let mut reader = open(store, "d").await;
    let again = take(&mut reader, 9).await;
    assert!(again.iter().all(|entry| entry.ticket.may_be_repeated), "{again:?}");
    let mut marked = 0;
    loop {
        publish(store, None, &["new"]).await;
        if !take(&mut reader, 1).await[0].ticket.may_be_repeated {
            break;
        }
        marked += 1;
        assert!(marked <= 2, "it ends with the windows that an earlier reader can have read");
    }
}

cases! {
    with a store:
    all: [
        a_first_delivery_is_not_marked,
        what_an_earlier_reader_may_have_handed_out_is_marked,
    ]
}
