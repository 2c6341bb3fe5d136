//! Large transactions: their positions are one wide hole until they commit.
use super::*;
use crate::support::stores::{TestDb as _, World};
use sqlx::MySqlConnection;

const LARGE: usize = 5_000;

/// Publishes messages in one statement, with the texts `NAME FIRST` and following.
async fn write(conn: &mut MySqlConnection, name: &str, first: usize, count: usize) {
    let insert = format!(
        "INSERT INTO twinbox_outbox (type, id, payload)
        SELECT 'test.happened', 'x', CONCAT('{name} ', n + {first} - 1) FROM {} ORDER BY n",
        MySql::numbers(count)
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(conn).await.unwrap();
}

/// One of them stays open between the two halves of the other, in the same hole.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_transaction_that_commits_late_comes_once_and_in_order() {
    let world = World::<MySql>::new().await;
    let begin = async || world.pool().begin().await.unwrap();
    let (mut before, mut large, mut open, mut behind) =
        (begin().await, begin().await, begin().await, begin().await);
    write(&mut before, "before", 1, 1).await;
    publish(&world, None, &["first"]).await;
    write(&mut large, "large", 1, LARGE).await;
    write(&mut open, "open", 1, LARGE).await;
    write(&mut large, "large", LARGE + 1, LARGE).await;
    publish(&world, None, &["second"]).await;
    write(&mut behind, "behind", 1, 1).await;
    publish(&world, None, &["third"]).await;
    let mut reader = super::open(&world, "d").await;
    assert_eq!(settle_until(&mut reader, "third").await, ["first", "second", "third"]);

    for late in [before, large, behind] {
        late.commit().await.unwrap();
    }
    publish(&world, None, &["fourth"]).await;
    let texts = |name: &'static str, count| (1..=count).map(move |n| format!("{name} {n}"));
    let late = texts("before", 1).chain(texts("large", 2 * LARGE)).chain(texts("behind", 1));
    let expected = Vec::from_iter(late.chain(["fourth".to_owned()]));
    assert_eq!(settle_until(&mut reader, "fourth").await, expected);

    open.commit().await.unwrap();
    publish(&world, None, &["fifth"]).await;
    let expected = Vec::from_iter(texts("open", LARGE).chain(["fifth".to_owned()]));
    assert_eq!(settle_until(&mut reader, "fifth").await, expected);
    reader.close().await.unwrap();
}
