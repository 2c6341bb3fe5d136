//! Users with few rights, other domains of JetStream, and prefixes that a stream does not take.
use super::*;
use crate::support::shared_broker::SharedBroker;
use async_nats::jetstream::stream::{Config, Source as Copied};
use std::net::TcpListener;
use twinbox_core::{Checkpoint, PartitionReader};
use twinbox_testkit::servers::{NatsOptions as ServerOptions, NatsServer, ServerError};

const BATCH: usize = 200;

fn as_user(server: &NatsServer, user: &str) -> NatsOptions {
    NatsOptions::new(server.url().replace("nats://", &format!("nats://{user}:secret@")))
        .publish_timeout(DENIED)
        .request_timeout(DENIED)
}

fn nats(options: NatsOptions) -> Nats {
    Nats::with_options(options).unwrap()
}

/// Publishes alone and in a batch.
async fn publish_all(nats: &Nats) {
    let mut publisher = publisher(nats).await;
    send(&mut *publisher, message("alone")).await.unwrap();
    let batch = Vec::from_iter((0..BATCH).map(|n| message(&n.to_string())));
    for sent in send_to(&mut *publisher, &Vec::from_iter(&batch)).await {
        sent.unwrap();
    }
    publisher.health().await.unwrap();
}

/// Receives and acknowledges what [`publish_all`] has sent.
async fn consume_all(nats: &Nats, types: &[&str]) {
    let mut source = nats.subscribe(&subscription(types)).await.unwrap();
    for _ in 0..=BATCH {
        receive(&mut *source).await.settle.ack().await.unwrap();
    }
}

fn ordered(types: &[&str]) -> Subscription {
    Subscription { is_ordered: true, ..subscription(types) }
}

/// Reads the partition of the key that [`publish_all`] sends.
async fn read_all(nats: &Nats) {
    let log = nats.open_log(&ordered(&["orders.placed"])).await.unwrap().expect("it is ordered");
    let partition = log.partition_of(&message("alone"));
    let mut reader: Box<dyn PartitionReader> = log.read(partition, &Checkpoint::default()).await.unwrap();
    let (mut received, mut last) = (0, 0);
    while received < BATCH + 1 {
        let messages = timeout(LIMIT, reader.receive(64)).await.unwrap().unwrap();
        (received, last) = (received + messages.len(), messages.last().unwrap().sequence);
    }
    reader.settled(last).await;
    // It asks for the message at the checkpoint.
    let checkpoint =
        Checkpoint { log: reader.log().to_owned(), sequence: last, message: reader.message_at(last) };
    log.read(partition, &checkpoint).await.unwrap();
}

#[tokio::test]
async fn the_users_of_the_book_may_do_what_they_have_to() {
    let broker = SharedBroker::with_stream(&StreamOptions::default()).await;
    let [relay, billing, search] = ["relay", "billing", "search"]
        .map(|user| broker.options(user).publish_timeout(DENIED).request_timeout(DENIED));
    assert!(Destination::check(&nats(relay.clone())).await.unwrap().creates.is_none());
    publish_all(&nats(relay.clone())).await;
    consume_all(&nats(billing.clone()), &["orders.placed"]).await;
    read_all(&nats(search.clone())).await;

    // With a prefix that it may not subscribe to, no answer would come.
    let began = Instant::now();
    let error = Destination::connect(&nats(relay.inbox_prefix("_INBOX")), &secret()).await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (PublishErrorKind::Misconfigured, "nats.permission"));
    let text = std::error::Error::source(&error).unwrap().to_string();
    assert!(text.contains("subscribe to `_INBOX.>`") && text.contains("`inbox_prefix`"), "{text}");
    let error = nats(billing.inbox_prefix("_INBOX")).subscribe(&subscription(&["orders.placed"])).await;
    let error = error.err().unwrap();
    assert_eq!(error.kind(), SourceErrorKind::Misconfigured);
    assert!(error.to_string().contains("`inbox_prefix`"), "{error}");
    let error = nats(search.clone().inbox_prefix("_INBOX")).open_log(&ordered(&["orders.placed"])).await;
    assert!(error.err().unwrap().to_string().contains("`inbox_prefix`"));
    assert!(began.elapsed() < DENIED, "they are told at once: {:?}", began.elapsed());

    // A request that a user may not send is named.
    let other = nats(search.stream("OTHER")).open_log(&ordered(&["orders.placed"])).await;
    let text = other.err().unwrap().to_string();
    assert!(text.contains("does not let this user publish to `$JS.API.STREAM.INFO.OTHER`"), "{text}");
}

/// The same stream, as seen from a server.
fn far(server: &NatsServer) -> NatsOptions {
    NatsOptions::new(server.url()).stream("FAR").prefix("far").publish_timeout(DENIED)
}

/// Two servers, and a leaf node of the first one.
fn hub_and_leaf() -> Result<(NatsServer, NatsServer), ServerError> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hub = ServerOptions::default().line(format!("leafnodes {{ listen: \"127.0.0.1:{port}\" }}"));
    let leaf = ServerOptions::default()
        .line(format!("leafnodes {{ remotes: [ {{ url: \"nats://127.0.0.1:{port}\" }} ] }}"));
    Ok((
        NatsServer::start_with(hub.jetstream_line("domain: hub"))?,
        NatsServer::start_with(leaf.jetstream_line("domain: leaf"))?,
    ))
}

/// A leaf node has a JetStream of its own, which is asked without a domain.
#[tokio::test]
async fn a_stream_is_reached_in_another_domain() {
    let (hub, leaf) = eventually(async || hub_and_leaf().ok()).await;
    nats(far(&hub)).provision(&StreamOptions::default()).await.unwrap();
    let through = nats(far(&leaf).domain("hub"));
    eventually(async || Destination::check(&through).await.ok()).await;
    publish_all(&through).await;
    consume_all(&through, &["orders.placed", "orders.paid"]).await;
    read_all(&through).await;

    let code = async |options| {
        Destination::connect(&nats(options), &secret()).await.err().unwrap().code().to_owned()
    };
    assert_eq!(code(far(&leaf)).await, "nats.10059", "the leaf node has no such stream");
    assert_eq!(code(far(&leaf).domain("nowhere")).await, "nats.no_jetstream");
}

/// The account of the application imports the interface of the account that has the stream.
#[tokio::test]
async fn a_stream_of_another_account_is_reached_by_an_imported_interface() {
    let accounts = "accounts {
        HUB { jetstream: enabled, users: [ { user: hub, password: secret } ], exports: [
            { service: \"$JS.API.>\", response_type: stream }, { service: \"$JS.ACK.>\" },
            { service: \"far.>\" } ] }
        APP { users: [ { user: app, password: secret } ], imports: [
            { service: { account: HUB, subject: \"$JS.API.>\" }, to: \"JS.hub.API.>\" },
            { service: { account: HUB, subject: \"$JS.ACK.>\" } },
            { service: { account: HUB, subject: \"far.>\" } } ] }
    }";
    let server = NatsServer::start_with(ServerOptions::default().line(accounts)).unwrap();
    let own = |user: &str| as_user(&server, user).stream("FAR").prefix("far");
    nats(own("hub")).provision(&StreamOptions::default()).await.unwrap();
    let imported = nats(own("app").api_prefix("JS.hub.API"));
    publish_all(&imported).await;
    consume_all(&imported, &["orders.placed", "orders.paid"]).await;
    read_all(&imported).await;
    let error = Destination::connect(&nats(own("app")), &secret()).await.err().unwrap();
    assert_eq!(error.code(), "nats.10039", "the account of the application has no JetStream of its own");
}

#[tokio::test]
async fn a_consumer_with_a_wrong_prefix_is_refused_and_leaves_nothing() {
    let right = stream("prefix").await;
    let name = stream_of(&right);
    let options = || NatsOptions::new(shared_server()).inbox_prefix(inbox_of(&shared_server()));
    let wrong = nats(options().stream(&name).prefix("elsewhere"));
    let shared = wrong.subscribe(&subscription(&["orders.placed"])).await.err().unwrap();
    let in_order = wrong.open_log(&ordered(&["orders.placed"])).await.err().unwrap();
    for error in [shared, in_order] {
        assert_eq!(error.kind(), SourceErrorKind::Misconfigured);
        let text = error.to_string();
        assert!(text.contains("no subject of `elsewhere.>`: set the option `prefix`"), "{text}");
    }
    let js = outsider(&shared_server()).await;
    let info = js.get_stream(&name).await.unwrap().cached_info().clone();
    assert_eq!(info.state.consumer_count, 0);
    // So the corrected one works.
    send(&mut *publisher(&right).await, message("1")).await.unwrap();
    let mut source = right.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    receive(&mut *source).await.settle.ack().await.unwrap();

    // A copy of the stream accepts no subject, and has those of the stream.
    let mirror = Copied { name: name.clone(), ..Default::default() };
    let copy = Config { name: format!("{name}-copy"), mirror: Some(mirror), ..Default::default() };
    js.create_stream(copy).await.unwrap();
    let copied = nats(options().stream(format!("{name}-copy")).prefix(prefix_of(&name)));
    let mut source = copied.subscribe(&subscription(&["orders.placed"])).await.unwrap();
    assert_eq!(receive(&mut *source).await.message.id, "1");
}
