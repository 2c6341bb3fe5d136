//! Messages that no broker should get.
use super::*;
use async_nats::jetstream::stream;
use twinbox::ops::Ops;
use twinbox_testkit::servers::NatsOptions as ServerOptions;

const KB: usize = 1024;

/// A row as a producer in another language writes it.
async fn insert(
    store: &Store<Postgres>,
    id: &str,
    event_type: &str,
    headers: Option<&str>,
    payload: Vec<u8>,
) {
    let sql = "INSERT INTO twinbox.outbox (id, type, key, headers, payload) VALUES ($1, $2, 'k-1', $3, $4)";
    let insert = sqlx::query(sql).bind(id).bind(event_type).bind(headers).bind(payload);
    insert.execute(store.pool()).await.unwrap();
}

/// Waits for the dead letters, and answers with their ids and errors.
async fn dead(store: &Store<Postgres>, count: usize) -> Vec<(String, String)> {
    eventually(async || {
        let parked = Ops::new(store).parked_messages("nats", 1000).await.unwrap();
        let dead: Vec<_> = parked.into_iter().filter(|parked| parked.state == "dead").collect();
        (dead.len() == count)
            .then(|| dead.into_iter().map(|d| (d.message.id.clone(), d.first_error)).collect())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn row_18_larger_than_the_stream_or_the_server_takes() {
    let store = postgres().await;
    let server = NatsServer::start_with(ServerOptions::default().line(format!("max_payload: {}", 100 * KB)));
    let server = server.unwrap();
    let target = Target::at(server.url());
    let config = target.config(&["orders.placed"]);
    target.create(stream::Config { max_message_size: 80 * 1024, ..config }).await;
    publish(&store, 0..35).await;
    insert(&store, "large", "orders.placed", None, vec![b' '; 90 * KB]).await;
    insert(&store, "huge", "orders.placed", None, vec![b' '; 200 * KB]).await;
    let headers = format!("{{\"x-many\": \"{}\"}}", "h".repeat(64 * KB - 100));
    insert(&store, "headers", "orders.placed", Some(&headers), b"{}".to_vec()).await;
    publish(&store, 35..70).await;
    let destination = Nats::with_options(target.existing()).unwrap();
    let running = Running::run(Relay::new((*store).clone(), destination));
    running.published(70).await;
    let expected = [("large", "nats.10054"), ("huge", "nats.max_payload"), ("headers", "nats.10097")];
    let expected = expected.map(|(id, code)| (id.to_owned(), code.to_owned()));
    assert_eq!(dead(&store, 3).await, expected);
    let counters = running.stop().await;
    assert_eq!((counters.published(), counters.parked(), counters.dead_letters()), (70, 3, 3));
    assert_whole_and_ordered(&target.messages(70).await, 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_46_headers_that_are_none() {
    let (store, target) = (postgres().await, Target::shared());
    for (name, value) in [("a\r\nb", "x"), ("a", "x\r\nPUB evil 0\r\n"), ("", "x"), ("a b", "x"), ("ä", "x")]
    {
        let mut tx = store.begin().await.unwrap();
        let draft = Draft::raw("orders.placed", 1, "{}").header(name, value);
        assert!(store.outbox().publish_draft(&mut tx, draft).await.is_err(), "{name:?}: {value:?} was taken");
    }
    let mut many = Draft::raw("orders.placed", 1, "{}");
    for n in 0..10_000 {
        many = many.header(format!("x-{n}"), "x");
    }
    let mut tx = store.begin().await.unwrap();
    assert!(store.outbox().publish_draft(&mut tx, many).await.is_err());
    drop(tx);

    // What another producer writes is not bound by that.
    let poison = [
        ("crlf-name", r#"{"a\r\nb": "x"}"#),
        ("crlf-value", r#"{"a": "x\r\nPUB evil 0\r\n"}"#),
        ("empty-name", r#"{"": "x"}"#),
        ("space", r#"{"a b": "x"}"#),
    ];
    for (id, headers) in poison {
        insert(&store, id, "orders.placed", Some(headers), b"{}".to_vec()).await;
    }
    let spoofed = r#"{"Nats-Msg-Id": "o-1", "Nats-Rollup": "all", "nats-expected-stream": "OTHER",
        "ce-id": "x", "traceparent": "x", "mine": "kept"}"#;
    insert(&store, "spoofed", "orders.placed", Some(spoofed), b"{}".to_vec()).await;
    publish(&store, 0..70).await;
    let running = Running::run(target.quick(&store));
    running.published(71).await;
    let expected = poison.map(|(id, _)| (id.to_owned(), "nats.header".to_owned()));
    assert_eq!(dead(&store, poison.len()).await, expected);
    running.stop().await;
    assert_whole_and_ordered(&target.messages(71).await, 71);
    let stream = target.jetstream().await.get_stream(&target.name).await.unwrap();
    let mut found = 0;
    for n in 1..=71 {
        let headers = stream.get_raw_message(n).await.unwrap().headers;
        let header = |name: &str| headers.get(name).map(|value| value.as_str());
        if header("ce-id") == Some("spoofed") {
            found += 1;
            assert_eq!(header("mine"), Some("kept"));
            assert!(header("Nats-Rollup").is_none() && header("nats-expected-stream").is_none());
            assert_ne!(header("Nats-Msg-Id"), Some("o-1"));
        }
    }
    assert_eq!(found, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_47_types_that_are_no_names() {
    let (store, target) = (postgres().await, Target::shared());
    let delete = format!("$JS.API.STREAM.DELETE.{}", target.name);
    let long = "x".repeat(4 * KB);
    let types = [
        "a.*",
        ">",
        "..",
        "a..b",
        "",
        "a b",
        "a\r\nPUB evil 0\r\n",
        "*",
        &delete,
        &long,
        "'; DROP TABLE twinbox.outbox; --",
        "<script>alert(1)</script>",
        "\u{1b}[2J",
        "ü",
    ];
    for event_type in types {
        let mut tx = store.begin().await.unwrap();
        let draft = Draft::raw(event_type, 1, "{}");
        assert!(store.outbox().publish_draft(&mut tx, draft).await.is_err(), "{event_type:?} was taken");
    }
    // Nor does the table take them. Somebody took that bound away.
    sqlx::raw_sql("ALTER DOMAIN twinbox.event_type DROP CONSTRAINT event_type_check")
        .execute(store.pool())
        .await
        .unwrap();
    publish(&store, 0..35).await;
    for (n, event_type) in types.iter().enumerate() {
        insert(&store, &format!("t-{n:02}"), event_type, None, b"{}".to_vec()).await;
    }
    publish(&store, 35..70).await;
    let client = async_nats::connect(&target.url).await.unwrap();
    let mut evil = client.subscribe("evil").await.unwrap();
    let running = Running::run(target.quick(&store));
    running.published(70).await;
    let dead = dead(&store, types.len()).await;
    for (n, (id, code)) in dead.iter().enumerate() {
        assert_eq!((id.as_str(), code.as_str()), (format!("t-{n:02}").as_str(), "nats.subject"));
    }
    running.stop().await;
    assert_whole_and_ordered(&target.messages(70).await, 70);
    assert_eq!(target.count().await, 70);
    client.flush().await.unwrap();
    assert!(futures::FutureExt::now_or_never(futures::StreamExt::next(&mut evil)).is_none());
}
