//! One run of the program that serves two services of one database.
use super::*;
use crate::support::{
    database::TestDatabase,
    program::{Program, destination, logged},
    tool::Tool,
};
use std::{collections::HashSet, process::Output};
use twinbox::{StoreOptions, Timestamp};

const BILLING: &str = "[schemas.billing]\nservice = \"billing\"\n";

fn billing<DB: Dialect>(database: &TestDatabase<DB>) -> Store<DB> {
    let options = StoreOptions::new().namespace("billing");
    Store::with_options(database.pool().clone(), "billing", options).unwrap()
}

/// Answers with the ids of the messages. The last one waits for a mover.
async fn publish_as<DB: Dialect>(store: &Store<DB>, event_type: &str, count: usize) -> HashSet<String> {
    let draft = |n| {
        let draft = Draft::raw(event_type, 1, "{}").id(format!("o-{n}")).key(format!("k-{}", n % 7));
        if n + 1 == count { draft.not_before(Timestamp::from_micros(0)) } else { draft }
    };
    let mut tx = store.begin().await.unwrap();
    let ids = store.outbox().publish_all(&mut tx, (0..count).map(draft).collect()).await.unwrap();
    tx.commit().await.unwrap();
    ids.iter().map(ToString::to_string).collect()
}

async fn held(target: &Target, count: usize) -> HashSet<String> {
    target.holds(count as u64, async_nats::ConnectOptions::new()).await;
    let all = usize::try_from(target.count().await).unwrap();
    target.messages(all).await.into_iter().map(|(id, ..)| id).collect()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The same event ids on both sides, and a destination that takes every type beside one that does not.
async fn each_to_its_own<DB: Dialect>(database: &TestDatabase<DB>, url: &str) {
    let (orders, invoices) = (Target::shared(), Target::shared());
    let text = BILLING.to_owned()
        + &destination("orders", &orders, "create_stream = true\ntypes = [\"orders.*\"]")
        + &destination("invoices", &invoices, "create_stream = true\nschema = \"billing\"");
    let mut program = Program::run(url, &["--migrate"], &text).await;
    let ordered = publish_as(database, "orders.placed", 40).await;
    let billed = publish_as(&billing(database), "orders.placed", 30).await;
    assert!(ordered.is_disjoint(&billed), "ids are of a service");
    assert_eq!(held(&orders, 40).await, ordered);
    assert_eq!(held(&invoices, 30).await, billed);

    publish_as(database, "stray.cat", 1).await;
    let told = logged(&mut program.log, "no destination takes this type").await;
    assert_eq!((&told["event_type"], &told["service"]), (&"stray.cat".into(), &database::SERVICE.into()));
    program.shows("twinbox_relay_unrouted_messages_total{destination=\"orders\"} 1").await;
    program.shows("twinbox_relay_unrouted_messages_total{destination=\"invoices\"} 0").await;
    program.shows("twinbox_relay_backlog_messages{destination=\"orders\",schema=\"twinbox\"} 0").await;
    program.shows("twinbox_relay_backlog_messages{destination=\"invoices\",schema=\"billing\"} 0").await;
    assert_eq!(program.get("/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!((orders.count().await, invoices.count().await), (40, 30));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_schemas_of_postgres_go_each_to_its_own_destination() {
    let database = database::postgres().await;
    each_to_its_own(&database, database.owner_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_prefixes_of_sqlite_go_each_to_its_own_destination() {
    let database = database::sqlite().await;
    each_to_its_own(&database, &format!("sqlite:{}", database.url())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_work_on_all_schemas_or_on_one() {
    let (database, target) = (database::postgres().await, Target::shared());
    let other = billing(&database);
    other.migrate().await.unwrap();
    publish_as(&database, "orders.placed", 3).await;
    publish_as(&other, "billing.paid", 2).await;
    let text =
        BILLING.to_owned() + &destination("invoices", &target, "create_stream = true\nschema = \"billing\"");
    let mut program = Program::run(database.owner_url(), &[], &text).await;
    assert_eq!(logged(&mut program.log, "no destination reads this schema").await["schema"], "twinbox");
    assert_eq!(held(&target, 2).await.len(), 2);

    let check = program.output(&["check"]).await;
    for line in [
        "ok    database: service \"test\", namespace \"twinbox\"",
        "ok    schema billing: service \"billing\", namespace \"billing\"",
        "FAIL  type orders.placed of twinbox: goes nowhere",
        "ok    type billing.paid of billing: goes to invoices",
    ] {
        assert!(said(&check).lines().any(|said| said.starts_with(line)), "{line}\nin\n{}", said(&check));
    }

    let tool = Tool::at::<Postgres>(database.owner_url());
    tool.ok(&["destinations", "pause", "invoices", "--namespace", "billing", "--yes"]).await;
    program.shows("twinbox_relay_paused{destination=\"invoices\",schema=\"billing\"} 1").await;

    let purge = program.output(&["purge", "--keep", "0s"]).await;
    assert!(purge.status.success(), "{}", said(&purge));
    assert_eq!(said(&purge).lines().filter(|line| line.ends_with("messages deleted")).count(), 2);
    let purge = program.output(&["purge", "--schema", "twinbox"]).await;
    assert_eq!(said(&purge), "twinbox: 0 messages deleted\n");
    let purge = program.output(&["purge", "--schema", "stock"]).await;
    assert!(!purge.status.success() && said(&purge).contains("there is no schema \"stock\" in the file"));

    let stolen = "UPDATE billing.meta SET service = 'stock'";
    sqlx::raw_sql(stolen).execute(database.pool()).await.unwrap();
    let (status, text) = program.get("/readyz").await;
    assert!(
        status == 503 && text.contains("schema billing: ") && !text.contains("database: "),
        "{status} {text}"
    );
    // One that fails does not keep the other from it.
    let purge = program.output(&["purge"]).await;
    let says = said(&purge);
    assert!(!purge.status.success() && says.contains("twinbox: 0 messages deleted"), "{says}");
    assert!(says.contains("twinbox-relay: billing: "), "{says}");
}
