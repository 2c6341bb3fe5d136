//! What people type is data, wherever it goes.
use crate::support::{
    cases::cases,
    consumer::{publish, run_until},
    stores::{Placed, TestDb, World, effect},
    tool::Tool,
};
use futures::future::join_all;
use twinbox::{Consumer, Delivery, Dialect, HandlerResult, Tx, event_handler};

#[event_handler(consumer = "billing.invoice")]
async fn invoice<DB: Dialect>(tx: &mut Tx<'_, DB>, order: Delivery<Placed>) -> HandlerResult {
    Ok(effect::<DB>(tx, order.n).await?)
}

const CORPUS: [&str; 16] = [
    "'",
    "''; DROP TABLE effects; --",
    "' OR '1'='1",
    "\" OR \"\"=\"",
    "$1",
    "?",
    "{outbox}",
    "%",
    "_",
    "\\",
    "\u{1b}[31mred\u{7}",
    "a\r\nb",
    "\u{202e}olleh",
    "*",
    ">",
    "é\u{1f600}",
];

/// Fault 48
async fn row_48_nothing_typed_becomes_sql<DB: TestDb>() {
    let (world, long) = (World::<DB>::new().await, "x".repeat(5000));
    publish(&world, 0..3).await;
    let consumer = Consumer::new((*world).clone(), ()).handler::<invoice>();
    run_until(consumer, async || world.rows("inbox").await == 3).await;
    let tool = Tool::of(&world);
    let to = ["replays", "plan", "resend", "--to", "consumer:billing.invoice"];
    for text in CORPUS.into_iter().chain([&*long]) {
        let (tool, to, long) = (&tool, &to, &*long);
        // Commands that change nothing run at the same time.
        let options = ["--key", "--id", "--source", "--correlation-id", "--since", "--until", "--type"];
        let plans = options.map(|option| async move {
            let ran = tool.run(&[&to[..], &[&format!("{option}={text}"), "-o", "json"]].concat()).await;
            // What is no time and no pattern is used wrongly, what is too long is refused, the rest selects
            // nothing.
            let selects_all = option == "--type" && text == ">";
            match ran.code {
                0 => {
                    let plan: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
                    assert_eq!(plan["selected"], if selects_all { 3 } else { 0 }, "{option} {text:?}");
                }
                2 => {
                    assert!(["--since", "--until", "--type"].contains(&option), "{option} {text:?}: {ran:?}")
                }
                4 => assert_eq!(text, long, "{option} {text:?}: {ran:?}"),
                _ => panic!("{option} {text:?}: {ran:?}"),
            }
        });
        join_all(plans).await;
        let unknown = [
            &["replays", "plan", "resend", "--to", text][..],
            &["destinations", "pause", text, "--yes"],
            &["keys", "unblock", text, "--destination=consumer:billing.invoice", "--yes"],
            &["messages", "skip", text, "--destination=consumer:billing.invoice", "--yes"],
            &["destinations", "retire", text, "--yes"],
            &["consumers", "pause", text, "--yes"],
            &["messages", "show", text],
            &["dead-letters", "redrive", "--yes", "--key", text],
            &["dead-letters", "redrive", "--yes", "--consumer", text],
            &["dead-letters", "discard", "--yes", "--reason", text, "--group", text],
        ];
        let refused = unknown.map(|arguments| async move {
            let ran = tool.run(arguments).await;
            assert_eq!(ran.code, 3, "{arguments:?}: {ran:?}");
            assert!(!ran.err.contains('\u{1b}') && !ran.err.contains('\u{202e}'), "{ran:?}");
        });
        join_all(refused).await;
        let dead_letter = tool.run(&["dead-letters", "show", text]).await;
        assert_eq!(dead_letter.code, 2, "{dead_letter:?}");
        // A name of tables is refused before it is one.
        let namespace = tool.run(&["status", &format!("--namespace={text}")]).await;
        assert_eq!(namespace.code, 4, "{text:?}: {namespace:?}");
        // It comes back as it was typed, and harmless on a terminal.
        let pause = ["consumers", "pause", "billing.invoice", "--yes", "--reason", text, "--as", text];
        tool.ok(&pause).await;
        let told = tool.run(&["status"]).await;
        assert!(!told.out.contains('\u{1b}') && !told.out.contains('\u{202e}'), "{told:?}");
        if text != long {
            let consumers = tool.json(&["consumers", "list"]).await;
            assert_eq!(consumers[0]["paused"].as_str(), Some(text));
            assert_eq!(tool.json(&["audit", "list"]).await[0]["operator"].as_str(), Some(text));
        }
    }
    assert_eq!((world.effects().await.len(), world.rows("outbox").await), (3, 3));
}

cases! {
    all: [row_48_nothing_typed_becomes_sql]
}
