//! Texts that attack the reader stay text, on every page.
use super::filled::{HOSTILE, filled_with};
use crate::support::{browser::Browser, console::Console, tool::Tool};
use futures::future::join_all;

/// Returns an address with a part of its query.
fn with(path: &str, name: &str, value: &str) -> String {
    let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("{path}{}{name}={encoded}", if path.contains('?') { "&" } else { "?" })
}

/// The addresses of all pages, with a text in each part of a query.
pub(super) fn pages(text: &str) -> Vec<(&'static str, String)> {
    let hostile = |path: &str, name: &str| with(path, name, text);
    vec![
        ("overview", "/".to_owned()),
        ("dead-letters", "/dead-letters".to_owned()),
        ("dead-letters-of-one", hostile("/dead-letters", "consumer")),
        ("dead-letters-list", "/dead-letters/list?consumer=billing.invoice".to_owned()),
        ("dead-letters-search", hostile(&hostile("/dead-letters/list", "key"), "message")),
        ("dead-letter", "/dead-letters/one?id=1".to_owned()),
        ("message", hostile("/messages", "id")),
        ("message-plain", "/messages?id=order-1".to_owned()),
        ("key", hostile("/keys", "key")),
        ("key-plain", "/keys?key=customer-1".to_owned()),
        ("keys", "/keys".to_owned()),
        ("consumers", "/consumers".to_owned()),
        ("consumer", hostile("/consumers", "name")),
        ("consumer-plain", "/consumers?name=billing.invoice".to_owned()),
        ("replays", "/replays".to_owned()),
        ("replay", "/replays?id=1".to_owned()),
        ("effects", "/effects".to_owned()),
        ("effects-search", hostile(&hostile("/effects", "vendor"), "kind")),
        ("effect", "/effects?id=1".to_owned()),
        ("bulk-actions", "/bulk-actions".to_owned()),
        ("bulk-action", "/bulk-actions?id=1".to_owned()),
        ("audit", "/audit".to_owned()),
        ("redrive", "/changes/redrive?consumer=billing.invoice".to_owned()),
        ("redrive-hostile", hostile("/changes/redrive", "consumer")),
        ("pause", hostile("/changes/pause-destination", "name")),
        ("pause-vendor", hostile("/changes/pause-vendor", "name")),
        ("unblock", hostile(&hostile("/changes/unblock-key", "destination"), "key")),
        ("skip", hostile(&hostile("/changes/skip-message", "destination"), "message")),
        ("resolve", "/changes/resolve-effect?id=1&outcome=applied".to_owned()),
        ("resend", hostile("/changes/resend?destination=nats", "key")),
        ("refused", hostile("/changes/resume-replay", "id")),
        ("nowhere", hostile("/nowhere", "x")),
        ("login", hostile("/login", "next")),
    ]
}

/// Markup; ends of elements; ends of attributes, entities and an address.
const CORPUS: [&str; 3] = [
    HOSTILE,
    "</title></style></textarea></a></script><svg/onload=owned=1><iframe srcdoc=owned>",
    "javascript:owned=1' autofocus onfocus=owned=1 x=\" onclick=owned=1 --> &lt;b&gt;b&lt;/b&gt; %3Cb%3E",
];
/// The elements that the texts would become.
const MADE: &str =
    "main script, img, iframe, svg[onload], [onerror], [onfocus], [onclick], [href^=javascript], main b";

/// I11: no script of a message runs, nothing is loaded, and the text is shown.
#[tokio::test(flavor = "multi_thread")]
async fn no_text_of_a_message_becomes_markup() {
    let Some(browser) = Browser::start().await else { return };
    join_all(CORPUS.map(|hostile| stays_text(&browser, hostile))).await;
}

/// Opens every page of a database that has this text everywhere.
async fn stays_text(browser: &Browser, hostile: &str) {
    let world = filled_with(hostile).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    // The rest of the text is escaped, or a format.
    let (readable, mut shown) = (hostile.split("{{").next().unwrap(), 0);
    for (name, path) in pages(hostile) {
        let status = page.open(&console.at(&path)).await;
        assert!([200, 400, 404, 409].contains(&status), "{name}: {status}");
        assert_eq!(page.eval("typeof owned").await, "undefined", "{name}");
        assert_eq!(page.eval(&format!("document.querySelectorAll('{MADE}').length")).await, 0, "{name}");
        let text = page.text("body").await;
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}') && !text.contains("60481729"),
            "{name}: {text}"
        );
        shown += usize::from(text.contains(readable));
        let unexpected = page.errors().into_iter();
        let unexpected = unexpected.filter(|error| !error.contains("the server responded with a status"));
        assert_eq!(unexpected.collect::<Vec<_>>(), [] as [String; 0], "{name}");
    }
    assert!(shown > 20, "{readable} is shown on {shown} pages");
    console.stop().await;
}
