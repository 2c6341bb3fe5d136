//! Many messages in few statements.
use crate::support::{
    cases::cases,
    databases::Postgres,
    stores::{Placed, TestDb, World},
};
use twinbox::{Draft, limits::PUBLISH_ALL_MAX};

fn drafts(range: std::ops::Range<i64>) -> Vec<Draft> {
    range.map(|n| Draft::of(&Placed { n }).unwrap()).collect()
}

async fn many_drafts_keep_their_order_and_their_ids<DB: TestDb>() {
    let world = World::<DB>::new().await;
    const { assert!(PUBLISH_ALL_MAX < 1_500) };
    let mut tx = world.begin().await.unwrap();
    let ids = world.outbox().publish_all(&mut tx, drafts(0..1_500)).await.unwrap();
    assert!(world.outbox().publish_all(&mut tx, Vec::new()).await.unwrap().is_empty());
    tx.commit().await.unwrap();
    let messages = world.published("orders.placed", 10_000).await.unwrap();
    assert!(messages.iter().map(|m| m.message_id()).eq(ids));
    let keys = messages.iter().map(|m| m.key.as_deref().unwrap().parse::<i64>().unwrap());
    assert!(keys.eq(0..1_500));
}

async fn many_drafts_are_published_whole_or_not_at_all<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let mut spoilt = drafts(0..1_500);
    spoilt.push(Draft::raw("orders.placed", 1, "").id(""));
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish_all(&mut tx, spoilt).await.unwrap_err();
    tx.commit().await.unwrap();
    assert_eq!(world.rows("outbox").await, 0, "the last of them was refused before the first was written");
}

/// Together they are more than a server of MariaDB takes in one statement.
async fn large_drafts_are_published_in_several_statements<DB: TestDb>() {
    let world = World::<DB>::new().await;
    let payload = vec![b'x'; 960 << 10];
    let large = (0..20).map(|n: i64| Draft::raw("orders.placed", 1, payload.clone()).key(n.to_string()));
    let mut tx = world.begin().await.unwrap();
    let ids = world.outbox().publish_all(&mut tx, large.collect()).await.unwrap();
    tx.commit().await.unwrap();
    let messages = world.published("orders.placed", 100).await.unwrap();
    assert!(messages.iter().map(|m| m.message_id()).eq(ids));
}

/// A trigger for each statement counts them.
async fn many_drafts_are_two_statements_on_postgres() {
    let world = World::<Postgres>::new().await;
    world
        .execute(
            "CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN INSERT INTO effects SELECT count(*) FROM effects; RETURN NULL; END $$;
            CREATE TRIGGER count_it AFTER INSERT ON twinbox.outbox
                FOR EACH STATEMENT EXECUTE FUNCTION count_it()",
        )
        .await;
    let mut tx = world.begin().await.unwrap();
    world.outbox().publish_all(&mut tx, drafts(0..1_500)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.left_behind().await, (0, 2, 1_500));
}

cases! {
    all: [
        many_drafts_keep_their_order_and_their_ids,
        many_drafts_are_published_whole_or_not_at_all,
        large_drafts_are_published_in_several_statements,
    ]
    postgres: [many_drafts_are_two_statements_on_postgres]
}
