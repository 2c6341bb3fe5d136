//! The log engine: windows, cursors, leases, on real databases.
//!
//! A case is written once, for any database, and listed once below; each case on each database is one test.
//! Tests that need a server or a schema of their own stand in their modules.
mod crash;
mod dead_letter;
mod decided;
mod gone;
mod hostile;
mod late;
mod lease;
mod plans;
mod producers;
mod progress;
mod rebase;
mod repeated;
mod replayed;
mod restore;
mod retention;
mod start;
mod status;
mod thinned;

use sqlx::AssertSqlSafe;
use std::{future::Future, time::Duration};
use twinbox::{
    Dialect, Draft, Store,
    log::{Entry, Reader, ReaderOptions},
};
use uuid::Uuid;

macro_rules! test {
    ($database:ident, $module:ident, $case:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $case() {
            let database = twinbox_testkit::database::$database().await;
            crate::log::in_time(crate::log::$module::$case(&database)).await;
        }
    };
}

macro_rules! cases {
    (every database: [$($module:ident::$case:ident)+] only postgres: [$($late:ident::$postgres:ident)+]
     only sqlite: [$($other:ident::$sqlite:ident)+]) => {
        mod postgres {
            $(test!(postgres, $module, $case);)+
            $(test!(postgres, $late, $postgres);)+
        }
        mod sqlite {
            $(test!(sqlite, $module, $case);)+
            $(test!(sqlite, $other, $sqlite);)+
        }
    };
}

cases! {
    every database: [
    start::a_new_cursor_starts_at_the_beginning
    start::now_is_after_everything_committed
    start::a_time_is_there_or_before
    start::a_time_before_everything_is_the_beginning
    start::the_start_is_only_for_a_new_cursor
    start::readers_that_start_now_together_all_start
    start::other_partitions_are_refused_with_the_steps_to_take
    start::a_destination_id_that_cannot_be_kept_is_refused
    lease::a_second_reader_gets_nothing
    lease::a_released_lease_is_taken_at_once
    lease::the_same_owner_takes_over_at_once
    lease::a_reader_that_runs_keeps_its_lease
    lease::an_expired_lease_is_taken_over
    lease::the_reader_before_a_takeover_cannot_close
    lease::a_cursor_that_moved_is_not_overwritten
    lease::nothing_is_handed_out_in_the_time_held_back
    progress::the_lowest_unfinished_message_holds_the_cursor
    progress::a_crash_redelivers_exactly_what_was_not_recorded
    progress::messages_of_a_key_go_one_at_a_time_and_in_order
    progress::one_hot_key_does_not_stop_a_page
    progress::a_retried_message_holds_its_key_and_no_other
    progress::next_is_cancel_safe
    progress::destinations_know_nothing_of_each_other
    repeated::a_first_delivery_is_not_marked
    repeated::what_an_earlier_reader_may_have_handed_out_is_marked
    producers::a_row_of_plain_sql_is_delivered
    producers::what_breaks_a_bound_is_refused_by_the_database
    producers::a_rolled_back_message_is_never_delivered
    retention::only_what_is_old_and_settled_by_all_goes
    retention::without_a_reader_nothing_goes
    retention::what_is_parked_stays
    retention::all_of_many_goes
    gone::nothing_is_kept_for_a_retired_destination
    gone::a_destination_with_a_reader_is_not_retired
    gone::a_destination_too_far_behind_blocks_or_is_detached
    gone::the_only_reader_can_be_detached
    gone::a_reader_that_runs_is_detached_all_the_same
    gone::who_has_settled_everything_is_not_behind
    rebase::a_log_that_was_not_restored_is_left_alone
    decided::a_message_that_is_skipped_while_it_is_tried_stays_given_up
    decided::a_message_that_is_discarded_while_it_is_tried_does_not_come_back
    decided::a_discarded_message_is_not_tried_by_the_next_reader
    gone::an_owner_from_before_a_destination_was_retired_writes_nothing
    dead_letter::an_event_tells_of_it_in_the_same_transaction
    replayed::what_is_not_settled_is_not_read_again
    replayed::a_replay_goes_on_where_it_was
    replayed::a_selection_selects_what_it_says
    replayed::marks_of_a_producer_are_taken_away
    replayed::the_log_is_kept_for_a_replay_until_it_ends
    replayed::a_replay_is_held_with_its_destination
    replayed::who_reads_for_a_replay_hears_that_it_was_cancelled
    status::a_backlog_is_counted
    status::a_lease_is_a_heartbeat
    thinned::a_lease_from_the_future_has_ended
    status::what_is_parked_is_counted_by_state
    status::a_breaker_opened_by_hand_holds_everything
    ]
    only postgres: [
    start::a_tick_that_a_new_cursor_starts_at_is_kept
    retention::a_purge_and_a_redaction_take_turns
    late::a_late_commit_is_not_skipped
    late::late_commits_out_of_savepoints_are_not_skipped
    late::an_open_snapshot_holds_nothing_up
    late::empty_windows_are_no_messages
    replayed::late_commits_are_read_again_once
    producers::an_invented_txid_is_refused
    restore::the_sentinel_survives_vacuum_and_migration
    restore::a_sequence_that_caches_is_refused
    retention::a_late_commit_outlives_what_came_before_it
    gone::what_is_settled_of_a_window_is_not_behind
    ]
    only sqlite: [
    producers::a_position_below_the_first_is_refused
    ]
}

/// What differs between databases in the SQL of the tests themselves.
trait Names: Dialect {
    const OUTBOX: &'static str;
    const CURSORS: &'static str;
    /// The database's time in microseconds since 1970.
    const CLOCK: &'static str;
    /// A time at which every lease has ended.
    const LONG_AGO: &'static str;
    /// A text as the bytes of a payload.
    fn bytes(text: &str) -> String;
}

impl Names for sqlx::Postgres {
    const OUTBOX: &'static str = "twinbox.outbox";
    const CURSORS: &'static str = "twinbox.cursors";
    const CLOCK: &'static str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    const LONG_AGO: &'static str = "'epoch'";

    fn bytes(text: &str) -> String {
        format!("'{text}'")
    }
}

impl Names for sqlx::Sqlite {
    const OUTBOX: &'static str = "twinbox_outbox";
    const CURSORS: &'static str = "twinbox_cursors";
    const CLOCK: &'static str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
    const LONG_AGO: &'static str = "0";

    fn bytes(text: &str) -> String {
        format!("CAST('{text}' AS BLOB)")
    }
}

/// How long a test may wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing takes a minute")
}

async fn open<DB: Dialect>(store: &Store<DB>, destination: &str) -> Reader<DB> {
    open_with(store, destination, ReaderOptions::new()).await
}

async fn open_with<DB: Dialect>(store: &Store<DB>, destination: &str, options: ReaderOptions) -> Reader<DB> {
    let reader = Reader::open(store, destination, Uuid::now_v7(), options).await;
    reader.expect("the store is fit to be read").expect("nobody has the lease")
}

fn draft(key: Option<&str>, text: &str) -> Draft {
    let draft = Draft::raw("test.happened", 1, text.to_owned());
    match key {
        Some(key) => draft.key(key),
        None => draft,
    }
}

/// Publishes each text in a transaction of its own.
async fn publish<DB: Dialect>(store: &Store<DB>, key: Option<&str>, texts: &[&str]) {
    for text in texts {
        publish_all(store, vec![draft(key, text)]).await;
    }
}

/// Publishes all drafts in one transaction.
async fn publish_all<DB: Dialect>(store: &Store<DB>, drafts: Vec<Draft>) {
    let mut tx = store.begin().await.unwrap();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
}

fn text(entry: &Entry) -> String {
    String::from_utf8(entry.message.payload.to_vec()).unwrap()
}

fn texts(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(text).collect()
}

/// Takes exactly `n` messages and settles none.
async fn take<DB: Dialect>(reader: &mut Reader<DB>, n: usize) -> Vec<Entry> {
    let mut taken = Vec::new();
    while taken.len() < n {
        taken.extend(in_time(reader.next(n - taken.len())).await.unwrap());
    }
    taken
}

/// Settles everything up to the message that says `last`, and answers with what came, in order.
async fn settle_until<DB: Dialect>(reader: &mut Reader<DB>, last: &str) -> Vec<String> {
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != last) {
        for entry in in_time(reader.next(100)).await.unwrap() {
            reader.settle(entry.ticket);
            came.push(text(&entry));
        }
    }
    came
}

/// A cursor's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    p: i64,
    w: i64,
    position: i64,
    epoch: i64,
}

async fn row<DB: Names>(store: &Store<DB>, destination: &str) -> Row {
    let sql =
        format!("SELECT p, w, position, epoch FROM {} WHERE destination = '{destination}'", DB::CURSORS);
    let row = sqlx::query_as::<DB, (i64, i64, i64, i64)>(AssertSqlSafe(sql));
    let (p, w, position, epoch) = row.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap();
    Row { p, w, position, epoch }
}

/// Keeps the reader running, without room for messages, until its row is as wanted.
async fn run_until<DB: Names>(
    store: &Store<DB>,
    reader: &mut Reader<DB>,
    destination: &str,
    reached: impl Fn(Row) -> bool,
) -> Row {
    let looking = async {
        loop {
            let row = row(store, destination).await;
            if reached(row) {
                return row;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        row = in_time(looking) => row,
        ended = reader.next(0) => panic!("without room there is nothing to return: {ended:?}"),
    }
}

async fn now<DB: Names>(store: &Store<DB>) -> i64 {
    let sql = AssertSqlSafe(format!("SELECT {}", DB::CLOCK));
    let now = sqlx::query_scalar::<DB, i64>(sql);
    now.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap()
}

/// Runs SQL in a transaction of its own.
async fn run<DB: Dialect>(store: &Store<DB>, sql: &str) -> Result<(), sqlx::Error> {
    let mut tx = store.begin().await.unwrap();
    sqlx::query::<DB>(AssertSqlSafe(sql)).execute(&mut *tx).await?;
    tx.commit().await.unwrap();
    Ok(())
}
