//! Reading again what a cursor has settled, and no more than that.
use crate::support::{
    cases::cases,
    databases::{MySql, Postgres},
    log::{
        Names, draft, open, open_with, publish, publish_all, run, run_until, settle_until, take, text, texts,
    },
    wait::in_time,
};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use twinbox::{
    Dialect, Draft, ErrorKind, Store, Timestamp,
    log::{Log, Reader, ReaderOptions, Retention},
    message::header,
    ops::{
        Ops,
        replays::{NewReplay, Replay, ReplayState, Selection},
    },
};
use uuid::Uuid;

/// What the destination settles, up to this message and no further: its cursor may stand within a window.
async fn settle<DB: Dialect>(store: &Store<DB>, destination: &str, messages: usize) {
    let mut reader = open_with(store, destination, ReaderOptions::new().page(1)).await;
    for _ in 0..messages {
        let entry = take(&mut reader, 1).await.remove(0);
        reader.settle(entry.ticket);
    }
    reader.close().await.unwrap();
}

async fn make<DB: Dialect>(store: &Store<DB>, destination: &str, selection: &Selection) -> Replay {
    let plan = Ops::new(store).plan_replay(destination, selection).await.unwrap();
    let replay = Ops::new(store).make_replay(&plan, NewReplay::resend("a test")).await.unwrap();
    assert_eq!((replay.selected, replay.state.clone()), (plan.selected, ReplayState::Running));
    replay
}

async fn open_replay<DB: Dialect>(store: &Store<DB>, replay: &Replay) -> Reader<DB> {
    open_with(store, &replay.cursor(), ReaderOptions::new().replay(replay)).await
}

/// Settles all that there is, and answers with it in order.
async fn read_out<DB: Dialect>(reader: &mut Reader<DB>) -> Vec<String> {
    let mut came = Vec::new();
    while !reader.has_ended() {
        for entry in in_time(reader.next(100)).await.unwrap() {
            reader.settle(entry.ticket);
            came.push(text(&entry));
        }
    }
    came
}

/// I10
async fn what_is_not_settled_is_not_read_again<DB: Names>(store: &Store<DB>) {
    publish(store, Some("k"), &["1", "2"]).await;
    publish(store, None, &["3", "4", "5"]).await;
    settle(store, "d", 3).await;
    let replay = make(store, "d", &Selection::new()).await;
    assert_eq!(replay.selected, 3);
    let mut reader = open_replay(store, &replay).await;
    let taken = take(&mut reader, 2).await;
    assert_eq!(texts(&taken), ["1", "3"], "of a key one after another");
    let token = replay.token.simple().to_string();
    assert_eq!(taken[0].message.header(header::REPLAY), Some(&*token));
    assert_eq!(taken[0].message.header(header::REPLAY_FOR), None);
    assert!(!reader.has_ended());
    taken.iter().for_each(|entry| reader.settle(entry.ticket));
    assert_eq!(read_out(&mut reader).await, ["2"]);
    assert_eq!(in_time(reader.next(10)).await.unwrap().len(), 0, "it waits for nothing");
    reader.close().await.unwrap();
    let run = Log::new(store).server_run().await.unwrap();
    if !DB::ONE_WRITER {
        let other = Log::new(store).finish_replay(replay.id, run ^ 1).await.unwrap_err();
        assert_eq!(other.kind(), ErrorKind::LeaseLost, "it may be done in memory alone");
    }
    assert!(Log::new(store).finish_replay(replay.id, run).await.unwrap());
    assert!(!Log::new(store).finish_replay(replay.id, run).await.unwrap());
    let replay = Ops::new(store).replay(replay.id).await.unwrap();
    assert_eq!((replay.state, replay.done), (ReplayState::Done, 3));
    assert_eq!(settle_until(&mut open(store, "d").await, "5").await, ["4", "5"], "it comes by itself");
}

/// A reader that finds everything done, because the one before it died before it could say so.
async fn a_replay_goes_on_where_it_was<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["1", "2", "3", "4"]).await;
    settle(store, "d", 3).await;
    let replay = make(store, "d", &Selection::new()).await;
    let mut first = open_replay(store, &replay).await;
    let taken = take(&mut first, 3).await;
    first.settle(taken[0].ticket);
    first.close().await.unwrap();
    let mut second = open_replay(store, &replay).await;
    assert_eq!(read_out(&mut second).await, ["2", "3"]);
    second.close().await.unwrap();
    let mut third = open_replay(store, &replay).await;
    assert_eq!(read_out(&mut third).await, Vec::<String>::new());
    third.close().await.unwrap();
    assert_eq!(
        Ops::new(store).replay(replay.id).await.unwrap().state,
        ReplayState::Running,
        "nobody said so"
    );
}

fn of(id: &str, event_type: &str, key: &str, millis: i64) -> Draft {
    let time = Timestamp::from_micros(millis * 1000);
    Draft::raw(event_type, 1, id.to_owned()).id(id).key(key).correlation_id(format!("c-{key}")).time(time)
}

/// I10
async fn a_selection_selects_what_it_says<DB: Names>(store: &Store<DB>) {
    let drafts = [
        of("1", "orders.placed", "a", 10),
        of("2", "orders.paid", "b", 20),
        of("3", "orders.placed", "b", 30),
        of("4", "billing.sent", "a", 40),
    ];
    publish_all(store, drafts.into()).await;
    run(store, &format!("UPDATE {} SET source = 'partner' WHERE id = '3'", DB::OUTBOX)).await.unwrap();
    settle(store, "d", 4).await;
    let at = |millis: i64| Some(Timestamp::from_micros(millis * 1000));
    let text = |text: &str| Some(text.to_owned());
    let types = |types: &[&str]| types.iter().map(|one| one.parse().unwrap()).collect();
    let all = Selection::new;
    for (selection, expected) in [
        (all(), vec!["1", "2", "3", "4"]),
        (all().since(at(20)), vec!["2", "3", "4"]),
        (all().since(at(20)).until(at(40)), vec!["2", "3"]),
        (all().types(types(&["orders.*"])), vec!["1", "2", "3"]),
        (all().types(types(&["orders.paid", "billing.>"])), vec!["2", "4"]),
        (all().key(text("b")), vec!["2", "3"]),
        (all().key(text("b")).types(types(&["*.placed"])), vec!["3"]),
        (all().ids(vec!["4".into(), "1".into(), "9".into()]), vec!["1", "4"]),
        (all().source(text("partner")), vec!["3"]),
        (all().source(text(store.service())), vec!["1", "2", "4"]),
        (all().correlation_id(text("c-a")), vec!["1", "4"]),
    ] {
        let plan = Ops::new(store).plan_replay("d", &selection).await.unwrap();
        let sample: Vec<_> = plan.sample.iter().map(|one| one.id.as_str()).collect();
        assert_eq!((plan.selected, sample), (expected.len() as u64, expected.clone()), "{selection}");
        let replay = make(store, "d", &selection).await;
        let mut reader = open_replay(store, &replay).await;
        assert_eq!(read_out(&mut reader).await.len(), expected.len(), "{selection}");
        reader.close().await.unwrap();
    }
    let none = Ops::new(store).plan_replay("d", &all().key(text("c"))).await.unwrap();
    assert_eq!(none.selected, 0);
    let refused = Ops::new(store).make_replay(&none, NewReplay::resend("a test")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    for (selection, kind) in [
        (all().key(text("a\0")), ErrorKind::Configuration),
        (all().since(at(2)).until(at(2)), ErrorKind::Configuration),
        (all().ids(vec!["x".into(); 1001]), ErrorKind::Configuration),
    ] {
        assert_eq!(
            Ops::new(store).plan_replay("d", &selection).await.unwrap_err().kind(),
            kind,
            "{selection}"
        );
    }
    assert_eq!(Ops::new(store).plan_replay("e", &all()).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Nobody who writes the log can mark a message as a replay's.
async fn marks_of_a_producer_are_taken_away<DB: Names>(store: &Store<DB>) {
    let sql = format!(
        "INSERT INTO {} (type, payload, headers) VALUES ('test.happened', {}, '{{\"twinbox-replay\": \"{}\", \
            \"twinbox-replay-for\": \"billing\", \"region\": \"eu\"}}')",
        DB::OUTBOX,
        DB::bytes("1"),
        "0".repeat(32)
    );
    run(store, &sql).await.unwrap();
    let entry = take(&mut open(store, "d").await, 1).await.remove(0);
    assert_eq!(entry.message.headers, [("region".to_owned(), "eu".to_owned())]);
}

/// Nothing that a replay needs is deleted, however old; when it has ended, everything is as before.
async fn the_log_is_kept_for_a_replay_until_it_ends<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["1", "2", "3"]).await;
    settle(store, "d", 3).await;
    let reader = open(store, "e").await;
    reader.close().await.unwrap();
    Ops::new(store).retire("e").await.unwrap();
    let replay = make(store, "d", &Selection::new()).await;
    let retention = || Retention::new(Duration::ZERO).max_lag(Duration::ZERO, twinbox::log::OnMaxLag::Detach);
    let purged = Log::new(store).purge(retention()).await.unwrap();
    assert_eq!((purged.messages, purged.lagging.len()), (0, 0), "{purged:?}");
    assert!(Ops::new(store).readers().await.unwrap().iter().all(|reader| reader.name == "d"));
    Ops::new(store).pause_replay(replay.id, "lunch").await.unwrap();
    assert_eq!(Log::new(store).next_replay("d").await.unwrap(), None);
    let paused = Ops::new(store).replay(replay.id).await.unwrap();
    assert_eq!(paused.state, ReplayState::Paused { reason: "lunch".to_owned() });
    Ops::new(store).resume_replay(replay.id).await.unwrap();
    assert_eq!(Log::new(store).next_replay("d").await.unwrap().unwrap().id, replay.id);
    assert!(Ops::new(store).cancel_replay(replay.id).await.unwrap());
    assert_eq!(Log::new(store).next_replay("d").await.unwrap(), None);
    let refused = Ops::new(store).resume_replay(replay.id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    Log::new(store).purge(retention()).await.unwrap();
    let cursors = format!("SELECT count(*) FROM {} WHERE destination LIKE 'replay:%'", DB::CURSORS);
    let left = sqlx::query_scalar::<DB, i64>(AssertSqlSafe(cursors));
    assert_eq!(left.fetch_one(&mut *store.pool().acquire().await.unwrap()).await.unwrap(), 0);
}

/// Whoever holds a destination back means everything that is sent there.
async fn a_replay_is_held_with_its_destination<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["1", "2", "3"]).await;
    settle(store, "d", 3).await;
    let replay = make(store, "d", &Selection::new()).await;
    let mut reader = open_replay(store, &replay).await;
    take(&mut reader, 1).await;
    Ops::new(store).pause_destination("d", "maintenance").await.unwrap();
    assert_eq!(Log::new(store).next_replay("d").await.unwrap(), None);
    let held = async {
        while reader.pause_reason().is_none() {
            let _ = tokio::time::timeout(Duration::from_millis(10), reader.next(0)).await;
        }
    };
    in_time(held).await;
    assert_eq!(reader.pause_reason(), Some("maintenance"));
    Ops::new(store).resume_destination("d").await.unwrap();
    assert_eq!(Log::new(store).next_replay("d").await.unwrap().unwrap().id, replay.id);
}

async fn who_reads_for_a_replay_hears_that_it_was_cancelled<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["1", "2", "3"]).await;
    settle(store, "d", 3).await;
    let replay = make(store, "d", &Selection::new()).await;
    let mut reader = open_replay(store, &replay).await;
    take(&mut reader, 1).await;
    Ops::new(store).cancel_replay(replay.id).await.unwrap();
    let lost = in_time(async {
        loop {
            if let Err(error) = reader.next(0).await {
                return error;
            }
        }
    })
    .await;
    assert_eq!(lost.kind(), ErrorKind::LeaseLost);
    let options = ReaderOptions::new().replay(&replay);
    assert!(Reader::open(store, &replay.cursor(), Uuid::now_v7(), options).await.unwrap().is_none());
}

/// What commits late has a lower position than what was settled before it; each is read again where it
/// belongs.
async fn late_commits_are_read_again<DB: Names>(store: &Store<DB>) {
    let mut reader = open(store, "d").await;
    let mut late = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut late, draft(None, "late")).await.unwrap();
    let mut later = store.begin().await.unwrap();
    store.outbox().publish_draft(&mut later, draft(None, "later")).await.unwrap();
    publish(store, None, &["1", "2"]).await;
    settle_until(&mut reader, "2").await;
    run_until(store, &mut reader, "d", |row| row.p > 0).await;
    late.commit().await.unwrap();
    settle_until(&mut reader, "late").await;
    reader.close().await.unwrap();
    let replay = make(store, "d", &Selection::new()).await;
    later.commit().await.unwrap();
    publish(store, None, &["3"]).await;
    let mut again = open_replay(store, &replay).await;
    let mut came = read_out(&mut again).await;
    came.sort();
    assert_eq!(came, ["1", "2", "late"], "what was not settled then is not the replay's");
}

async fn late_commits_are_read_again_once(store: &Store<Postgres>) {
    late_commits_are_read_again(store).await;
}

async fn late_commits_are_read_again_once_on_mysql(store: &Store<MySql>) {
    late_commits_are_read_again(store).await;
}

/// The destination stands in the middle of the second one.
async fn each_window_of_a_replay_is_read_once<DB: Names>(store: &Store<DB>) {
    publish(store, None, &["1", "2"]).await;
    let mut reader = open(store, "d").await;
    settle_until(&mut reader, "2").await;
    run_until(store, &mut reader, "d", |row| row.p > 0 && row.p == row.w).await;
    reader.close().await.unwrap();
    publish(store, None, &["3", "4", "5"]).await;
    settle(store, "d", 1).await;
    let replay = make(store, "d", &Selection::new()).await;
    assert_eq!(replay.selected, 3);
    let mut reader = open_replay(store, &replay).await;
    assert_eq!(read_out(&mut reader).await, ["1", "2", "3"]);
    reader.close().await.unwrap();
}

cases! {
    with a store:
    all: [
        what_is_not_settled_is_not_read_again,
        a_replay_goes_on_where_it_was,
        a_selection_selects_what_it_says,
        marks_of_a_producer_are_taken_away,
        the_log_is_kept_for_a_replay_until_it_ends,
        a_replay_is_held_with_its_destination,
        who_reads_for_a_replay_hears_that_it_was_cancelled,
        each_window_of_a_replay_is_read_once,
    ]
    postgres: [late_commits_are_read_again_once]
    mysql: [late_commits_are_read_again_once_on_mysql]
}
