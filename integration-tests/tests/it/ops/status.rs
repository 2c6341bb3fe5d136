//! The alarms of `status`.
use crate::support::{
    cases::cases,
    stores::{TestDb, World},
    tool::Tool,
};
use twinbox::{Draft, Timestamp, log::Log};

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

cases! { all: [a_delayed_message_that_nobody_moves_is_an_alarm] }
