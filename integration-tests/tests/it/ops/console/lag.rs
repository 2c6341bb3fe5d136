//! The page of a consumer says how far it is behind at its broker.
use super::super::lag::{Rig, any_order, in_order};
use super::shop::Deployed;
use crate::support::{browser::Browser, console::Console, relay::Target};
use sqlx::Postgres;
use twinbox_testkit::servers::NatsServer;

const SUM: &str = "[...document.querySelectorAll('tbody tr')]\
    .map(row => Number(row.cells[3].textContent)).reduce((a, b) => a + b, 0)";

#[tokio::test(flavor = "multi_thread")]
async fn a_page_says_how_far_a_consumer_is_behind_and_that_its_broker_is_away() {
    let Some(browser) = Browser::start().await else { return };
    let mut server = NatsServer::start().unwrap();
    let mut rig = Rig::<Postgres>::at(Target::at(server.url())).await;
    rig.publish(0..50).await;
    for consumer in [rig.consumer().handler::<in_order>(), rig.consumer().handler::<any_order>()] {
        let running = Deployed::start(consumer);
        rig.handled(50).await;
        rig.world.execute("DELETE FROM effects").await;
        running.stop().await;
    }
    rig.publish(50..90).await;
    rig.stop_relay().await;

    let (ordered, unordered) = ("/consumers?name=tests.in_order", "/consumers?name=tests.any_order");
    let page = browser.page().await;
    let without = Console::start(&rig.tool, &[]).await;
    assert_eq!(page.open(&without.at(ordered)).await, 200);
    page.wait_for_text("Start the console with --nats-url URL to see how far the consumer is behind.").await;
    without.stop().await;

    let url = server.url();
    let console = Console::start(&rig.tool, &["--nats-url", &url]).await;
    for path in [ordered, unordered] {
        assert_eq!(page.open(&console.at(path)).await, 200);
        page.wait_for_text("Behind at the broker").await;
        page.wait_for_text("40, the oldest stored").await;
    }
    page.open(&console.at(ordered)).await;
    assert_eq!(page.eval(SUM).await, 40);

    // One that hangs, and one that is gone.
    server.pause().unwrap();
    assert_eq!(page.reload().await, 200);
    page.wait_for_text("behind at the broker is unknown: ").await;
    let shown = page.text("main").await;
    // On a slow machine the page waits no longer before the connection is given up.
    let hangs = ["connecting to NATS timed out", "it did not answer within 3 seconds"];
    assert!(hangs.iter().any(|why| shown.contains(why)), "{shown}");
    server.resume().unwrap();
    server.kill().unwrap();
    assert_eq!(page.reload().await, 200);
    page.wait_for_text("behind at the broker is unknown").await;
    assert!(page.has("tbody tr:nth-child(16)").await, "what the database knows is shown");
    server.restart().unwrap();
    assert_eq!(page.reload().await, 200);
    page.wait_for_text("40, the oldest stored").await;

    // It catches up, and another stream of the same name is read from its beginning.
    let running = Deployed::start(rig.consumer().handler::<in_order>());
    rig.handled(40).await;
    rig.is_behind_as("tests.in_order", 0).await;
    assert_eq!(page.reload().await, 200);
    assert_eq!(page.eval(SUM).await, 0);
    running.stop().await;
    rig.target.jetstream().await.delete_stream(&rig.target.name).await.unwrap();
    rig.target.create(rig.target.config(&["orders.placed"])).await;
    assert_eq!(page.reload().await, 200);
    page.wait_for_text("it will read from the first message: it is another stream of the same name").await;
    assert_eq!(page.open(&console.at(unordered)).await, 200);
    page.wait_for_text("unknown: the stream has no such consumer").await;
    console.stop().await;
}
