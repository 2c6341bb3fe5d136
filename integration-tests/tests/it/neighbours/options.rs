//! A neighbour on a stream that somebody has given options with which the permissions of publishers do not
//! hold. A stream of Twinbox has none of them.
use super::*;
use crate::support::tool::Tool;
use async_nats::jetstream::stream::Config;
use serde_json::Value;
use std::error::Error as _;
use twinbox::nats::ErrorKind;
use twinbox_core::Destination;

/// A subject that the neighbour may not publish to.
const OTHER: &str = "events.3.orders.placed";

/// An order that the server is to store there, at a time that is past.
fn scheduled() -> HeaderMap {
    let mut headers = headers("order-66", "orders.placed", "66");
    headers.insert("Nats-Schedule", "@at 2026-01-01T00:00:00Z");
    headers.insert("Nats-Schedule-Target", OTHER);
    headers
}

fn rolled_up(what: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Rollup", what);
    headers
}

/// Publishes as the neighbour, on a subject of its own. Returns the answer of the server.
async fn answer_to(headers: HeaderMap, neighbour: &Client) -> String {
    let answer = neighbour.request_with_headers("events.5.reviews.junk", headers, "{\"n\":66}".into());
    String::from_utf8(in_time(answer).await.unwrap().payload.to_vec()).unwrap()
}

async fn is_refused(broker: &SharedBroker, headers: HeaderMap) -> bool {
    let answer = answer_to(headers, &broker.client("reviews").await).await;
    assert!(answer.contains("\"error\"") || answer.contains("\"seq\""), "{answer}");
    answer.contains("\"error\"")
}

/// `check` refuses the stream, and `doctor` finds it wrong. A relay runs on it, and logs it.
async fn is_named(world: &World<Postgres>, broker: &SharedBroker, option: &str) {
    let error = broker.nats("relay").check().await.unwrap_err();
    let text = error.source().unwrap().to_string();
    assert!(error.code() == "nats.mismatch" && text.contains(option), "{error}: {text}");

    let url = broker.url("operator");
    let server = ["--nats-url", &url, "--nats-inbox-prefix", "_INBOX_operator"];
    let stream = ["--nats-stream", STREAM, "--nats-prefix", "events"];
    let doctor = Tool::of(world).run(&[&["doctor", "-o", "json"], &server[..], &stream[..]].concat()).await;
    let findings: Value = serde_json::from_str(&doctor.out).unwrap_or_else(|e| panic!("{e}: {doctor:?}"));
    let is_it = |one: &Value| one["verdict"] == "wrong" && one["found"].as_str().unwrap().contains(option);
    assert!(findings.as_array().unwrap().iter().any(is_it), "{doctor:?}");

    let (lines, _logged) = Lines::record();
    let before = held(broker, "events.*.orders.placed").await;
    place(world, 0..1).await;
    let running = Running::run(Relay::new((**world).clone(), broker.nats("relay")));
    holds(broker, "events.*.orders.placed", before + 1).await;
    running.stop().await;
    let logged = lines.saying("an option of the stream weakens permissions to publish");
    let is_it = |line: &Value| line["fields"]["found"].as_str().unwrap().contains(option);
    assert!(logged.iter().any(is_it), "{logged:?}");
}

#[tokio::test]
async fn a_stream_of_twinbox_takes_no_headers_that_reach_other_types() {
    let (_, broker) = start().await;
    for headers in [scheduled(), rolled_up("sub"), rolled_up("all")] {
        assert!(is_refused(&broker, headers).await);
    }
    assert_eq!(held(&broker, "events.>").await, 0);
}

#[tokio::test]
async fn a_stream_where_a_publisher_schedules_messages_of_other_types_is_named() {
    let (world, broker) = (World::<Postgres>::new().await, SharedBroker::start());
    let mut config = Config {
        name: STREAM.to_owned(),
        subjects: vec!["events.>".to_owned()],
        allow_message_schedules: true,
        ..Config::default()
    };
    let jetstream = jetstream::new(broker.client("admin").await);
    jetstream.create_stream(config.clone()).await.unwrap();
    assert!(!is_refused(&broker, scheduled()).await);
    // The forged order is handled.
    run_until(billing(&world, &broker), async || world.effects().await == [66]).await;
    is_named(&world, &broker, "`allow_msg_schedules`").await;
    // So the advice is another stream.
    config.allow_message_schedules = false;
    let error = jetstream.update_stream(config).await.unwrap_err();
    assert!(format!("{error:?}").contains("schedules can not be disabled"), "{error:?}");
}

#[tokio::test]
async fn a_stream_where_a_publisher_deletes_messages_of_other_types_is_named() {
    let (world, broker) = start().await;
    let jetstream = jetstream::new(broker.client("admin").await);
    let mut config = jetstream.get_stream(STREAM).await.unwrap().cached_info().config.clone();
    config.allow_rollup = true;
    jetstream.update_stream(config.clone()).await.unwrap();
    let order = headers("order-1", "orders.placed", "1");
    send(&broker.client("admin").await, OTHER, order, "{\"n\":1}").await;
    holds(&broker, OTHER, 1).await;
    assert!(!is_refused(&broker, rolled_up("all")).await);
    assert_eq!(held(&broker, OTHER).await, 0);
    is_named(&world, &broker, "`allow_rollup_hdrs`").await;

    let error = broker.nats("admin").provision(&StreamOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    assert!(error.to_string().contains("`nats stream edit EVENTS --no-allow-rollup`"), "{error}");
    config.allow_rollup = false;
    jetstream.update_stream(config).await.unwrap();
    broker.nats("admin").provision(&StreamOptions::default()).await.unwrap();
    broker.nats("relay").check().await.unwrap();
    assert!(is_refused(&broker, rolled_up("all")).await);
}
