//! Readers that are behind for too long, or gone for good.
use crate::support::{
    cases::cases,
    database, helper,
    log::{Names, open, open_with, publish, row, run, run_until, settle_until, take},
    wait::{eventually, in_time},
};
use sqlx::{AssertSqlSafe, Postgres};
use std::time::Duration;
use twinbox::{
    Dialect, ErrorKind, Store,
    log::{Log, OnMaxLag, Reader, ReaderOptions, Retention, StartPosition, parking::ParkedState, plans},
    operation::{OperationKey, OperationPolicy},
    ops::{Ops, RetireReport},
};
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);

/// A destination that settles everything there is.
async fn settle_all<DB: Names>(store: &Store<DB>, destination: &str, last: &str) {
    let mut reader = open(store, destination).await;
    settle_until(&mut reader, last).await;
    run_until(store, &mut reader, destination, |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
}

/// A destination that starts at the beginning and settles nothing.
async fn fall_behind<DB: Names>(store: &Store<DB>, destination: &str) {
    open(store, destination).await.close().await.unwrap();
}

/// A destination is behind by the times of ticks, or of messages.
const AGES: [(&str, &str); 2] = [("ticks", "taken_at"), ("outbox", "time")];

/// What happened until now, happened an hour ago.
async fn pass_an_hour<DB: Names>(store: &Store<DB>) {
    let ages = if DB::ONE_WRITER { [("outbox", "time")].to_vec() } else { AGES.to_vec() };
    for (table, column) in ages {
        let of_row = if table == "ticks" { "id > 0" } else { "true" };
        let (table, earlier) = (DB::table_of(table), DB::earlier(column, 3600));
        run(store, &format!("UPDATE {table} SET {column} = {earlier} WHERE {of_row}")).await.unwrap();
    }
}

fn detach(keep: Duration, max_lag: Duration) -> Retention {
    Retention::new(keep).max_lag(max_lag, OnMaxLag::Detach)
}

async fn purge<DB: Dialect>(store: &Store<DB>, retention: Retention) -> (u64, Option<String>, Vec<String>) {
    let purged = Log::new(store).purge(retention).await.unwrap();
    (purged.messages, purged.slowest_reader, purged.lagging)
}

#[track_caller]
fn retired(retired: Result<RetireReport, twinbox::Error>) -> (bool, u64) {
    let retired = retired.unwrap();
    (retired.had_cursor, retired.parked)
}

async fn nothing_is_kept_for_a_retired_destination<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b", "c"]).await;
    let mut gone = open_with(store, "gone", ReaderOptions::new().parking(true)).await;
    for entry in take(&mut gone, 2).await {
        gone.park(entry, ParkedState::Dead, 1, "test.refused");
    }
    gone.close().await.unwrap();
    settle_all(store, "d", "c").await;
    publish(store, None, &["newest"]).await;
    settle_all(store, "d", "newest").await;
    let held = Log::new(store).purge(Duration::ZERO).await.unwrap();
    assert_eq!((held.messages, held.slowest_reader.as_deref()), (0, Some("gone")));

    assert_eq!(retired(Ops::new(store).retire("gone").await), (true, 2));
    assert_eq!(retired(Ops::new(store).retire("gone").await), (false, 0));
    assert!(Ops::new(store).parked_messages("gone", 10).await.unwrap().is_empty());
    let kept = if DB::MODULE == "postgres" { 0 } else { 1 };
    let purged = Log::new(store).purge(Duration::ZERO).await.unwrap();
    assert_eq!((purged.messages, purged.slowest_reader), (4 - kept, None));
}

async fn a_destination_with_a_reader_is_not_retired<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    let mut reader = open_with(store, "d", ReaderOptions::new().lease(HOUR).parking(true)).await;
    let entry = take(&mut reader, 1).await.remove(0);
    reader.park(entry, ParkedState::Dead, 1, "test.refused");
    run_until(store, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    let refused = Ops::new(store).retire("d").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LeaseHeld);
    assert_eq!(Ops::new(store).parked_messages("d", 10).await.unwrap().len(), 1, "nothing is forgotten");
    reader.close().await.unwrap();
    assert_eq!(retired(Ops::new(store).retire("d").await), (true, 1));

    let crashed = open_with(store, "d", ReaderOptions::new().lease(Duration::from_millis(50))).await;
    drop(crashed);
    eventually(async || Ops::new(store).retire("d").await.ok()).await;
}

async fn a_destination_too_far_behind_blocks_or_is_detached<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b", "c"]).await;
    fall_behind(store, "slow").await;
    settle_all(store, "quick", "c").await;
    pass_an_hour(store).await;
    publish(store, None, &["d"]).await;
    settle_all(store, "quick", "d").await;
    let slow = || vec!["slow".to_owned()];

    let patient = Retention::new(HOUR / 2).max_lag(2 * HOUR, OnMaxLag::Block);
    assert_eq!(purge(store, patient).await, (0, Some("slow".to_owned()), vec![]));
    let block = Retention::new(HOUR / 2).max_lag(HOUR / 2, OnMaxLag::Block);
    assert_eq!(purge(store, block).await, (0, Some("slow".to_owned()), slow()));
    let kept_anyway = detach(2 * HOUR, HOUR / 2);
    assert_eq!(purge(store, kept_anyway).await, (0, None, vec![]), "nothing would be gained");
    open(store, "slow").await.close().await.unwrap();

    assert_eq!(purge(store, detach(HOUR / 2, HOUR / 2)).await, (3, None, slow()));
    assert_eq!(purge(store, detach(HOUR / 2, HOUR / 2)).await, (0, None, vec![]));
    let refused = Reader::open(store, "slow", Uuid::now_v7(), ReaderOptions::new()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Detached);
    assert!(!refused.is_transient());
    let readers = Ops::new(store).readers().await.unwrap();
    let detached: Vec<_> =
        readers.iter().filter(|r| r.is_detached && r.lease.is_none()).map(|r| &*r.name).collect();
    assert_eq!(detached, ["slow"]);
    assert!(
        refused.to_string().contains("Retire it (`twinbox destinations retire slow`), start it again"),
        "{refused}"
    );

    assert_eq!(retired(Ops::new(store).retire("slow").await), (true, 0));
    let mut again = open_with(store, "slow", ReaderOptions::new().start(StartPosition::Beginning)).await;
    assert_eq!(settle_until(&mut again, "d").await, ["d"]);
}

async fn the_only_reader_can_be_detached<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    fall_behind(store, "only").await;
    let mut reader = open(store, "only").await;
    take(&mut reader, 2).await;
    reader.close().await.unwrap();
    pass_an_hour(store).await;
    publish(store, None, &["c"]).await;
    let purged = purge(store, detach(HOUR / 2, Duration::ZERO)).await;
    assert_eq!(purged, (2, None, vec!["only".to_owned()]));
}

/// It is fenced off before the first message that it needs is deleted.
async fn a_reader_that_runs_is_detached_all_the_same<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a", "b"]).await;
    let owner = Uuid::now_v7();
    let mut slow = Reader::open(store, "slow", owner, ReaderOptions::new()).await.unwrap().unwrap();
    let handed_out = take(&mut slow, 2).await;
    settle_all(store, "quick", "b").await;
    pass_an_hour(store).await;
    publish(store, None, &["c"]).await;
    assert_eq!(purge(store, detach(HOUR / 2, Duration::ZERO)).await.0, 2);
    for entry in handed_out {
        slow.settle(entry.ticket);
    }
    let lost = in_time(async {
        loop {
            match slow.next(0).await {
                Ok(_) => {}
                Err(error) => return error,
            }
        }
    })
    .await;
    assert_eq!(lost.kind(), ErrorKind::LeaseLost);
    let refused = Reader::open(store, "slow", owner, ReaderOptions::new()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Detached);
}

async fn who_has_settled_everything_is_not_behind<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    settle_all(store, "idle", "a").await;
    pass_an_hour(store).await;
    publish(store, None, &["b"]).await;
    settle_all(store, "quick", "b").await;
    pass_an_hour(store).await;
    run_tick(store).await;
    // What came since is not old enough, and of what is, it has settled everything.
    assert_eq!(purge(store, detach(HOUR * 3 / 2, HOUR * 3 / 2)).await.2, [""; 0]);
    assert_eq!(purge(store, detach(HOUR / 2, HOUR / 2)).await.2, ["idle"]);
}

/// A look at the log.
async fn run_tick<DB: Names>(store: &Store<DB>) {
    let newest = sqlx::query_scalar::<DB, i64>(AssertSqlSafe(plans::newest(store)));
    newest.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap();
}

/// In the middle of a window, all that is old of it.
async fn what_is_settled_of_a_window_is_not_behind(store: &Store<Postgres>) {
    publish(store, None, &["a", "b"]).await;
    settle_all(store, "quick", "b").await;
    pass_an_hour(store).await;
    publish(store, None, &["c"]).await;
    run_tick(store).await;
    // In another process: this one need not look again so soon, and then begins with a window before that
    // tick.
    let elsewhere = Store::new(store.pool().clone(), store.service()).unwrap();
    let mut slow = open(&elsewhere, "slow").await;
    let mut entries = take(&mut slow, 3).await.into_iter();
    slow.settle(entries.next().unwrap().ticket);
    run_until(store, &mut slow, "slow", |row| row.position > 0).await;
    let look = Retention::new(2 * HOUR).max_lag(HOUR / 2, OnMaxLag::Block);
    assert_eq!(purge(store, look).await.2, ["slow"], "it has yet to settle `b`");
    slow.settle(entries.next().unwrap().ticket);
    run_until(store, &mut slow, "slow", |row| row.position > 1 && row.p < row.w).await;
    assert_eq!(purge(store, look).await.2, [""; 0]);
}

/// Runs the program, which ends well, and answers with what it says.
async fn program(url: &str, arguments: &[&str]) -> String {
    let destination = "TWINBOX_RELAY__DESTINATIONS__D__";
    let mut command = tokio::process::Command::new(helper::program("twinbox-relay"));
    command
        .args(arguments)
        .env("TWINBOX_RELAY__DATABASE__URL", url)
        .env("TWINBOX_RELAY__DATABASE__SERVICE", database::SERVICE)
        .env(format!("{destination}KIND"), "nats")
        .env(format!("{destination}URL"), "nats://127.0.0.1:1")
        .env(format!("{destination}STREAM"), "S");
    let output = in_time(command.output()).await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), !said.contains("twinbox-relay: "), "{arguments:?}: {said}");
    said
}

async fn the_program_looks_after_a_log<DB: Names>(store: &Store<DB>, url: &str) {
    publish(store, None, &["a", "b"]).await;
    fall_behind(store, "slow").await;
    settle_all(store, "quick", "b").await;
    pass_an_hour(store).await;
    publish(store, None, &["c"]).await;
    let at_once = OperationPolicy { keep: Duration::ZERO, ..OperationPolicy::default() };
    let key = OperationKey { key: "a".into(), ..OperationKey::default() };
    store.operation(&key, "", &at_once, async |_| Ok(())).await.unwrap();
    let says = program(url, &["purge", "--keep", "10m", "--max-lag", "20m"]).await;
    assert!(says.contains("0 messages deleted\n1 expired idempotency keys deleted\n"), "{says}");
    assert!(says.contains("\n\"slow\" is too far behind: all messages"), "{says}");
    let purge = ["purge", "--keep", "10m", "--max-lag", "20m", "--on-max-lag", "detach"];
    let says = program(url, &purge).await;
    assert!(says.contains("2 messages deleted\n\"slow\" is too far behind: it is detached"), "{says}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_looks_after_a_log_in_postgres() {
    let database = database::postgres().await;
    the_program_looks_after_a_log(&database, database.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_looks_after_a_log_in_sqlite() {
    let database = database::sqlite().await;
    the_program_looks_after_a_log(&database, &format!("sqlite:{}", database.url())).await;
}

/// The destination that is made anew counts its owners from the start again.
async fn an_owner_from_before_a_destination_was_retired_writes_nothing<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["a"]).await;
    for parks in [true, false] {
        let mut old = open_with(store, "d", ReaderOptions::new().parking(true)).await;
        let entry = take(&mut old, 1).await.remove(0);
        // It stands still, and its lease ends.
        run(store, &format!("UPDATE {} SET lease_until = {}", DB::CURSORS, DB::LONG_AGO)).await.unwrap();
        assert!(Ops::new(store).retire("d").await.unwrap().had_cursor);
        let new = open_with(store, "d", ReaderOptions::new().parking(true)).await;
        let before = row(store, "d").await;
        match parks {
            true => old.park(entry, ParkedState::Dead, 1, "test.refused"),
            false => old.settle(entry.ticket),
        }
        assert_eq!(old.close().await.unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(row(store, "d").await, before);
        assert!(
            Ops::new(store).parked_messages("d", 10).await.unwrap().is_empty(),
            "of another destination's life"
        );
        new.close().await.unwrap();
        assert!(Ops::new(store).retire("d").await.unwrap().had_cursor);
    }
}

cases! {
    with a store:
    all: [
        nothing_is_kept_for_a_retired_destination,
        a_destination_with_a_reader_is_not_retired,
        a_destination_too_far_behind_blocks_or_is_detached,
        the_only_reader_can_be_detached,
        a_reader_that_runs_is_detached_all_the_same,
        who_has_settled_everything_is_not_behind,
        an_owner_from_before_a_destination_was_retired_writes_nothing,
    ]
    postgres: [
        what_is_settled_of_a_window_is_not_behind,
    ]
}
