//! The database goes away under a page that is open, and comes back.
use super::people::keep_picture;
use crate::support::{
    browser::Browser,
    console::Console,
    postgres::{own, store_at},
    tool::Tool,
};
use sqlx::Postgres;
use twinbox::ops::Ops;

/// Says so, and recovers by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_says_that_the_database_is_away_and_recovers() {
    let Some(browser) = Browser::start().await else { return };
    let (mut server, _) = own().await;
    let console = Console::start(&Tool::at::<Postgres>(&server.url()), &["--allow-changes"]).await;
    let (page, change) = (browser.page().await, browser.page().await);
    page.open(&console.at("/")).await;
    page.wait_for_text("Nothing is wrong.").await;
    change.open(&console.at("/changes/unblock-key?destination=nats&key=a")).await;
    change.fill("[name=reason]", "too large").await;
    let other = browser.page().await;
    server.stop_immediate().unwrap();
    // Each request waits for a connection. A change that was sent during the outage may have been made.
    let audit = console.at("/audit");
    let ((), opened, changed) = tokio::join!(
        page.wait_for_text("The database is away"),
        other.open(&audit),
        change.follow("form.stack button")
    );
    assert_eq!((opened, changed), (503, 503));
    change.wait_for_text("It may have been made").await;
    for (page, name) in [(&page, "away"), (&change, "change-away")] {
        for (width, is_dark) in [(320, false), (320, true), (1280, false), (1280, true)] {
            page.dark(is_dark).await;
            page.size(width, 800).await;
            assert_eq!(page.wider_than_the_window().await, [] as [String; 0], "{name}");
            assert_eq!(page.barriers().await, [] as [String; 0], "{name}, dark: {is_dark}");
            keep_picture(page, name, width, is_dark).await;
        }
    }
    server.start_again().unwrap();
    page.wait_for_text("Nothing is wrong.").await;
    // The whole page loads itself again, too.
    other.wait_for_text("No changes were made.").await;
    let ops = Ops::new(&store_at(&server.url()).await);
    assert!(ops.audit(1).await.unwrap().is_empty());
    console.stop().await;
}
