//! Handing a lease over to a process with fewer destinations.
use crate::support::{
    cases::cases,
    log::{Names, now, publish, row, run, run_until, settle_until},
    wait::in_time,
};
use std::time::Duration;
use twinbox::{
    CancellationToken, Dialect, Store, Timestamp,
    log::{Reader, ReaderOptions, Shares, Standby},
};
use uuid::Uuid;

/// One that does not end while a test runs.
const LEASE: Duration = Duration::from_secs(3600);

async fn try_open<DB: Dialect>(store: &Store<DB>, name: &str, owner: Uuid) -> Option<Reader<DB>> {
    Reader::open(store, name, owner, ReaderOptions::new().lease(LEASE)).await.unwrap()
}

/// Opens a reader for a destination, which counts, and writes that it does.
async fn own<DB: Names>(store: &Store<DB>, name: &str, shares: &Shares) -> (Reader<DB>, CancellationToken) {
    let mut reader = try_open(store, name, Uuid::now_v7()).await.unwrap();
    let leave = reader.join(shares);
    written(store, name, &mut reader).await;
    (reader, leave)
}

/// Runs the reader until it has written its cursor.
async fn written<DB: Names>(store: &Store<DB>, name: &str, reader: &mut Reader<DB>) {
    let text = Uuid::now_v7().to_string();
    let before = row(store, name).await;
    publish(store, None, &[&text]).await;
    settle_until(reader, &text).await;
    run_until(store, reader, name, |row| row != before).await;
}

/// Runs the reader until it is to be handed over, and closes it.
async fn hand_over<DB: Dialect>(mut reader: Reader<DB>, leave: &CancellationToken) {
    let asked = async {
        tokio::select! {
            () = leave.cancelled() => {}
            ended = reader.next(0) => panic!("without room there is nothing to return: {ended:?}"),
        }
    };
    in_time(asked).await;
    reader.close().await.unwrap();
}

async fn the_wisher_gets_the_lease<DB: Names>(store: &Store<DB>) {
    let (many, few, wisher) = (Shares::new(), Shares::new(), Uuid::now_v7());
    let (mut first, leave_first) = own(store, "first", &many).await;
    let (mut second, leave_second) = own(store, "second", &many).await;
    written(store, "first", &mut first).await;
    let standby = |name| Standby::new(store, name, wisher, LEASE, few.clone());
    let of_first = standby("first");
    of_first.look().await.unwrap();
    assert!(of_first.wishes());
    let late = Standby::new(store, "first", Uuid::now_v7(), LEASE, Shares::new());
    late.look().await.unwrap();
    assert!(!late.wishes(), "one process wishes for it at a time");

    publish(store, None, &["last"]).await;
    settle_until(&mut first, "last").await;
    hand_over(first, &leave_first).await;
    assert!(try_open(store, "first", Uuid::now_v7()).await.is_none(), "it is released for the wisher");
    let mut taken = try_open(store, "first", wisher).await.expect("it takes the lease at once");
    let leave_taken = taken.join(&few);
    assert_eq!((many.owned(), few.owned(), of_first.wishes()), (1, 1, false));

    written(store, "second", &mut second).await;
    written(store, "first", &mut taken).await;
    let of_second = standby("second");
    of_second.look().await.unwrap();
    assert!(!of_second.wishes(), "a difference of none moves nothing");
    assert!(!leave_second.is_cancelled() && !leave_taken.is_cancelled());
}

async fn a_wish_that_has_ended_holds_nothing<DB: Names>(store: &Store<DB>) {
    let many = Shares::new();
    let (mut first, leave) = own(store, "first", &many).await;
    let _second = own(store, "second", &many).await;
    written(store, "first", &mut first).await;
    let wisher = Standby::new(store, "first", Uuid::now_v7(), LEASE, Shares::new());
    wisher.look().await.unwrap();
    publish(store, None, &["last"]).await;
    settle_until(&mut first, "last").await;
    hand_over(first, &leave).await;
    let open = || try_open(store, "first", Uuid::now_v7());
    assert!(open().await.is_none());

    let ends = async |end: &str| {
        let sql = format!("UPDATE {} SET wished_until = {end} WHERE destination = 'first'", DB::CURSORS);
        run(store, &sql).await.unwrap();
    };
    ends(DB::LONG_AGO).await;
    open().await.expect("the wish has ended").close().await.unwrap();
    // The clock of the database was set back.
    let micros = i64::try_from(LEASE.as_micros()).unwrap();
    ends(&DB::time(Timestamp::from_micros(now(store).await + 2 * micros))).await;
    open().await.expect("no wish counts for longer than a lease").close().await.unwrap();
}

cases! {
    with a store:
    all: [the_wisher_gets_the_lease, a_wish_that_has_ended_holds_nothing]
}
