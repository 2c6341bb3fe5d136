//! Servers that are killed, frozen, wiped, old, or deny access.
use super::*;
use crate::support::publisher::{outgoing, results};
use twinbox_testkit::servers::{NatsOptions as ServerOptions, NatsServer, find};

#[tokio::test]
async fn a_killed_server_is_unavailable_and_keeps_what_it_confirmed() {
    let mut server = NatsServer::start().unwrap();
    // Longer than the restart of a server takes on a busy machine: the held delivery comes once.
    let options = options(&server.url(), "killed").ack_wait(Duration::from_secs(600));
    let nats = Nats::with_options(options).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let mut publisher = publisher(&nats).await;
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    send(&mut *publisher, message("1")).await.unwrap();
    let held = receive(&mut *source).await;
    server.kill().unwrap();
    let before = Instant::now();
    let kind = send(&mut *publisher, message("2")).await.unwrap_err().kind();
    assert!(
        matches!(
            kind,
            PublishErrorKind::Unavailable | PublishErrorKind::InDoubt | PublishErrorKind::Unanswered
        ),
        "{kind:?}"
    );
    assert!(before.elapsed() < Duration::from_secs(60), "before the time-out: {:?}", before.elapsed());
    refused(send(&mut *publisher, message("2")).await, PublishErrorKind::Unavailable, "nats.disconnected");
    assert_eq!(publisher.health().await.unwrap_err().kind(), PublishErrorKind::Unavailable);
    let error = Destination::connect(&nats, &secret()).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (PublishErrorKind::Unavailable, "nats.io"));
    assert_eq!(nats.provision(&StreamOptions::default()).await.unwrap_err().kind(), ErrorKind::Unavailable);

    server.restart().unwrap();
    publisher.health().await.unwrap();
    assert!(again(&mut *publisher, message("1")).await.is_duplicate);
    send(&mut *publisher, message("2")).await.unwrap();
    // The source survived the outage, and so did the delivery. An ack before the source has reconnected would
    // be lost.
    let next = receive(&mut *source).await;
    assert_eq!(next.message.id, "2");
    held.settle.ack().await.unwrap();
    next.settle.ack().await.unwrap();
    let js = outsider(&server.url()).await;
    let info = js.get_stream(stream_of(&nats)).await.unwrap().cached_info().clone();
    assert_eq!(info.state.messages, 2);
}

/// Waits until no task of a client runs: nothing is left that could send. A test has a runtime of its own,
/// and every spawned task in it belongs to a client.
async fn client_tasks_end() {
    let metrics = tokio::runtime::Handle::current().metrics();
    eventually(async || (metrics.num_alive_tasks() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_dropped_publisher_sends_nothing_when_the_server_comes_back() {
    let mut server = NatsServer::start().unwrap();
    let nats = Nats::with_options(options(&server.url(), "dropped")).unwrap();
    // In batches the client would buffer few.
    nats.provision(&StreamOptions::default().batches(false)).await.unwrap();
    let mut publisher = publisher(&nats).await;
    send(&mut *publisher, message("first")).await.unwrap();
    server.kill().unwrap();
    // Before the client notices the loss: it buffers these messages, which are more than one write holds.
    let payload = vec![b'x'; 4000];
    let batch: Vec<_> = (0..500)
        .map(|n| Message {
            key: Some(format!("k{n}")),
            payload: payload.clone().into(),
            ..message(&n.to_string())
        })
        .collect();
    let answers = publisher.send(&outgoing(&batch)).await;
    drop(publisher);
    let mut in_doubt = 0;
    for answer in results(answers).await {
        match answer.unwrap_err().kind() {
            PublishErrorKind::InDoubt | PublishErrorKind::Unanswered => in_doubt += 1,
            kind => assert_eq!(kind, PublishErrorKind::Unavailable),
        }
    }
    assert!(in_doubt > 50, "only {in_doubt} messages were in the buffer");
    client_tasks_end().await;
    server.restart().unwrap();
    let js = outsider(&server.url()).await;
    let info = js.get_stream(stream_of(&nats)).await.unwrap().cached_info().clone();
    assert_eq!(info.state.messages, 1);
}

#[tokio::test]
async fn a_frozen_server_leaves_messages_in_doubt_and_ends_the_source() {
    let server = NatsServer::start().unwrap();
    let options = options(&server.url(), "frozen").publish_timeout(SILENCE);
    let nats = Nats::with_options(options.request_timeout(SILENCE)).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let mut publisher = publisher(&nats).await;
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    send(&mut *publisher, message("1")).await.unwrap();
    let held = receive(&mut *source).await;
    server.pause().unwrap();
    refused(send(&mut *publisher, message("2")).await, PublishErrorKind::Unanswered, "nats.timeout");
    let (health, ack, received) = tokio::join!(
        timeout(LIMIT, publisher.health()),
        held.settle.ack(),
        timeout(LIMIT, source.receive(1))
    );
    assert_eq!(health.unwrap().unwrap_err().kind(), PublishErrorKind::Unavailable);
    assert_eq!(ack.unwrap_err().kind(), SourceErrorKind::NotConfirmed);
    assert_eq!(received.unwrap().err().unwrap().kind(), SourceErrorKind::Unavailable);
    server.resume().unwrap();
    publisher.health().await.unwrap();
    assert!(
        again(&mut *publisher, message("2")).await.is_duplicate,
        "the message was stored before the time-out"
    );
}

#[tokio::test]
async fn a_server_that_lost_its_disk_is_detected() {
    let mut server = NatsServer::start().unwrap();
    let nats = Nats::with_options(options(&server.url(), "wiped")).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let mut publisher = publisher(&nats).await;
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let wipe = async {
        consumer_is(&nats, &server.url(), |consumer| consumer.num_waiting > 0).await;
        server.wipe_store().unwrap();
        server.restart().unwrap();
    };
    let (received, ()) = tokio::join!(timeout(LIMIT, source.receive(1)), wipe);
    assert_eq!(received.unwrap().err().unwrap().kind(), SourceErrorKind::Unavailable);
    assert_eq!(publisher.health().await.unwrap_err().kind(), PublishErrorKind::Unavailable);
    nats.provision(&StreamOptions::default()).await.unwrap();
    publisher.health().await.unwrap();
    send(&mut *publisher, message("1")).await.unwrap();
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    receive(&mut *source).await.settle.ack().await.unwrap();
}

#[tokio::test]
async fn a_lost_stream_is_created_again_if_the_option_is_set() {
    let options = options(&shared_server(), "managed").create_stream(StreamOptions::default());
    let nats = Nats::with_options(options).unwrap();
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let mut publisher = publisher(&nats).await;
    send(&mut *publisher, message("1")).await.unwrap();
    receive(&mut *source).await.settle.ack().await.unwrap();
    outsider(&shared_server()).await.delete_stream(stream_of(&nats)).await.unwrap();
    refused(send(&mut *publisher, message("2")).await, PublishErrorKind::Unavailable, "nats.10059");
    publisher.health().await.unwrap();
    send(&mut *publisher, message("2")).await.unwrap();
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    assert_eq!(receive(&mut *source).await.message.id, "2");
}

#[tokio::test]
async fn a_denied_publish_is_refused_for_good() {
    let options_of_server = ServerOptions::default().line(
        "authorization { users: [ { user: admin, password: a }, \
         { user: reader, password: r, permissions: { publish: { deny: \"*.*.orders.>\" } } } ] }",
    );
    let server = NatsServer::start_with(options_of_server).unwrap();
    let url = |user: &str| server.url().replace("nats://", &format!("nats://{user}@"));
    let unique = |url: &str| NatsOptions::new(url).publish_timeout(DENIED);
    Nats::with_options(unique(&url("admin:a"))).unwrap().provision(&StreamOptions::default()).await.unwrap();
    let mut publisher = publisher(&Nats::with_options(unique(&url("reader:r"))).unwrap()).await;
    refused(send(&mut *publisher, message("1")).await, PublishErrorKind::RefusedForGood, "nats.permission");
    send(&mut *publisher, of_type("2", "billing.paid")).await.unwrap();
    let error =
        Destination::connect(&Nats::new(&url("reader:wrong")).unwrap(), &secret()).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (PublishErrorKind::Unavailable, "nats.authorization"));
    assert!(!error.to_string().contains("wrong"));
}

#[tokio::test]
async fn a_consumer_without_permission_to_read_the_stream_info_works() {
    let options_of_server = ServerOptions::default().line(
        "authorization { users: [ { user: admin, password: a }, \
         { user: worker, password: w, permissions: { publish: { deny: \"$JS.API.STREAM.INFO.*\" } } } ] }",
    );
    let server = NatsServer::start_with(options_of_server).unwrap();
    let as_user = |user: &str| {
        let url = server.url().replace("nats://", &format!("nats://{user}@"));
        Nats::with_options(NatsOptions::new(&url).request_timeout(DENIED)).unwrap()
    };
    let admin = as_user("admin:a");
    admin.provision(&StreamOptions::default()).await.unwrap();
    send(&mut *publisher(&admin).await, message("1")).await.unwrap();
    let mut source = as_user("worker:w").subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let MaxAge::Unlimited { reason } = source.max_age() else { panic!("{:?}", source.max_age()) };
    assert!(reason.contains("may not read"), "{reason}");
    assert_eq!(receive(&mut *source).await.message.id, "1");
}

#[tokio::test]
async fn an_old_server_takes_one_type_and_refuses_two() {
    let binary = find::nats_server_old().unwrap();
    let server = NatsServer::start_with(ServerOptions::default().binary(binary)).unwrap();
    let nats = Nats::with_options(options(&server.url(), "old")).unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    nats.provision(&StreamOptions::default()).await.unwrap();
    let error = nats.subscribe(&subscription(&["orders.paid", "orders.placed"])).await.err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Misconfigured);
    assert!(error.to_string().contains("needs NATS server 2.10 or newer, and this is 2."), "{error}");
    let mut publisher = publisher(&nats).await;
    for event_type in ["orders.other", "orders.placed"] {
        send(&mut *publisher, of_type(event_type, event_type)).await.unwrap();
    }
    let mut source = nats.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    let delivery = receive(&mut *source).await;
    assert_eq!(delivery.message.event_type, "orders.placed");
    delivery.settle.ack().await.unwrap();
}
