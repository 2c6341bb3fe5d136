//! Pages for people: any width, both themes, the keyboard alone, a screen reader, without scripts.
use super::{
    filled::{HOSTILE, filled, filled_with},
    hostile::pages,
};
use crate::support::{
    browser::{Browser, Page},
    console::Console,
    long,
    tool::Tool,
    wait::eventually,
};
use std::path::PathBuf;

/// Every page, filled, in both themes and at two widths.
#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_for_everybody() {
    let Some(browser) = Browser::start().await else { return };
    let world = filled().await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    // The overview is the last one: its charts need some seconds.
    for (name, path) in pages(HOSTILE).into_iter().rev() {
        if name == "overview" {
            charts(&page, &console).await;
        }
        page.size(320, 900).await;
        let status = page.open(&console.at(&path)).await;
        assert!(status == 200 || path.contains('%'), "{name}: {status}");
        for is_dark in [false, true] {
            page.dark(is_dark).await;
            for (width, is_narrow) in [(320, true), (1600, false)] {
                page.size(width, 900).await;
                assert_eq!(page.wider_than_the_window().await, [] as [String; 0], "{name} at {width}");
                if is_narrow && (!is_dark || in_both_themes(name)) {
                    assert_eq!(page.barriers().await, [] as [String; 0], "{name}, dark: {is_dark}");
                }
            }
        }
    }
    page.eval("document.querySelector('main').innerHTML = '<img src=\"/assets/style.css\">'").await;
    let found = page.barriers().await;
    assert!(found.iter().any(|one| one.contains("image-alt")), "a barrier that is there is found: {found:?}");
    console.stop().await;
}

/// Whether the page is searched for barriers in both themes. In short, two that have all colours are.
fn in_both_themes(name: &str) -> bool {
    long::or(true, ["overview", "message"].contains(&name))
}

/// Waits until the overview has its charts, which need two looks.
async fn charts(page: &Page, console: &Console) {
    page.open(&console.at("/")).await;
    eventually(async || {
        let lines = page.eval("document.querySelectorAll('svg polyline').length").await;
        lines.as_u64().filter(|lines| *lines > 0)
    })
    .await;
}

/// The pictures of the book. With `TWINBOX_SCREENSHOTS` it writes them there, else it only takes one.
#[tokio::test(flavor = "multi_thread")]
async fn pictures_show_each_page() {
    let Some(browser) = Browser::start().await else { return };
    let world = filled_with("west").await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    let plain = |(name, _): &(&str, String)| {
        !["dead-letters-of-one", "message", "key", "consumer", "nowhere"].contains(name)
    };
    for (name, path) in pages("west").into_iter().filter(plain).rev() {
        if name == "overview" {
            charts(&page, &console).await;
        }
        for (width, is_dark) in [(320, false), (320, true), (1280, false), (1280, true)] {
            page.dark(is_dark).await;
            page.size(width, 800).await;
            let status = page.open(&console.at(&path)).await;
            assert!(status == 200 || path.contains('%'), "{name}: {status}");
            if !keep_picture(&page, name, width, is_dark).await {
                return console.stop().await;
            }
        }
    }
    console.stop().await;
}

/// Takes a picture of the page, and writes it to the folder of `TWINBOX_SCREENSHOTS`. Returns whether it has.
pub(super) async fn keep_picture(page: &Page, name: &str, width: u32, is_dark: bool) -> bool {
    let picture = page.screenshot().await;
    assert!(picture.starts_with(b"\x89PNG"), "{name}");
    let Some(folder) = std::env::var_os("TWINBOX_SCREENSHOTS") else { return false };
    let theme = if is_dark { "dark" } else { "light" };
    std::fs::write(PathBuf::from(folder).join(format!("{name}-{width}-{theme}.png")), picture).unwrap();
    true
}

/// From the overview to a preview, with Tab and Enter.
#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_alone_is_enough() {
    let Some(browser) = Browser::start().await else { return };
    let world = filled().await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/")).await;
    page.press("Tab").await;
    assert_eq!(page.focused().await, "Skip to the content");
    let tab_to = async |text: &str| {
        for _ in 0..200 {
            if page.focused().await.starts_with(text) {
                return;
            }
            page.press("Tab").await;
        }
        panic!("{text} is not reached");
    };
    tab_to("Dead letters").await;
    assert_eq!(page.press_enter().await, 200);
    tab_to("redrive group eeeeeeeeeeee").await;
    assert_eq!(page.press_enter().await, 200);
    page.wait_for_text("120 dead letters of the consumer billing.invoice").await;
    tab_to("reason").await;
    page.fill("[name=reason]", "mended").await;
    assert_eq!(page.press_enter().await, 200);
    assert!(page.url().await.contains("/bulk-actions?id="), "{}", page.url().await);
    console.stop().await;
}

/// Times are in the zone of the reader, and UTC without scripts.
#[tokio::test(flavor = "multi_thread")]
async fn pages_are_read_without_scripts_and_times_have_a_zone() {
    let Some(browser) = Browser::start().await else { return };
    let world = filled().await;
    world.execute("UPDATE twinbox.audit SET at = '2026-01-02T20:30:00Z'").await;
    let console = Console::start(&Tool::of(&world), &[]).await;
    let page = browser.page().await;
    page.zone("Asia/Tokyo").await;
    page.open(&console.at("/audit")).await;
    let shown = page.text("time").await;
    assert!(shown.contains("5:30:00") && shown.contains('3'), "{shown}");
    assert_eq!(page.eval("document.querySelector('time').title").await, "2026-01-02 20:30:00 UTC");
    page.scripts(false).await;
    for (name, path) in pages(HOSTILE) {
        let status = page.open(&console.at(&path)).await;
        assert!(status < 500 && page.has("main h1").await, "{name}: {status}");
    }
    page.open(&console.at("/audit")).await;
    assert_eq!(page.text("time").await, "2026-01-02 20:30:00 UTC");
    page.open(&console.at("/dead-letters")).await;
    assert_eq!(page.follow("tbody th a").await, 200);
    assert!(page.url().await.contains("/dead-letters/list?"), "{}", page.url().await);
    console.stop().await;
}
