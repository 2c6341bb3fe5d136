//! A consumer that is killed at each step of a delivery. Fault 25
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    log::{Names, run},
    stores::{Placed, World, effect},
    wait::in_time,
};
use std::{
    os::unix::process::ExitStatusExt as _,
    process::{Command, Stdio},
};
use twinbox::{CancellationToken, Consumer, Delivery, Dialect, HandlerResult, Store, Tx, event_handler};
use twinbox_core::crash;

/// Set in the process that is to consume from the database of this name and die.
const DATABASE: &str = "TWINBOX_TEST_CONSUMER";
const ORDERS: i64 = 20;

#[event_handler(consumer = "tests.killed", concurrency = 4)]
async fn note<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    effect::<DB>(tx, order.n).await?;
    crash::point("tests.after_write");
    Ok(())
}

fn consumer<DB: Dialect>(store: Store<DB>) -> Consumer<DB, ()> {
    Consumer::new(store, ()).handler::<note>()
}

/// Killed there at its first delivery, then at its seventh, and then let be.
async fn killed_at<DB: Names>(test: &str, point: &str) {
    if let Ok(url) = std::env::var(DATABASE) {
        consumer(DB::open(&url).await).run(CancellationToken::new()).await.unwrap();
        unreachable!("nobody asks it to stop");
    }
    let world = World::<DB>::new().await;
    publish(&world, 0..ORDERS).await;
    for nth in [1, 7] {
        let mut doomed = Command::new(std::env::current_exe().unwrap());
        doomed
            .args(["--exact", &format!("consumer::faults::killed::{}::{test}", DB::MODULE)])
            .env(DATABASE, world.url())
            .env("TWINBOX_CRASH_AT", format!("{point}:{nth}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = in_time(tokio::task::spawn_blocking(move || doomed.status())).await.unwrap().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}");
        assert!(world.rows("inbox").await < ORDERS);
        // A successor waits for the end of its lease, and for nothing else.
        let ended = format!("UPDATE {} SET lease_until = {}", DB::CURSORS, DB::LONG_AGO);
        run(&world, &ended).await.unwrap();
    }
    run_until(consumer((*world).clone()), async || world.rows("inbox").await == ORDERS).await;
    assert_eq!(world.effects().await, Vec::from_iter(0..ORDERS));
    assert_eq!((world.rows("attempts").await, world.rows("dead_letters").await), (0, 0));
}

macro_rules! killed {
    ($($test:ident: $point:literal,)+) => {
        $(async fn $test<DB: Names>() {
            killed_at::<DB>(stringify!($test), $point).await;
        })+
        cases! { all: [$($test),+] }
    };
}

killed! {
    row_25_killed_before_the_claim: "consumer.before_claim",
    row_25_killed_after_the_claim: "consumer.after_claim",
    row_25_killed_after_the_handlers_write: "tests.after_write",
    row_25_killed_before_the_commit: "consumer.before_commit",
    row_25_killed_after_the_commit: "consumer.after_commit",
    row_25_killed_before_the_acknowledgement: "consumer.before_ack",
    row_25_killed_after_the_acknowledgement: "consumer.after_ack",
}
