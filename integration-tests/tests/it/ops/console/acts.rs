//! Acts of operators, from the preview to the entry in the audit.
use super::{
    filled::filled_with,
    shop::{Deployed, Deployment, consumer, publish, settled},
};
use crate::support::{
    browser::{Browser, Page},
    cases::cases_on,
    console::Console,
    consumer::run_until,
    relay::{Running, Target},
    stores::{TestDb, World},
    tool::Tool,
    wait::eventually,
};
use sqlx::Postgres;
use std::sync::{Arc, atomic::Ordering::SeqCst};
use twinbox::ops::Ops;

/// Confirms the change of a preview.
pub(super) async fn confirm(page: &Page, reason: &str) {
    if !reason.is_empty() {
        page.fill("[name=reason]", reason).await;
    }
    assert_eq!(page.follow("form.stack button").await, 200, "{}", page.text("body").await);
}

/// The newest entries of the audit are these, newest first, with how many each changed.
pub(super) async fn audit_has<DB: TestDb>(world: &World<DB>, entries: &[(&str, u64)]) {
    let found = Ops::new(&**world).audit(u32::try_from(entries.len()).unwrap()).await.unwrap();
    let found = Vec::from_iter(found.iter().map(|entry| (&*entry.command, entry.count.unwrap())));
    assert_eq!(found, entries);
}

/// A console with two operators, ada and eve, who open the same page and sign in.
pub(super) async fn signed_in(
    world: &World<Postgres>,
    browser: &Browser,
    path: &str,
) -> (Console, Page, Page) {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    let (ada, eve) = ("a".repeat(32), "e".repeat(32));
    std::fs::write(tokens.path(), format!("operator ada {ada}\noperator eve {eve}\n")).unwrap();
    let file = tokens.path().to_str().unwrap();
    let console = Console::start(&Tool::of(world), &["--allow-changes", "--tokens", file]).await;
    let (first, second) = (browser.page().await, browser.page().await);
    for (page, token) in [(&first, &ada), (&second, &eve)] {
        page.open(&console.at(path)).await;
        page.fill("[name=token]", token).await;
        assert_eq!(page.follow("button").await, 200);
    }
    (console, first, second)
}

/// All dead letters of a group are redriven. The page is loaded again half-way, and shows the end by itself.
async fn a_group_is_redriven_from_its_preview_to_the_audit<DB: TestDb>() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<DB>::new().await, Arc::new(Deployment::default()));
    deployed.rejects.store(true, SeqCst);
    publish(&world, 0..300).await;
    run_until(consumer(&world, &deployed), async || world.rows("dead_letters").await == 300).await;
    deployed.rejects.store(false, SeqCst);
    let tool = Tool::of(&world);
    let console = Console::start(&tool, &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/")).await;
    assert_eq!(page.follow("a[href='/dead-letters?consumer=billing.invoice']").await, 200);
    let group = page.text("tbody tr").await;
    assert!(group.contains("300") && group.contains("has no customer"), "{group}");
    assert_eq!(page.follow("a[href^='/changes/redrive']").await, 200);
    let preview = page.text("main").await;
    for shown in
        ["300 dead letters of the consumer billing.invoice", "Service test", "twinbox dead-letters redrive"]
    {
        assert!(preview.contains(shown), "{preview}");
    }
    confirm(&page, "the customer service is back").await;
    page.wait_for_text("waiting: a process that runs a relay or a consumer").await;
    // Nobody works yet, and the progress survives that the page is loaded again.
    assert_eq!(page.reload().await, 200);
    page.wait_for_text("waiting").await;
    let running = Deployed::start(consumer(&world, &deployed));
    page.wait_for_text("done").await;
    eventually(async || (world.effects().await.len() == 300).then_some(())).await;
    running.stop().await;
    page.open(&console.at("/audit")).await;
    let entry = page.text("tbody tr").await;
    let database_user = &Ops::new(&*world).audit(1).await.unwrap()[0].database_user;
    for shown in ["ada", database_user, "dead-letters redrive", "300", "the customer service is back"] {
        assert!(entry.contains(shown), "{entry}");
    }
    // The command that was shown does the same. It finds nothing more.
    let command = preview.lines().find_map(|line| line.strip_prefix("twinbox ")).unwrap();
    let words = Vec::from_iter(command.split(' ').chain(["--yes", "--reason", "again"]));
    tool.ends(3, &words).await;
    page.open(&console.at("/dead-letters")).await;
    page.wait_for_text("There is no dead letter.").await;
    console.stop().await;
}

cases_on! {
    [postgres: Postgres, mysql: MySql, sqlite: Sqlite],
    [a_group_is_redriven_from_its_preview_to_the_audit]
}

/// Only what the search found is discarded, and one dead letter alone.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_search_found_is_discarded() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<Postgres>::new().await, Arc::new(Deployment::default()));
    deployed.rejects.store(true, SeqCst);
    publish(&world, 0..205).await;
    let running = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.rows("dead_letters").await == 205).then_some(())).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/dead-letters")).await;
    page.click("summary").await;
    page.fill("[name=key]", "customer-4").await;
    assert_eq!(page.follow("details button").await, 200);
    assert_eq!(page.eval("document.querySelectorAll('tbody tr').length").await, 3);
    assert_eq!(page.follow("a.danger").await, 200);
    page.wait_for_text("This will delete 3 dead letters").await;
    // A reason is asked for.
    page.eval("document.querySelector('[name=reason]').required = false").await;
    assert_eq!(page.follow("form.stack button").await, 400);
    page.wait_for_text("Write a reason").await;
    page.open(&console.at("/changes/discard?consumer=billing.invoice&key=customer-4")).await;
    confirm(&page, "test orders").await;
    page.wait_for_text("done").await;
    assert_eq!(world.rows("dead_letters").await, 202);
    page.open(&console.at("/dead-letters/list?consumer=billing.invoice")).await;
    assert_eq!(page.follow("tbody th a").await, 200);
    let id = page.text("h1").await.replace("Dead letter ", "");
    assert_eq!(page.follow("a.danger").await, 200);
    confirm(&page, "this one").await;
    page.wait_for_text("done").await;
    let left = format!("SELECT count(*) FROM twinbox.dead_letters WHERE id = {id}");
    assert_eq!((world.number(left).await, world.rows("dead_letters").await), (0, 201));
    audit_has(&world, &[("dead-letters discard", 1), ("dead-letters discard", 3)]).await;
    running.stop().await;
    console.stop().await;
}

/// An old dead letter is not counted, and the act finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_match_behind_those_that_are_counted_is_discarded() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<Postgres>::new().await, Arc::new(Deployment::default()));
    world
        .execute(
            "INSERT INTO twinbox.dead_letters (consumer, message_id, reason, error, fingerprint, attempts,
                event_id, source, type, version, key, time, content_type, payload, given_up_at)
             SELECT 'billing.invoice', gen_random_uuid(), 'rejected', 'no customer', 'eeeeeeeeeeee', 1,
                'order-' || n, 'shop', 'orders.placed', 1, CASE n WHEN 0 THEN 'old' ELSE 'new' END, now(),
                'application/json', '{}', now() - interval '1 day' + n * interval '1 second'
             FROM generate_series(0, 1000) n",
        )
        .await;
    let running = Deployed::start(consumer(&world, &deployed));
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/changes/discard?consumer=billing.invoice&id=1")).await;
    page.wait_for_text("This will delete 1 dead letter of").await;
    page.open(&console.at("/changes/discard?consumer=billing.invoice&key=old")).await;
    page.wait_for_text("None of the newest 1,000 matches").await;
    confirm(&page, "an old one").await;
    page.wait_for_text("done").await;
    audit_has(&world, &[("dead-letters discard", 1)]).await;
    assert_eq!(world.rows("dead_letters").await, 1_000);
    running.stop().await;
    console.stop().await;
}

/// Two operators act on the same thing: the second is told that it has changed.
#[tokio::test(flavor = "multi_thread")]
async fn two_operators_do_not_act_twice() {
    let Some(browser) = Browser::start().await else { return };
    let (world, deployed) = (World::<Postgres>::new().await, Arc::new(Deployment::default()));
    publish(&world, 0..3).await;
    let running = Deployed::start(consumer(&world, &deployed));
    eventually(async || (world.effects().await.len() == 3).then_some(())).await;
    let path = "/changes/pause-consumer?name=billing.invoice";
    let (console, first, second) = signed_in(&world, &browser, path).await;
    for page in [&first, &second] {
        page.wait_for_text("This will give billing.invoice no more deliveries").await;
    }
    confirm(&first, "bad deployment").await;
    first.wait_for_text("It is paused, in every process").await;
    second.fill("[name=reason]", "also me").await;
    assert_eq!(second.follow("form.stack button").await, 400);
    second.wait_for_text("It is paused: bad deployment").await;
    second.open(&console.at("/consumers?name=billing.invoice")).await;
    assert_eq!(second.follow_text("Resume").await, 200);
    confirm(&second, "").await;
    second.wait_for_text("It is resumed.").await;
    let audit = Tool::of(&world).json(&["audit", "list"]).await;
    let who = Vec::from_iter(
        audit
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["operator"].as_str().unwrap(), one["command"].as_str().unwrap())),
    );
    assert_eq!(who, [("eve", "consumers resume"), ("ada", "consumers pause")]);
    running.stop().await;
    console.stop().await;
}

/// A resend over NATS with its progress, and a destination that is paused and resumed.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_resent_and_a_destination_is_paused() {
    let Some(browser) = Browser::start().await else { return };
    let (world, target) = (World::<Postgres>::new().await, Target::shared());
    publish(&world, 0..40).await;
    let relay = Running::start(&*world, &target);
    relay.published(40).await;
    settled(&world, 40).await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let page = browser.page().await;
    page.open(&console.at("/")).await;
    assert_eq!(page.follow("a[href='/changes/pause-destination?name=nats']").await, 200);
    confirm(&page, "maintenance").await;
    page.wait_for_text("maintenance").await;
    assert_eq!(page.follow("a[href='/changes/resume-destination?name=nats']").await, 200);
    confirm(&page, "").await;
    page.open(&console.at("/replays")).await;
    page.fill("form[action='/changes/resend'] [name=since]", "1h").await;
    assert_eq!(page.follow_text("Preview a resend").await, 200);
    page.wait_for_text("This will resend 40 messages to nats").await;
    confirm(&page, "the stream was lost").await;
    page.wait_for_text("done").await;
    assert!(page.text("main").await.contains("40 of 40"), "{}", page.text("main").await);
    let entries = [("replays run resend", 40), ("destinations resume", 1), ("destinations pause", 1)];
    audit_has(&world, &entries).await;
    relay.stop().await;
    console.stop().await;
}

/// Each other act: its preview, what it says then, and its entry in the audit.
#[tokio::test(flavor = "multi_thread")]
async fn every_other_act_leaves_an_entry() {
    let Some(browser) = Browser::start().await else { return };
    let world = filled_with("west").await;
    world.execute("DELETE FROM twinbox.audit WHERE id > 1").await;
    let console = Console::start(&Tool::of(&world), &["--allow-changes"]).await;
    let (page, ops) = (browser.page().await, Ops::new(&*world));
    for (path, effect, says, command) in [
        ("resume-vendor?name=west", "send side effects to west", "It is resumed.", "vendors resume"),
        ("pause-vendor?name=west", "send no side effect", "It is paused", "vendors pause"),
        ("retry-effect?id=2", "under a new key", "The effect is changed.", "effects retry"),
        ("resolve-effect?id=1&outcome=not-applied", "under a new key", "changed", "effects resolve"),
        (
            "skip-message?destination=west&message=west",
            "becomes a dead letter",
            "is skipped",
            "messages skip",
        ),
        ("retry-parked?consumer=billing.invoice", "Parked: 1.", "are due now", "messages retry"),
        ("pause-replay?id=1", "Messages in flight arrive", "It is paused", "replays pause"),
        ("resume-replay?id=1", "go on with the replay 1", "It is resumed.", "replays resume"),
        ("cancel-replay?id=1", "for good", "It is cancelled.", "replays cancel"),
        ("cancel-bulk?id=1", "What it has changed stays changed", "cancelled", "bulk-actions cancel"),
    ] {
        assert_eq!(page.open(&console.at(&format!("/changes/{path}"))).await, 200, "{path}");
        let preview = page.text("main").await;
        let shown = preview.contains(effect) && preview.contains("Service test, database 127.0.0.1");
        assert!(shown, "{path}: {preview}");
        confirm(&page, "because").await;
        page.wait_for_text(says).await;
        let entry = ops.audit(1).await.unwrap().remove(0);
        assert_eq!((&*entry.operator, &*entry.command, entry.count), ("ada", command, Some(1)), "{path}");
        assert_eq!(entry.reason.as_deref(), Some("because"));
        // Once more it has nothing to do, or says why not.
        let again = page.open(&console.at(&format!("/changes/{path}"))).await;
        let text = page.text("main").await;
        let is_over = !page.has("form.stack button").await;
        assert!(
            is_over || ["vendors", "messages"].contains(&command.split(' ').next().unwrap()),
            "{again}: {text}"
        );
    }
    console.stop().await;
}
