//! A broker that no longer has the messages that a place names.
use super::*;
use crate::support::long;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use twinbox_testkit::servers::{NatsOptions as ServerOptions, NatsServer, find};

/// A server whose store can be put back to an earlier copy.
struct Server {
    nats: NatsServer,
    folder: tempfile::TempDir,
}

impl Server {
    fn start(binary: PathBuf) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = ServerOptions::default().binary(binary).store(folder.path().join("store"));
        Self { nats: NatsServer::start_with(options).unwrap(), folder }
    }

    fn keep_a_copy(&mut self) {
        self.nats.kill().unwrap();
        copy(&self.folder.path().join("store"), &self.folder.path().join("copy")).unwrap();
        self.nats.restart().unwrap();
    }

    /// Leaves it killed.
    fn put_back(&mut self) {
        self.nats.wipe_store().unwrap();
        copy(&self.folder.path().join("copy"), &self.folder.path().join("store")).unwrap();
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?
        } else {
            fs::copy(entry.path(), to).map(drop)?
        }
    }
    Ok(())
}

/// The relay has messages that were never sent, and they get the sequences that others had.
async fn the_end_is_lost(binary: PathBuf, partitions: u32, runs_on: bool) {
    let mut server = Server::start(binary);
    let rig = Rig::<Postgres>::at(Target::at(server.nats.url()), partitions).await;
    // The moves of each of twenty accounts that are kept; as many are lost, and twice as many come then.
    let kept = long::or(10, 3);
    let of_all = |moves: i64| 20 * moves.unsigned_abs();
    rig.publish(1..21, 0..kept, of_all(kept)).await;
    server.keep_a_copy();
    rig.publish(1..21, kept..2 * kept, of_all(2 * kept)).await;
    let all = async |moves: i64| rig.world.rows("inbox").await == 20 * moves;
    let stop = CancellationToken::new();
    let running = match runs_on {
        true => Some(tokio::spawn(rig.consumer().run(stop.clone()))),
        false => None,
    };
    match runs_on {
        true => {
            let settled = 40 * kept;
            eventually(async || (all(2 * kept).await && rig.place().await == settled).then_some(())).await
        }
        false => run_until(rig.consumer(), async || all(2 * kept).await).await,
    }
    assert_eq!(rig.place().await, 40 * kept);
    server.put_back();
    rig.commit(1..21, 2 * kept..4 * kept).await;
    server.nats.restart().unwrap();
    rig.relay.published(of_all(4 * kept)).await;
    match running {
        Some(running) => {
            eventually(async || all(4 * kept).await.then_some(())).await;
            stop.cancel();
            in_time(running).await.unwrap().unwrap();
        }
        None => run_until(rig.consumer(), async || all(4 * kept).await).await,
    }
    assert_eq!(rig.of_each().await, in_order(1..21, 0..4 * kept));
    assert_eq!(rig.place().await, 60 * kept);
    // Nothing is read anew from then on.
    rig.publish(1..21, 4 * kept..4 * kept + 1, of_all(4 * kept + 1)).await;
    run_until(rig.consumer(), async || all(4 * kept + 1).await).await;
    assert_eq!(rig.of_each().await, in_order(1..21, 0..4 * kept + 1));
    rig.relay.stop().await;
}

async fn no_message_is_skipped_when_the_broker_was_put_back_to_an_earlier_copy() {
    the_end_is_lost(find::nats_server().unwrap(), 16, false).await;
}

async fn no_message_is_skipped_when_a_broker_of_one_partition_was_put_back() {
    the_end_is_lost(find::nats_server().unwrap(), 1, false).await;
}

async fn no_message_is_skipped_when_an_old_broker_was_put_back_beside_a_consumer_that_runs() {
    the_end_is_lost(find::nats_server_old().unwrap(), 16, true).await;
}

/// The same messages sent again, so that the last of them is where it was before, and others come between.
async fn a_message_that_was_sent_again_to_the_same_sequence_is_not_the_one_that_was_settled() {
    let rig = Rig::<Postgres>::new().await;
    let jetstream = rig.target.jetstream().await;
    rig.publish(1..2, 0..3, 3).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 3).await;
    let place = async || {
        let place = "SELECT last_message FROM twinbox.partition_leases WHERE sequence > 0";
        sqlx::query_scalar::<_, String>(place).fetch_one(rig.world.pool()).await.unwrap()
    };
    let before = place().await;
    let stream = jetstream.get_stream(&rig.target.name).await.unwrap();
    let kept = stream.get_raw_message(3).await.unwrap();
    assert!(before.ends_with(&format!("@{}", kept.time.unix_timestamp_nanos())), "{before}");
    rig.world
        .execute(
            "UPDATE twinbox.partition_leases SET last_message = split_part(last_message, '@', 1) || '@1'",
        )
        .await;
    rig.world.execute("DELETE FROM twinbox.inbox; DELETE FROM moves").await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 3).await;
    assert_eq!((rig.of_each().await, place().await), (in_order(1..2, 0..3), before));
    rig.relay.stop().await;
}

/// By an operator, or by retention.
async fn a_message_that_is_gone_from_its_place_takes_no_other_with_it() {
    let rig = Rig::<Postgres>::new().await;
    let jetstream = rig.target.jetstream().await;
    rig.publish(1..6, 0..4, 20).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 20).await;
    let stream = jetstream.get_stream(&rig.target.name).await.unwrap();
    for gone in 15..=20 {
        stream.delete_message(gone).await.unwrap();
    }
    rig.publish(1..6, 4..6, 30).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 30).await;
    assert_eq!(rig.of_each().await, in_order(1..6, 0..6));
    stream.purge().await.unwrap();
    rig.publish(1..6, 6..8, 40).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 40).await;
    assert_eq!((rig.of_each().await, rig.place().await), (in_order(1..6, 0..8), 40));
    rig.relay.stop().await;
}

/// A week without a consumer, and the stream keeps less.
async fn messages_that_were_dropped_before_they_were_read_are_told() {
    let rig = Rig::<Postgres>::at(Target::shared(), 1).await;
    let jetstream = rig.target.jetstream().await;
    rig.publish(1..6, 0..2, 10).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 10).await;
    rig.publish(1..6, 2..4, 20).await;
    let stream = jetstream.get_stream(&rig.target.name).await.unwrap();
    stream.purge().sequence(16).await.unwrap();
    let run = async |count| {
        let consumer = rig.consumer();
        let status = consumer.status();
        run_until(consumer, async || rig.world.rows("inbox").await == count).await;
        status.consumers()[0].overtaken
    };
    assert_eq!(run(15).await, 1);
    rig.publish(1..6, 4..5, 25).await;
    assert_eq!(run(20).await, 0, "it is told once");
    rig.relay.stop().await;
}

/// Its place moves with the stream, so that nothing is told that was not lost.
async fn a_partition_of_which_nothing_comes_is_not_overtaken() {
    let rig = Rig::<Postgres>::new().await;
    let jetstream = rig.target.jetstream().await;
    rig.publish(1..2, 0..2, 2).await;
    let least = async || rig.world.number("SELECT min(sequence) FROM twinbox.partition_leases").await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 2).await;
    rig.publish(2..20, 0..2, 38).await;
    run_until(rig.consumer(), async || rig.world.rows("inbox").await == 38 && least().await == 38).await;
    let stream = jetstream.get_stream(&rig.target.name).await.unwrap();
    stream.purge().await.unwrap();
    let consumer = rig.consumer();
    let status = consumer.status();
    rig.publish(1..20, 2..3, 57).await;
    run_until(consumer, async || rig.world.rows("inbox").await == 57).await;
    assert_eq!(status.consumers()[0].overtaken, 0);
    assert_eq!(rig.of_each().await, in_order(1..20, 0..3));
    rig.relay.stop().await;
}

cases! {
    postgres: [
        no_message_is_skipped_when_the_broker_was_put_back_to_an_earlier_copy,
        no_message_is_skipped_when_a_broker_of_one_partition_was_put_back,
        no_message_is_skipped_when_an_old_broker_was_put_back_beside_a_consumer_that_runs,
        a_message_that_was_sent_again_to_the_same_sequence_is_not_the_one_that_was_settled,
        messages_that_were_dropped_before_they_were_read_are_told,
        a_partition_of_which_nothing_comes_is_not_overtaken,
        a_message_that_is_gone_from_its_place_takes_no_other_with_it,
    ]
}
