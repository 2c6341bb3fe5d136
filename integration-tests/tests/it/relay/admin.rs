//! The program's admin listener, its logs, and a destination that is not set up as asked beside one that is.
use super::*;
use crate::support::{
    program::{Program, destination, logged},
    tool::Tool,
};
use twinbox::operation::{OperationKey, OperationStart};

/// A request that has charged somebody, and failed.
async fn unfinished(store: &Store<Postgres>) {
    let (key, policy) = (OperationKey { key: "a".into(), ..Default::default() }, Default::default());
    let begun =
        store.idempotency_keys().lease(&key, &Default::default(), &policy, Duration::from_secs(60)).await;
    let OperationStart::Open(mut lease) = begun.unwrap() else { panic!("it is free") };
    lease.save("charged ch_1").await.unwrap();
    lease.release().await.unwrap();
}

/// R33. Counters and facts from the database can be scraped, an outage of the broker shows, and an operator
/// can pause.
#[tokio::test(flavor = "multi_thread")]
async fn probes_and_metrics() {
    let mut server = NatsServer::start().unwrap();
    let target = Target::at(server.url());
    let store = database::postgres().await;
    publish(&store, 0..20).await;
    let mut program = Program::start(&store, &destination("events", &target, "create_stream = true")).await;
    let of = "{destination=\"events\"}";
    program.shows("twinbox_relay_publish_results_total{destination=\"events\",error_type=\"\"} 20").await;
    program.shows(&format!("twinbox_relay_lag_seconds_count{of} 20")).await;
    program.shows(&format!("twinbox_relay_backlog_messages{of} 0")).await;
    program.shows(&format!("twinbox_relay_leased{of} 1")).await;
    program.shows("twinbox_relay_circuit_breaker{destination=\"events\",state=\"closed\"} 1").await;
    program.shows("twinbox_relay_unfinished_idempotency_keys 0").await;
    unfinished(&store).await;
    program.shows("twinbox_relay_unfinished_idempotency_keys 1").await;
    assert_eq!(program.get("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(program.get("/readyz").await, (200, "ok\n".to_owned()));

    server.kill().unwrap();
    publish(&store, 20..25).await;
    program.shows("twinbox_relay_circuit_breaker{destination=\"events\",state=\"open\"} 1").await;
    program.shows(&format!("twinbox_relay_backlog_messages{of} 5")).await;
    assert_eq!(program.get("/readyz").await.0, 200, "no other relay would do better");

    let tool = Tool::at::<Postgres>(store.url());
    tool.ok(&["destinations", "pause", "events", "--yes", "--reason", "a bad deploy"]).await;
    program.shows(&format!("twinbox_relay_paused{of} 1")).await;
    server.restart().unwrap();
    let told = logged(&mut program.log, "an operator paused the destination").await;
    assert_eq!(told["reason"], "a bad deploy");
    assert_eq!(target.count().await, 20, "paused, although the broker is back");
    tool.ok(&["destinations", "resume", "events", "--yes"]).await;
    program.shows(&format!("twinbox_relay_backlog_messages{of} 0")).await;
    assert_eq!(target.count().await, 25);
}

/// One destination that is not set up as asked is reported, the other is served, and it comes back by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_not_set_up_stops_no_other() {
    let (good, bad) = (Target::shared(), Target::shared());
    let client = async_nats::connect(&bad.url).await.unwrap();
    let subjects = vec![format!("other.{}.>", bad.name)];
    let config = stream::Config { name: bad.name.clone(), subjects, ..Default::default() };
    jetstream::new(client).create_stream(config).await.unwrap();
    let store = database::postgres().await;
    publish(&store, 0..20).await;
    let both = destination("good", &good, "create_stream = true") + &destination("bad", &bad, "");
    let mut program = Program::start(&store, &both).await;
    let told = logged(&mut program.log, "other destinations continue").await;
    assert_eq!(told["destination"], "bad");
    program.shows("twinbox_relay_publish_results_total{destination=\"good\",error_type=\"\"} 20").await;
    let (status, text) = program.get("/readyz").await;
    assert!(status == 200 && text.contains("destination bad: "), "{status} {text}");

    let lease = destination("short", &good, "create_stream = true\nlease = \"1s\"");
    let mut short = Program::start(&store, &lease).await;
    let ended = timeout(PATIENCE, short.child.wait()).await.expect("it would never send").unwrap();
    assert_eq!(ended.code(), Some(1));

    let alone = Program::start(&store, &destination("bad", &bad, "")).await;
    let mut child = alone.child;
    let ended = timeout(PATIENCE, child.wait()).await.expect("there is nothing it could do").unwrap();
    assert_eq!(ended.code(), Some(1));
}
