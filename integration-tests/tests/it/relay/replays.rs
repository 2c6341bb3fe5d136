//! Past messages again over a real broker, whatever dies meanwhile.
use super::*;
#[cfg(feature = "programs")]
use crate::support::rig::Rig;
use crate::support::{
    relay::{Copy, publish_as},
    wait::eventually,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt as _,
};
use twinbox::{
    log::Log,
    ops::{
        Ops,
        replays::{NewReplay, Replay, ReplayState, Selection},
    },
};

const BOTH: &[&str] = &["orders.placed", "orders.paid"];

/// Every fourth is paid.
fn event_type(n: u32) -> &'static str {
    if n % 4 == 3 { "orders.paid" } else { "orders.placed" }
}

async fn plan_and_make<DB: Dialect>(store: &Store<DB>, destination: &str, types: &str) -> Replay {
    let selection = Selection::new().types(vec![types.parse().unwrap()]);
    let plan = Ops::new(store).plan_replay(destination, &selection).await.unwrap();
    Ops::new(store).make_replay(&plan, NewReplay::resend("a test")).await.unwrap()
}

async fn ends<DB: Dialect>(store: &Store<DB>, replay: &Replay) -> Replay {
    eventually(async || {
        Some(Ops::new(store).replay(replay.id).await.unwrap()).filter(|replay| replay.state.has_ended())
    })
    .await
}

/// The copies that a replay has sent, by message id, in the order in which they came first.
fn sent_by(copies: &[Copy], replay: &Replay) -> Vec<Copy> {
    let (mark, mut seen) = (format!(".r{}", replay.token.simple()), BTreeSet::new());
    let marked = copies
        .iter()
        .filter_map(|(id, key, sequence)| Some((id.strip_suffix(&mark)?.to_owned(), key.clone(), *sequence)));
    marked.filter(|(id, ..)| seen.insert(id.clone())).collect()
}

/// Each that is selected and nothing else, those of a key in order.
#[track_caller]
fn assert_sent(copies: &[Copy], replay: &Replay, selected: impl Fn(u32) -> bool, published: u32) {
    let sent = sent_by(copies, replay);
    // Published as 0, 1, 2, … in one transaction, on a database of its own.
    let expected: BTreeSet<u64> = (0..published).filter(|n| selected(*n)).map(|n| u64::from(n) + 1).collect();
    assert_eq!(sent.iter().map(|(.., sequence)| *sequence).collect::<BTreeSet<_>>(), expected);
    let mut last = BTreeMap::new();
    for (_, key, sequence) in sent {
        assert!(last.insert(key.clone(), sequence).unwrap_or(0) < sequence, "{key:?} at {sequence}");
    }
}

async fn copies(target: &Target) -> Vec<Copy> {
    let count = usize::try_from(target.count().await).unwrap();
    target.messages(count).await
}

/// Live traffic goes on beside it.
async fn a_selection_and_nothing_else_is_sent_again<DB: Dialect>(store: &Store<DB>) {
    let target = Target::shared();
    publish_as(store, 0..400, event_type).await;
    let running = Running::start(store, &target);
    running.published(400).await;
    eventually(async || {
        let plan = Ops::new(store).plan_replay("nats", &Selection::new()).await.unwrap();
        (plan.selected == 400).then_some(())
    })
    .await;
    let replay = plan_and_make(store, "nats", "orders.paid").await;
    assert_eq!(replay.selected, 100);
    publish_as(store, 400..500, event_type).await;
    running.published(500).await;
    let replay = ends(store, &replay).await;
    assert_eq!((replay.state.clone(), replay.done, replay.refused), (ReplayState::Done, 100, 0));
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.duplicates()), (500, 0), "a replay is counted elsewhere");
    let copies = copies(&target).await;
    assert_eq!(copies.len(), 600);
    assert_sent(&copies, &replay, |n| n % 4 == 3, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_and_nothing_else_is_sent_again_from_postgres() {
    let store = database::postgres().await;
    a_selection_and_nothing_else_is_sent_again::<Postgres>(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_selection_and_nothing_else_is_sent_again_from_sqlite() {
    let store = database::sqlite().await;
    a_selection_and_nothing_else_is_sent_again::<sqlx::Sqlite>(&store).await;
}

/// What the destination does not take any more is refused, and told of; the rest arrives.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_told_of_and_delays_nobody() {
    let (store, target) = (database::postgres().await, Target::shared());
    target.create(stream::Config { max_message_size: 4096, ..target.config(BOTH) }).await;
    let mut tx = store.begin().await.unwrap();
    let large = Draft::raw("orders.placed", 1, vec![b' '; 2000]).id("large").key("k-3");
    store.outbox().publish_draft(&mut tx, large).await.unwrap();
    tx.commit().await.unwrap();
    publish_as(&store, 0..40, event_type).await;
    let running = Running::run(Relay::new((*store).clone(), Nats::with_options(target.existing()).unwrap()));
    running.published(41).await;
    target.update(stream::Config { max_message_size: 1024, ..target.config(BOTH) }).await;
    eventually(async || {
        (Ops::new(&store).plan_replay("nats", &Selection::new()).await.unwrap().selected == 41).then_some(())
    })
    .await;
    let replay = plan_and_make(&store, "nats", ">").await;
    let replay = ends(&store, &replay).await;
    running.stop().await;
    assert_eq!((replay.state.clone(), replay.refused), (ReplayState::Done, 1));
    let refused = Ops::new(&store).refused_messages(replay.id, 10).await.unwrap();
    assert_eq!((refused[0].message.id.as_str(), refused[0].last_error.as_str()), ("large", "nats.10054"));
    assert_eq!(sent_by(&copies(&target).await, &replay).len(), 40);
    assert!(
        Ops::new(&store).parked_messages("nats", 10).await.unwrap().is_empty(),
        "the destination has taken it once"
    );
    Log::new(&store).purge(Duration::ZERO).await.unwrap();
    assert!(
        Ops::new(&store).refused_messages(replay.id, 10).await.unwrap().is_empty(),
        "it is forgotten with the log"
    );
}

/// What waits for a home is not sent by a replay as well.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_aside_is_not_sent_by_a_replay() {
    let (store, target) = (database::postgres().await, Target::shared());
    target.create(target.config(&["orders.placed"])).await;
    // Without a key, behind which others would wait.
    let mut tx = store.begin().await.unwrap();
    let drafts = (0..40).map(|n| Draft::raw(event_type(n), 1, n_payload(n))).collect();
    store.outbox().publish_all(&mut tx, drafts).await.unwrap();
    tx.commit().await.unwrap();
    let running = Running::run(Relay::new((*store).clone(), Nats::with_options(target.existing()).unwrap()));
    running.published(30).await;
    let plan = async || Ops::new(&store).plan_replay("nats", &Selection::new()).await.unwrap();
    eventually(async || (plan().await.selected == 30).then_some(())).await;
    let replay = plan_and_make(&store, "nats", ">").await;
    let replay = ends(&store, &replay).await;
    running.stop().await;
    assert_sent(&copies(&target).await, &replay, |n| n % 4 != 3, 40);
}

#[cfg(feature = "programs")]
/// Runs a replay twice, and kills a relay at each of these points each time.
async fn killed_at(points: [&str; 3]) {
    let rig = Rig::new(BOTH).await;
    publish_as(&rig.database, 0..100, event_type).await;
    let mut relay = rig.start();
    rig.target.whole(100).await;
    eventually(async || {
        let plan = Ops::new(&rig.database).plan_replay("kill", &Selection::new()).await;
        plan.ok().filter(|plan| plan.selected == 100)
    })
    .await;
    rig.kill(&mut relay).await;
    for _ in 0..2 {
        let replay = plan_and_make(&rig.database, "kill", "orders.paid").await;
        for point in points {
            let had_ended = Ops::new(&rig.database).replay(replay.id).await.unwrap().state.has_ended();
            let mut doomed = rig.doomed(point);
            // Some do not come to their point, because nothing is left to do. Whoever ends the replay comes
            // to this one.
            let is_last = point == "replay.after_end" && !had_ended;
            tokio::select! {
                died = timeout(PATIENCE, doomed.wait()) => {
                    let died = died.expect("it passes its point").unwrap();
                    assert_eq!(died.signal(), Some(9), "killed, not ended, at {point}");
                }
                _ = ends(&rig.database, &replay), if !is_last => {}
            }
            rig.kill(&mut doomed).await;
        }
        let mut relay = rig.start();
        let replay = ends(&rig.database, &replay).await;
        rig.kill(&mut relay).await;
        assert_eq!(replay.state, ReplayState::Done);
        assert_sent(&copies(&rig.target).await, &replay, |n| n % 4 == 3, 100);
    }
}

#[cfg(feature = "programs")]
/// Fault 50: published and not on record, on record and not told, told. Run twice it is two replays, each
/// whole.
#[tokio::test(flavor = "multi_thread")]
async fn row_50_a_replay_that_is_killed_anywhere_sends_each_message_and_no_other() {
    tokio::join!(
        killed_at(["relay.after_read", "relay.after_send", "relay.after_ack"]),
        killed_at(["relay.after_ack:10", "replay.before_end", "relay.after_read:2"]),
        killed_at(["relay.after_ack:25", "replay.after_end", "relay.after_send:2"]),
    );
}

/// Two relays at once: one of them executes it.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_relays_one_executes_a_replay() {
    let (store, target) = (database::postgres().await, Target::shared());
    publish_as(&store, 0..200, event_type).await;
    let (one, other) = (Running::start(&store, &target), Running::start(&store, &target));
    eventually(async || {
        let plan = Ops::new(&store).plan_replay("nats", &Selection::new()).await;
        plan.ok().filter(|plan| plan.selected == 200)
    })
    .await;
    let replay = plan_and_make(&store, "nats", ">").await;
    let replay = ends(&store, &replay).await;
    one.stop().await;
    other.stop().await;
    let copies = copies(&target).await;
    assert_eq!(copies.len(), 400, "nothing came more often than asked for");
    assert_sent(&copies, &replay, |_| true, 200);
}
