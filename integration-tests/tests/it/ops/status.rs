//! The alarms of `status`.
use crate::support::{
    cases::cases,
    stores::{TestDb, World, placed},
    tool::Tool,
};
use sqlx::AssertSqlSafe;
use std::time::Duration;
use twinbox::{Draft, Timestamp, inbox::DeadReason, log::Log, ops::Ops};
use uuid::Uuid;

async fn a_delayed_message_that_nobody_moves_is_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    assert!(tool.ok(&["status"]).await.contains("Nothing is wrong"));
    let mut tx = world.begin().await.unwrap();
    let draft = Draft::raw("orders.placed", 1, "{}").not_before(Timestamp::from_micros(0));
    world.outbox().publish_draft(&mut tx, draft).await.unwrap();
    tx.commit().await.unwrap();
    let ran = tool.run(&["status"]).await;
    assert!(ran.code == 7 && ran.out.contains("a delayed message has been due for"), "{ran:?}");
    Log::new(&world).move_due(10).await.unwrap();
    let ran = tool.run(&["status"]).await;
    assert!(!ran.out.contains("delayed"), "{ran:?}");
}

async fn partitions_that_nobody_reads_are_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    let leases = world.partition_leases("billing.ledger");
    leases.create(3, &["orders.placed".to_owned()]).await.unwrap();
    let seen = format!("INSERT INTO {} (consumer) VALUES ('billing.ledger')", DB::table_of("consumers"));
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(seen)).execute(&mut *conn).await.unwrap();
    drop(conn);
    assert!(tool.ok(&["status"]).await.contains("Nothing is wrong"), "they are free for a moment only");

    let hour = Duration::from_secs(3600);
    let mut fence = None;
    for partition in 0..3 {
        let ran = tool.run(&["status", "--max-unowned", "0s"]).await;
        let unread = twinbox::ops::wording::counted(3 - u64::from(partition), "partition");
        let alarm = format!("no process has read {unread} of consumer billing.ledger for");
        assert!(ran.code == 7 && ran.out.contains(&alarm), "{ran:?}");
        fence = leases.take(partition, Uuid::now_v7(), hour).await.unwrap();
    }
    assert!(tool.ok(&["status", "--max-unowned", "0s"]).await.contains("Nothing is wrong"));

    leases.release(fence.unwrap().0).await.unwrap();
    let ran = tool.run(&["status", "--max-unowned", "0s"]).await;
    assert!(ran.out.contains("1 partition of consumer billing.ledger"), "{ran:?}");
    Ops::new(&world).pause_consumer("billing.ledger", "lunch").await.unwrap();
    assert!(tool.ok(&["status", "--max-unowned", "0s"]).await.contains("Nothing is wrong"), "it is paused");
}

async fn many_dead_letters_are_an_alarm<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let tool = Tool::of(&world);
    let seen = format!("INSERT INTO {} (consumer) VALUES ('billing.ledger')", DB::table_of("consumers"));
    let mut conn = world.pool().acquire().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(seen)).execute(&mut *conn).await.unwrap();
    drop(conn);
    for n in 0..3 {
        let inbox = world.inbox("billing.ledger");
        inbox.dead_letter(&placed(n), DeadReason::Rejected, "no", 1).await.unwrap();
    }
    assert!(tool.ok(&["status", "--max-dead-letters", "3"]).await.contains("Nothing is wrong"));
    let ran = tool.run(&["status", "--max-dead-letters", "2"]).await;
    let alarm = "consumer billing.ledger has 3 dead letters: redrive or discard them";
    assert!(ran.code == 7 && ran.out.contains(alarm), "{ran:?}");
}

cases! {
    all: [
        a_delayed_message_that_nobody_moves_is_an_alarm,
        partitions_that_nobody_reads_are_an_alarm,
        many_dead_letters_are_an_alarm,
    ]
}
