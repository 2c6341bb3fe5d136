//! What cannot go on stops nobody else: a partition that cannot be taken or read, a key with more parked than
//! there is room for, a dead letter that comes back.
use super::*;
use crate::support::{long, wait::signal};
use twinbox::{log::parking::PARKED_MAX, ops::Ops};
use twinbox_testkit::park_deliveries;

/// Somebody's transaction holds the fence of a partition.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_cannot_be_taken_keeps_no_other_waiting() {
    let rig = Rig::<Postgres>::new().await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(rig.consumer().run(stop.clone()));
    eventually(async || (rig.owners().await.values().sum::<usize>() == 16).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
    let mut held = rig.world.pool().begin().await.unwrap();
    let fence = "\
        SELECT pg_advisory_xact_lock_shared(lock_number) \
        FROM twinbox.partition_leases \
        WHERE consumer = $1 AND partition < 4";
    assert_eq!(sqlx::query(fence).bind(CONSUMER).fetch_all(&mut *held).await.unwrap().len(), 4);
    rig.publish(1..65, 0..1, 64).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(rig.consumer().run(stop.clone()));
    eventually(async || (rig.owners().await.values().sum::<usize>() == 12).then_some(())).await;
    held.rollback().await.unwrap();
    eventually(async || (rig.moves().await.len() == 64).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// Its reader at the broker is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_cannot_be_read_starts_no_other_anew() {
    let rig = Rig::<Postgres>::new().await;
    rig.publish(1..65, 0..1, 64).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(rig.consumer().run(stop.clone()));
    eventually(async || (rig.moves().await.len() == 64).then_some(())).await;
    let epochs = async || -> Vec<i64> {
        let epochs = "SELECT epoch FROM twinbox.partition_leases ORDER BY partition";
        sqlx::query_scalar(epochs).fetch_all(rig.world.pool()).await.unwrap()
    };
    let before = epochs().await;
    let stream = rig.target.jetstream().await.get_stream(&rig.target.name).await.unwrap();
    let readers: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
    assert_eq!(readers.len(), 16, "{readers:?}");
    stream.delete_consumer(&readers[5]).await.unwrap();
    eventually(async || (epochs().await != before).then_some(())).await;
    rig.publish(1..65, 1..2, 128).await;
    eventually(async || (rig.moves().await.len() == 128).then_some(())).await;
    let changed = epochs().await.iter().zip(&before).filter(|(now, before)| now != before).count();
    assert_eq!(changed, 1, "of sixteen");
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// It keeps its place for longer than one that fails by its own fault, but not for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_never_gets_its_locks_keeps_no_other_key_waiting() {
    let rig = Rig::<Postgres>::at(Target::shared(), 1).await;
    rig.bank.contended.store(7, SeqCst);
    rig.publish(7..8, 0..1, 1).await;
    // More than are received beyond one that keeps its place.
    rig.publish(1..7, 0..60, 361).await;
    let stop = CancellationToken::new();
    // It keeps its place for six leases. One that is lost begins that time anew, and loses no message.
    let consumer = rig.consumer().lease(Duration::from_secs(long::or(5, 1)));
    let running = tokio::spawn(consumer.run(stop.clone()));
    eventually(async || (rig.moves().await.len() == 360).then_some(())).await;
    assert_eq!(rig.of_each().await, in_order(1..7, 0..60));
    assert_eq!(rig.world.inbox(CONSUMER).parked_deliveries().await.unwrap(), 1);
    rig.bank.contended.store(0, SeqCst);
    eventually(async || (rig.moves().await.len() == 361).then_some(())).await;
    assert_eq!(rig.world.rows("attempts").await, 0, "it was nobody's fault");
    assert!(rig.world.inbox(CONSUMER).dead_letters(1).await.unwrap().is_empty());
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// With as many deliveries parked as there may be, no more are received, and none is lost.
async fn too_many_parked_deliveries_stop_what_comes<DB: TestDb>() {
    let rig = Rig::<DB>::at(Target::shared(), 1).await;
    rig.world.partition_leases(CONSUMER).create(1, &["accounts.moved".to_owned()]).await.unwrap();
    let minute = Duration::from_secs(60);
    let taken = rig.world.partition_leases(CONSUMER).take(0, Uuid::now_v7(), minute).await.unwrap();
    let (fence, _) = taken.expect("nobody has it");
    let parked = |nth: usize| {
        let moved = Moved { account: 7, nth: i64::try_from(nth).unwrap() };
        (Delivery::of(moved).unwrap().message().clone(), Duration::from_secs(3600))
    };
    let all = Vec::from_iter((0..PARKED_MAX).map(parked));
    for some in all.chunks(1000) {
        park_deliveries(&rig.world, CONSUMER, fence, some).await.unwrap();
    }
    rig.world.partition_leases(CONSUMER).release(fence).await.unwrap();
    rig.publish(1..4, 0..1, 3).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(rig.consumer().run(stop.clone()));
    eventually(async || (rig.owners().await.len() == 1).then_some(())).await;
    tokio::select! {
        () = signal("parking.is_full") => {}
        () = eventually(async || (!rig.moves().await.is_empty()).then_some(())) => panic!("more was \
            received"),
    }
    assert_eq!(rig.moves().await, []);
    let one = Ops::new(&rig.world).parked_deliveries(CONSUMER, 1).await.unwrap().remove(0);
    let mut conn = rig.world.pool().acquire().await.unwrap();
    let forget = format!("DELETE FROM {} WHERE id > {}", DB::table_of("parked_deliveries"), one.id);
    sqlx::raw_sql(AssertSqlSafe(forget)).execute(&mut *conn).await.unwrap();
    drop(conn);
    eventually(async || (rig.moves().await.len() == 3).then_some(())).await;
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

/// Redriven together: they wait for what is parked of their key, and then go one after another.
async fn redriven_messages_of_a_key_go_in_its_order<DB: TestDb>() {
    let rig = Rig::<DB>::at(Target::shared(), 1).await;
    let stop = CancellationToken::new();
    for nth in 0..20 {
        let message = Delivery::of(Moved { account: 7, nth }).unwrap().message().clone();
        let inbox = rig.world.inbox(CONSUMER);
        let buried = inbox.dead_letter(&message, twinbox::inbox::DeadReason::Exhausted, "it was tried", 3);
        assert!(buried.await.unwrap());
    }
    rig.bank.frozen.store(7, SeqCst);
    let running = tokio::spawn(rig.consumer().run(stop.clone()));
    eventually(async || (rig.owners().await.len() == 1).then_some(())).await;
    let dead_letters = rig.world.inbox(CONSUMER).dead_letters(100).await.unwrap();
    let mut conn = rig.world.pool().acquire().await.unwrap();
    let due = format!(
        "UPDATE {} SET redrive_attempts_left = 3, redrive_at = given_up_at",
        DB::table_of("dead_letters")
    );
    sqlx::raw_sql(AssertSqlSafe(due)).execute(&mut *conn).await.unwrap();
    drop(conn);
    assert_eq!(dead_letters.len(), 20);
    eventually(async || (rig.world.inbox(CONSUMER).parked_deliveries().await.unwrap() == 20).then_some(()))
        .await;
    rig.publish(7..8, 20..22, 2).await;
    eventually(async || (rig.world.inbox(CONSUMER).parked_deliveries().await.unwrap() == 22).then_some(()))
        .await;
    rig.bank.frozen.store(0, SeqCst);
    eventually(async || (rig.moves().await.len() == 22).then_some(())).await;
    assert_eq!(rig.of_each().await[&7], Vec::from_iter(0..22));
    assert!(rig.world.inbox(CONSUMER).dead_letters(1).await.unwrap().is_empty());
    stop.cancel();
    in_time(running).await.unwrap().unwrap();
}

cases! {
    all: [
        too_many_parked_deliveries_stop_what_comes,
        redriven_messages_of_a_key_go_in_its_order,
    ]
}
