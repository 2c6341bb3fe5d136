//! A replica without the last commits takes over from the database of a consumer.
use super::shop::{Deployed, publish, settled};
use crate::support::{
    book::Book,
    postgres::{lacks, own, postgres_address, standby_of, store_at, through},
    relay::{Running, Target},
    stores::{Placed, World, effect},
    tool::Tool,
    wait::eventually,
};
use sqlx::Postgres;
use twinbox::{Consumer, Delivery, HandlerResult, Store, Tx, event_handler};
use twinbox_testkit::proxy::Proxy;

#[event_handler(consumer = "billing.invoice")]
async fn note(tx: &mut Tx<'_, Postgres>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<Postgres>(tx, order.n).await?)
}

/// Waits until the handler has written that many.
async fn handled(store: &Store<Postgres>, count: i64) {
    let effects = || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effects").fetch_one(store.pool());
    eventually(async || (effects().await.ok()? == count).then_some(())).await;
}

/// What the broker has forgotten because it was acknowledged comes again from the log.
#[tokio::test(flavor = "multi_thread")]
async fn row_35_a_replica_took_over() {
    if lacks("pg_basebackup") {
        return;
    }
    let (shop, target) = (World::<Postgres>::new().await, Target::shared());
    let relay = Running::start(&*shop, &target);
    let (mut primary, before) = own().await;
    sqlx::raw_sql("CREATE TABLE effects (n bigint NOT NULL UNIQUE)").execute(before.pool()).await.unwrap();
    let proxy = Proxy::start(postgres_address(&primary.url())).await.unwrap();
    let store = store_at(&through(&primary.url(), &proxy)).await;
    publish(&shop, 0..50).await;
    relay.published(50).await;
    let consumer = Consumer::new(store, ()).transport(target.destination()).handler::<note>();
    let consuming = Deployed::start(consumer);
    handled(&before, 50).await;
    let mut standby = tokio::task::block_in_place(|| standby_of(&primary));
    publish(&shop, 50..70).await;
    relay.published(70).await;
    handled(&before, 70).await;
    eventually(async || (target.unsettled("billing.invoice").await == 0).then_some(())).await;

    primary.stop_immediate().unwrap();
    standby.start_again().unwrap();
    let after = store_at(&standby.url()).await;
    assert!(sqlx::query_scalar::<_, bool>("SELECT pg_promote()").fetch_one(after.pool()).await.unwrap());
    proxy.lead_to(postgres_address(&standby.url()));
    publish(&shop, 70..71).await;
    relay.published(71).await;
    // The consumer continues by itself, and the broker delivers nothing of what was lost.
    handled(&after, 51).await;
    settled(&shop, 71).await;

    let mut book = Book::with(Tool::at::<Postgres>(&standby.url()), "A replica took over");
    let doctor = book.ran().await;
    let shows = ["synchronous_commit", "asynchronous_replicas", "consumer billing.invoice"];
    assert!(shows.iter().all(|name| doctor.out.contains(name)), "{doctor:?}");
    book.says("Nothing is wrong").await;
    book.says("billing.invoice").await;
    book.others("go to the database of each service");
    book.go_to(Tool::of(&shop));
    book.says("is done: 71 messages").await;
    handled(&after, 71).await;
    book.says("Nothing is wrong").await;
    book.close();
    consuming.stop().await;
    relay.stop().await;
    let numbers = sqlx::query_scalar::<_, i64>("SELECT n FROM effects ORDER BY n").fetch_all(after.pool());
    assert_eq!(numbers.await.unwrap(), Vec::from_iter(0..71));
}
