//! Every page on every database.
use super::shop::{Deployed, Deployment, consumer, publish, settled_by};
use crate::support::{
    cases::cases,
    console::Console,
    effects::{mail, plan},
    stores::{TestDb, World},
    tool::Tool,
    wait::eventually,
};
use std::sync::{Arc, atomic::Ordering::SeqCst};

/// With orders that were handled, one that was given up, a planned effect and a replay.
async fn every_page_answers<DB: TestDb>() {
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..5).await;
    let running = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 5).then_some(())).await;
    deployed.rejects.store(true, SeqCst);
    publish(&world, 5..6).await;
    eventually(async || (world.rows("dead_letters").await == 1).then_some(())).await;
    plan(&world, mail("hello")).await;
    settled_by(&world, "consumer:billing.invoice", 6).await;
    let tool = Tool::of(&world);
    let replay =
        ["replays", "run", "resend", "--to", "consumer:billing.invoice", "--all", "--yes", "--no-wait"];
    tool.ok(&replay).await;
    let console = Console::start(&tool, &["--allow-changes"]).await;
    for (path, shown) in [
        ("/", "consumer:billing.invoice"),
        ("/live", "billing.invoice"),
        ("/dead-letters", "order 5 has no customer"),
        ("/dead-letters/list?consumer=billing.invoice&key=customer-5", "customer-5"),
        ("/dead-letters/list?message=order-5", "order 5 has no customer"),
        ("/dead-letters/list?destination=nats&type=orders.*&since=1h", "None matches"),
        ("/dead-letters/one?id=1", "&#34;n&#34;: 5"),
        ("/messages?id=order-1", "processed"),
        ("/messages?id=order-5", "dead letter"),
        ("/keys?key=customer-3", "order-3"),
        ("/keys", "No request is unfinished"),
        ("/consumers", "billing.invoice"),
        ("/consumers?name=billing.invoice", "Behind in the log"),
        ("/replays", "resend"),
        ("/replays?id=1", "consumer:billing.invoice"),
        ("/effects", "mail"),
        ("/effects?id=1", "hello"),
        ("/bulk-actions", "No bulk action"),
        ("/audit", "replays run resend"),
        ("/changes/redrive?consumer=billing.invoice", "1 dead letter of the consumer billing.invoice"),
        ("/changes/reprocess?consumer=billing.invoice&since=1h", "again with billing.invoice"),
        ("/changes/resend?destination=consumer:billing.invoice&type=orders.placed", "This will resend"),
        ("/changes/pause-consumer?name=billing.invoice", "no more deliveries"),
        ("/changes/retry-parked?consumer=billing.invoice", "No delivery is parked"),
    ] {
        let answer = reqwest::get(console.at(path)).await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success() && text.contains(shown), "{path}: {status}\n{text}");
    }
    for path in ["/dead-letters/one?id=99", "/replays?id=99", "/effects?id=99", "/bulk-actions?id=99"] {
        assert_eq!(reqwest::get(console.at(path)).await.unwrap().status(), 404, "{path}");
    }
    for path in [
        "/dead-letters/one?id=x",
        "/keys?key=a&before=x",
        "/effects?before=x",
        "/dead-letters/list?since=never",
    ] {
        assert_eq!(reqwest::get(console.at(path)).await.unwrap().status(), 400, "{path}");
    }
    running.stop().await;
    console.stop().await;
}

cases! { all: [every_page_answers] }
