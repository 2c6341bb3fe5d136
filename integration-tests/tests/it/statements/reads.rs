//! How many rows each statement reads where every table is long and all rows are of one owner: a constant
//! times those that it returns or changes, unless it is listed.
mod columns;
mod counting;
mod long_tables;
#[cfg(feature = "mysql")]
mod purges;

use super::{LISTS, SCRIPTS};
use crate::support::{cases::cases, stores::World};
use counting::Counted;
use long_tables::{LongTables, VALUE};
use twinbox::Dialect as _;

/// Rows that a statement may read, and once more for each row that it returns or changes.
const ROWS_MAX: i64 = 150;
/// The same for each row of a table, of one that is listed.
const OF_ALL_MAX: i64 = 12;

/// Statements that name a role, which is not there.
const REFUSED: [&str; 2] = ["inbox.set_role", "setup.has_right"];

/// Statements that read all rows of an owner or of a table, and when that is.
const READS_ALL: &[(&str, &str)] = &[
    // An operator's question.
    ("backlog.delayed", "before a program of another version is deployed"),
    ("backlog.parked_and_dead", "before a program of another version is deployed"),
    ("backlog.pending", "before a program of another version is deployed"),
    ("backlog.published_since", "before a program of another version is deployed"),
    ("dead_letters.bytes", "its doc comment says so"),
    ("dead_letters.count_of_consumer", "what was given up after the time is passed over"),
    ("deliveries.count", "its doc comment says so"),
    ("deliveries.list", "an operator's page of what a consumer has parked"),
    ("deliveries.of_key", "an operator's page of what a consumer has parked"),
    ("deliveries.retry_now", "an operator's act on what a consumer has parked"),
    ("log.is_settled", "where an operator's message is: the holes since a tick"),
    ("log.messages_of_key", "no index has the keys: all since a time"),
    ("parked_messages.count_of_destination", "what was given up after the time is passed over"),
    ("parked_messages.destination_after", "what was given up after the time is passed over"),
    ("parked_messages.group_after", "what was given up after the time is passed over"),
    ("parked_messages.skip", "an operator's act on what a destination has parked"),
    ("replays.list", "where all parked rows are of one destination, Postgres reads them for each replay"),
    ("setup.more_rights_held", "the server's own tables"),
    ("setup.rights_held", "the server's own tables"),
    ("setup.has_right", "the server's own tables"),
    // Once, when something begins.
    ("deliveries.bytes", "a partition is taken"),
    ("holes.lock_first_tick", "a cursor begins in the past"),
    ("log.lock_ticks", "a cursor begins in the past"),
    ("log.tick_at", "a cursor begins at a time"),
    ("outbox.published", "tests of applications"),
    // Now and then, without a lock for which others wait.
    ("delivery_queue.counts", "the number of parked rows is bounded"),
    ("delivery_queue.heads", "the number of parked rows is bounded"),
    ("destination_queue.heads", "the number of parked rows is bounded"),
    ("client_keys.purge", "Postgres, if it is told to plan without the limit"),
    ("drift.purge", "Postgres, if it is told to plan without the limit"),
    ("webhooks.purge", "Postgres, if it is told to plan without the limit"),
    ("dead_letters.due_redrives", "redriven ones that wait"),
    ("dead_letters.take_redriven", "redriven ones that wait"),
    ("effect_acts.count_failed_since", "what ended since a time"),
    ("drift.failing", "messages that fail now"),
    ("drift.open_checks", "findings that are open"),
    ("holes.due", "open holes"),
    ("holes.filled", "open holes"),
    ("holes.holes_of_tick", "the holes since a tick"),
    ("holes.positions", "the holes since a tick"),
    ("inbox.event_of_message", "consumers"),
    ("inbox.oldest_parked", "the number of parked rows is bounded"),
    ("inbox.purge_attempts", "messages that fail now"),
    ("inbox.purgeable_attempts", "messages that fail now"),
    ("inbox.purge_superseded", "messages of replays"),
    ("jobs.open", "the number of open runs is bounded"),
    ("log.newest_tick", "open holes"),
    ("log.thin_ticks", "ticks that were not thinned yet"),
    ("replays.delete_cursors", "replays"),
    ("replays.detach_ended", "replays"),
    ("retention.detach", "messages that a reader has not settled"),
    ("retention.lagging", "messages that a reader has not settled"),
    ("retention.purge_ticks", "ticks"),
    ("retention.purge", "ticks"),
    ("retention.purgeable", "without a lock, once in each interval of the purge"),
    ("retention.slowest_reader", "messages that a reader has not settled"),
];

async fn a_statement_reads_little_more_than_it_returns<DB: LongTables>() {
    let mut problems = Vec::new();
    for is_due in [true, false] {
        let world = World::<DB>::new().await;
        DB::fill(&world, is_due).await;
        let mut conn = world.pool().acquire().await.unwrap();
        DB::begin_counting(&mut conn).await;
        let mut counted = 0;
        for (name, statement) in world.engine().sql().named() {
            let mut sql = statement.as_str().to_owned();
            let reads_nothing = statement.is_absent() || sql.starts_with("LOCK ");
            if reads_nothing || SCRIPTS.contains(&&*name) || DB::lacks(&mut conn, &name).await {
                continue;
            }
            if ["IN", "VALUES"].iter().any(|end| sql.ends_with(end)) {
                let list = LISTS.iter().find(|(listed, _)| *listed == name).expect(&name).1;
                sql += &list.replace(" 1", &format!(" {VALUE}")).replace("(1", &format!("({VALUE}"));
            }
            for mode in DB::MODES {
                let Counted { read, changed, error } = DB::count(&mut conn, mode, &sql).await;
                if let Some(error) = error.filter(|error| !DB::refuses_values(&DB::code(error)))
                    && !REFUSED.contains(&&*name)
                {
                    problems.push(format!("{name} {mode}: {error}"));
                }
                let at_most = match READS_ALL.iter().any(|(listed, _)| *listed == name) {
                    true => OF_ALL_MAX * DB::rows(),
                    false => ROWS_MAX * (1 + changed),
                };
                if read > at_most * DB::COUNTS_OF_A_ROW {
                    problems.push(format!("{name} {mode}, due: {is_due}: {read} for {changed}"));
                }
            }
            counted += 1;
        }
        assert!(counted > 100, "{counted} statements");
    }
    assert!(problems.is_empty(), "{}:\n{}", problems.len(), problems.join("\n"));
}

/// One that is no longer there excuses nothing.
#[test]
fn the_statements_that_read_all_are_statements() {
    let names: Vec<String> = sqlx::Sqlite::SQL.named().into_iter().map(|(name, _)| name).collect();
    for (listed, _) in READS_ALL {
        assert!(names.iter().any(|name| name == listed), "{listed}");
    }
}

cases! {
    all: [a_statement_reads_little_more_than_it_returns]
}
